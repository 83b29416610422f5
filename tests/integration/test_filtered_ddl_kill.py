"""Tests kills at every moment of a statement that an event filter skips or rejects (I9)."""

from __future__ import annotations

from shardmerge.proto import errors
from tests.support.kills import kill_at_each
from tests.support.wait import until
from tests.support.world import World

TASK = "filtered_ddl"
_RECORDED: tuple[str, ...] = ("ddl.before", "ddl.before_passing", "ddl.passing", "ddl.passed")
_IGNORED: dict[str, tuple[str, ...]] = {
    "TRUNCATE TABLE $.t": ("worker", "", "target", ""),
    "ALTER TABLE $.t ADD INDEX by_n (n)": ("", "jvm", "", "target"),
    "ALTER TABLE $.t DROP COLUMN gone": ("etcd", "", "worker", ""),
    "DROP TABLE $.other": ("", "tasks", "", "master"),
}
"""The victims at these moments, "" for none. At ``ddl.passing`` no victim whose end closes the driver's session: then
the statement may be recorded without reaching ``ddl.passed``."""


def _file(world: World) -> str:
    target = world.target
    return (
        f"name: {TASK}\ntask-mode: all\nmeta-schema: dm_meta\n"
        f"target-database: {{host: {target.host}, port: {target.port}, user: root, password: ''}}\n"
        f"mysql-instances:\n  - source-id: {world.sources[0][0]}\n    block-allow-list: own\n"
        "    filter-rules: [keep, never]\n"
        f"block-allow-list: {{own: {{do-dbs: [{TASK}]}}}}\n"
        "filters:\n"
        f"  keep: {{schema-pattern: {TASK}, table-pattern: '*', events: [truncate table, drop table, drop column],\n"
        "         sql-pattern: [add\\s+index], action: Ignore}\n"
        f"  never: {{schema-pattern: {TASK}, table-pattern: '*', events: [modify column], action: Error}}\n"
    )


def _resume(world: World) -> object:
    # After several failures the next attempt may be up to a minute away.
    return world.cluster.dmctl("resume-task", TASK, check=False)


def _settle(world: World, marker: int) -> None:
    def arrived() -> bool:
        if world.target.query(f"SELECT 1 FROM {TASK}.t WHERE id = {marker}"):
            return True
        _resume(world)
        return False

    until(arrived, f"row {marker} has come", 300, every=1.0)


def test_kills_at_moments_of_filtered_statements(world: World) -> None:
    cluster, source, target = world.cluster, world.sources[0][1], world.target
    source.execute(
        f"CREATE DATABASE {TASK}",
        f"CREATE TABLE {TASK}.t (id INT PRIMARY KEY, n INT, gone INT)",
        f"CREATE TABLE {TASK}.other (id INT PRIMARY KEY)",
        f"INSERT INTO {TASK}.t VALUES (1, 1, 1), (2, 2, 2)",
        f"INSERT INTO {TASK}.other VALUES (1)",
    )
    cluster.start_task(_file(world))
    cluster.wait_replicating(TASK)
    expected: dict[int, int] = {1: 1, 2: 2}
    for number, (text, victims) in enumerate(_IGNORED.items(), 1):
        kills = {moment: victim for moment, victim in zip(_RECORDED, victims, strict=True) if victim}
        before, behind = 10 * number, 10 * number + 1
        cluster.hooks.hold(next(iter(kills)))
        source.execute(
            f"INSERT INTO {TASK}.t (id, n) VALUES ({before}, 0)",
            f"UPDATE {TASK}.t SET n = n + 1 WHERE id = {before}",
            text.replace("$", TASK),
            f"INSERT INTO {TASK}.t (id, n) VALUES ({behind}, 0)",
            f"UPDATE {TASK}.t SET n = n + 5 WHERE id = {behind}",
        )
        kill_at_each(world, kills, lambda: _resume(world))
        expected |= {before: 1, behind: 5}
        _settle(world, behind)
    # The task stays stopped at the statement with action Error, even after a kill, until an operator's override, which
    # counts once.
    cluster.hooks.hold("ddl.before")
    source.execute(
        f"ALTER TABLE {TASK}.t MODIFY n INT NOT NULL DEFAULT 3", f"INSERT INTO {TASK}.t (id, n) VALUES (91, 5)"
    )
    kill_at_each(world, {"ddl.before": "worker"}, lambda: _resume(world))
    for victim in ("worker", "target"):
        cluster.wait_subtasks(
            TASK,
            lambda sub: sub.stage == "Paused" and errors.ddl.STATEMENT_FILTERED.code in dict(sub.errors),
            "stands before the statement",
        )
        assert not target.query(f"SELECT 1 FROM {TASK}.t WHERE id = 91")
        cluster.hooks.hold("ddl.before")
        _resume(world)
        kill_at_each(world, {"ddl.before": victim}, lambda: _resume(world))
    until(
        lambda: cluster.dmctl("binlog", "skip", TASK, check=False).code == 0,
        "the operator's word is taken",
        300,
        every=1.0,
    )
    expected[91] = 5
    _settle(world, 91)
    world.settle([TASK])
    rows = target.query(f"SELECT id, n, gone FROM {TASK}.t ORDER BY id")
    assert rows == [(key, value, key if key < 3 else None) for key, value in sorted(expected.items())]
    assert target.query(f"SELECT id FROM {TASK}.other") == [(1,)]
    assert [row[2] for row in target.query(f"SHOW INDEX FROM {TASK}.t")] == ["PRIMARY"]
    assert target.query("SELECT * FROM dm_meta.statement_begun") == []
    tracked = (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'dm_meta' AND table_name LIKE 'ddl_tr%'"
    )
    assert target.query(tracked) == []
    cluster.dmctl("stop-task", TASK)
