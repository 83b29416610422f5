"""Tests kills at every moment of a statement that an event filter skips or rejects (I9)."""

from __future__ import annotations

import pytest

from shardmerge.proto import errors
from tests.support.kills import kill_at_each
from tests.support.wait import until
from tests.support.world import World

_RECORDED: tuple[str, ...] = ("ddl.before", "ddl.before_passing", "ddl.passing", "ddl.passed")
_IGNORED: dict[str, tuple[str, ...]] = {
    "TRUNCATE TABLE $.t": ("worker", "tasks", "target", "master"),
    "ALTER TABLE $.t ADD INDEX by_n (n)": ("etcd", "target", "worker", "jvm"),
    "ALTER TABLE $.t DROP COLUMN gone": ("tasks", "master", "target", "worker"),
    "DROP TABLE $.other": ("etcd", "worker", "master", "tasks"),
}
"""The victims at these moments. At ``ddl.passing`` no victim whose end closes the driver's session: then the statement
may be recorded without reaching ``ddl.passed``."""


def _file(world: World, task: str) -> str:
    target = world.target
    return (
        f"name: {task}\ntask-mode: all\nmeta-schema: dm_meta\n"
        f"target-database: {{host: {target.host}, port: {target.port}, user: root, password: ''}}\n"
        f"mysql-instances:\n  - source-id: {world.sources[0][0]}\n    block-allow-list: own\n"
        "    filter-rules: [keep, never]\n"
        f"block-allow-list: {{own: {{do-dbs: [{task}]}}}}\n"
        "filters:\n"
        f"  keep: {{schema-pattern: {task}, table-pattern: '*', events: [truncate table, drop table, drop column],\n"
        "         sql-pattern: [add\\s+index], action: Ignore}\n"
        f"  never: {{schema-pattern: {task}, table-pattern: '*', events: [modify column], action: Error}}\n"
    )


def _resume(world: World, task: str) -> object:
    # After several failures the next attempt may be up to a minute away.
    return world.cluster.dmctl("resume-task", task, check=False)


def _settle(world: World, task: str, marker: int) -> None:
    def arrived() -> bool:
        if world.target.query(f"SELECT 1 FROM {task}.t WHERE id = {marker}"):
            return True
        _resume(world, task)
        return False

    until(arrived, f"row {marker} has come", 300, every=1.0)


@pytest.mark.grid
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.grid)], ids=["one each", "every"])
def test_kills_at_moments_of_filtered_statements(world: World, every: bool) -> None:
    """Without ``every``, each statement has a kill at one moment, each at another one."""
    task = f"filtered_ddl_{'all' if every else 'one'}"
    cluster, source, target = world.cluster, world.sources[0][1], world.target
    source.execute(
        f"CREATE DATABASE {task}",
        f"CREATE TABLE {task}.t (id INT PRIMARY KEY, n INT, gone INT)",
        f"CREATE TABLE {task}.other (id INT PRIMARY KEY)",
        f"INSERT INTO {task}.t VALUES (1, 1, 1), (2, 2, 2)",
        f"INSERT INTO {task}.other VALUES (1)",
    )
    cluster.start_task(_file(world, task))
    cluster.wait_replicating(task)
    expected: dict[int, int] = {1: 1, 2: 2}
    for number, (text, victims) in enumerate(_IGNORED.items(), 1):
        chosen = slice(None) if every else slice(number - 1, number)
        kills = dict(zip(_RECORDED[chosen], victims[chosen], strict=True))
        before, behind = 10 * number, 10 * number + 1
        cluster.hooks.hold(next(iter(kills)))
        source.execute(
            f"INSERT INTO {task}.t (id, n) VALUES ({before}, 0)",
            f"UPDATE {task}.t SET n = n + 1 WHERE id = {before}",
            text.replace("$", task),
            f"INSERT INTO {task}.t (id, n) VALUES ({behind}, 0)",
            f"UPDATE {task}.t SET n = n + 5 WHERE id = {behind}",
        )
        kill_at_each(world, kills, lambda: _resume(world, task))
        expected |= {before: 1, behind: 5}
        _settle(world, task, behind)
    # The task stays stopped at the statement with action Error, even after a kill, until an operator's override, which
    # counts once.
    cluster.hooks.hold("ddl.before")
    source.execute(
        f"ALTER TABLE {task}.t MODIFY n INT NOT NULL DEFAULT 3", f"INSERT INTO {task}.t (id, n) VALUES (91, 5)"
    )
    kill_at_each(world, {"ddl.before": "worker"}, lambda: _resume(world, task))
    for victim in ("worker", "target"):
        cluster.wait_subtasks(
            task,
            lambda sub: sub.stage == "Paused" and errors.ddl.STATEMENT_FILTERED.code in dict(sub.errors),
            "stands before the statement",
        )
        assert not target.query(f"SELECT 1 FROM {task}.t WHERE id = 91")
        cluster.hooks.hold("ddl.before")
        _resume(world, task)
        kill_at_each(world, {"ddl.before": victim}, lambda: _resume(world, task))
    until(
        lambda: cluster.dmctl("binlog", "skip", task, check=False).code == 0,
        "the operator's word is taken",
        300,
        every=1.0,
    )
    expected[91] = 5
    _settle(world, task, 91)
    world.settle([task])
    rows = target.query(f"SELECT id, n, gone FROM {task}.t ORDER BY id")
    assert rows == [(key, value, key if key < 3 else None) for key, value in sorted(expected.items())]
    assert target.query(f"SELECT id FROM {task}.other") == [(1,)]
    assert [row[2] for row in target.query(f"SHOW INDEX FROM {task}.t")] == ["PRIMARY"]
    assert target.query("SELECT * FROM dm_meta.statement_begun") == []
    tracked = (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'dm_meta' AND table_name LIKE 'ddl_tr%'"
    )
    assert target.query(tracked) == []
    cluster.dmctl("stop-task", task)
