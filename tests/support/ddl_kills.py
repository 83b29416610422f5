"""Kills processes at the moments of a statement that must run once at the target (I6, I9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardmerge.proto.errors import CATALOGUE
from tests.support.cluster import SubTask, binlog_end
from tests.support.database import Database
from tests.support.judge import PartitionIds, Shard, Target, compare
from tests.support.kills import Kills, at_each, kill_at_each
from tests.support.world import World

_RUN = ("ddl.before", "ddl.begun", "ddl.run", "ddl.before_passing", "ddl.passing", "ddl.passed")
_DELETED = ("ddl.before", "ddl.deleting", "ddl.before_passing", "ddl.passing", "ddl.passed")
_RECORDED = ("ddl.before", "ddl.before_passing", "ddl.passing", "ddl.passed")
_MADE = ("ddl.before", "ddl.made", "ddl.before_passing", "ddl.passing", "ddl.passed")


@dataclass(frozen=True, slots=True)
class Killed:
    """A statement and its moments. ``text``: at the source, with ``$`` for the schema; ``then``: follows it;
    ``moments``: where a process may be killed; ``first``: precedes it, without kills."""

    text: str
    then: tuple[str, ...]
    moments: tuple[str, ...] = _RUN
    first: tuple[str, ...] = ()


STATEMENTS: dict[str, Killed] = {
    "alter": Killed(
        "ALTER TABLE $.t DROP COLUMN n, ADD COLUMN extra INT NOT NULL DEFAULT 7",
        ("INSERT INTO $.t (id) VALUES (11)", "UPDATE $.t SET extra = extra + 1 WHERE id < 3"),
    ),
    "rename": Killed(
        "RENAME TABLE $.a TO $.aside, $.b TO $.a, $.aside TO $.b",
        ("INSERT INTO $.a VALUES (11, 2)", "INSERT INTO $.b VALUES (12, 1)"),
    ),
    "delete": Killed(
        "DROP TABLE $.s_2",
        ("CREATE TABLE $.s_2 LIKE $.s_1", "INSERT INTO $.s_2 VALUES (2, 22)"),
        _DELETED,
    ),
    "drop": Killed("DROP TABLE $.gone", ("CREATE TABLE $.gone (id INT PRIMARY KEY)", "INSERT INTO $.gone VALUES (9)")),
    "create": Killed(
        "CREATE TABLE $.made (id INT PRIMARY KEY, n INT DEFAULT 3)",
        ("INSERT INTO $.made (id) VALUES (1), (2)",),
        _MADE,
    ),
    "shadow": Killed(
        "ALTER TABLE $._a_gho ADD COLUMN extra INT NOT NULL DEFAULT 7, CHANGE n m INT",
        ("INSERT INTO $._a_gho (id, m) SELECT id, n FROM $.a",),
        _RECORDED,
        ("CREATE TABLE $._a_gho LIKE $.a",),
    ),
    "swap": Killed(
        "RENAME TABLE $.a TO $._a_del, $._a_gho TO $.a",
        ("INSERT INTO $.a VALUES (21, 2, 3)", "UPDATE $.a SET extra = extra + 1 WHERE id < 3", "DROP TABLE $._a_del"),
        ("ddl.before", "ddl.swap", *_RUN[1:]),
    ),
}


def at_every_moment(victim: str) -> dict[str, Kills]:
    """Return kills of the same victim at each of the moments of every statement."""
    return {name: at_each(victim, killed.moments) for name, killed in STATEMENTS.items()}


def kill_at_moments_of_statements(world: World, label: str, kills: Mapping[str, Kills]) -> None:
    """Run all statements, one after the other; ``kills``: by statement."""
    schema = f"ddl_{label}"
    _, source = world.sources[0]
    _prepare(source, schema)
    world.cluster.start_task(_task(world, schema))
    world.cluster.wait_replicating(schema)
    for name, killed in STATEMENTS.items():
        chosen = kills.get(name, {})
        source.execute(f"INSERT INTO {schema}.t (id) VALUES ({100 + len(name) + ord(name[0])})")
        if killed.first:
            source.execute(*(text.replace("$", schema) for text in killed.first))
            settle(world, schema)
        if chosen:
            world.cluster.hooks.hold(next(iter(chosen)))
        source.execute(*(text.replace("$", schema) for text in (killed.text, *killed.then)))
        if chosen:
            # After several failures the next attempt may be up to a minute away.
            kill_at_each(world, chosen, lambda: world.cluster.dmctl("resume-task", schema, check=False))
        settle(world, schema)
    judge(world, schema)
    world.cluster.dmctl("stop-task", schema)


def settle(world: World, task: str) -> None:
    """Wait until all is applied; AssertionError at once when the task is paused with an error that it does not
    retry."""
    source_id, source = world.sources[0]
    end = binlog_end(source)

    def holds(sub: SubTask) -> bool:
        if sub.stage == "Paused":
            assert all(CATALOGUE[code].retryable for code, _ in sub.errors), sub.errors
            world.cluster.dmctl("resume-task", task, check=False)
        return sub.unit == "Sync" and sub.synced and sub.position >= end

    assert source_id in world.cluster.wait_subtasks(task, holds, f"has applied up to {end}", 300)


def _prepare(source: Database, schema: str) -> None:
    source.execute(
        f"CREATE DATABASE {schema}",
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, n INT)",
        *(f"CREATE TABLE {schema}.{name} (id INT PRIMARY KEY, n INT)" for name in ("a", "b", "gone")),
        *(f"CREATE TABLE {schema}.s_{number} (id BIGINT PRIMARY KEY, n INT)" for number in (1, 2)),
        *(f"INSERT INTO {schema}.{name} VALUES (1, 1), (2, 2)" for name in ("t", "a", "gone", "s_1", "s_2")),
        f"INSERT INTO {schema}.b VALUES (3, 3)",
    )


def _task(world: World, schema: str) -> str:
    target = world.target
    return (
        f"name: {schema}\ntask-mode: all\nmeta-schema: dm_meta\n"
        f"target-database: {{host: {target.host}, port: {target.port}, user: root, password: ''}}\n"
        f"mysql-instances:\n  - source-id: {world.sources[0][0]}\n    block-allow-list: one\n"
        "    route-rules: [shards]\n    column-mapping-rules: [ids]\n"
        f"block-allow-list:\n  one: {{do-dbs: [{schema}]}}\n"
        f'routes:\n  shards: {{schema-pattern: {schema}, table-pattern: "s_?", target-schema: {schema},\n'
        "    target-table: s}\n"
        f'column-mappings:\n  ids: {{schema-pattern: {schema}, table-pattern: "s_?", expression: partition id,\n'
        '    source-column: id, target-column: id, arguments: ["1", "", s_]}\n'
    )


def judge(world: World, schema: str) -> None:
    """Compare rows and structure; a statement that ran twice, or never, would show in one of them."""
    source, target = world.sources[0][1], world.target
    for table in ("t", "a", "b", "gone", "made"):
        verdict = compare([Shard(source.connect, schema, table)], Target(target.connect, schema, table))
        assert verdict.differences == 0 and verdict.rows, (table, verdict)
    shards = [Shard(source.connect, schema, f"s_{number}", PartitionIds(1, None, number)) for number in (1, 2)]
    verdict = compare(shards, Target(target.connect, schema, "s"))
    assert verdict.differences == 0 and verdict.rows == 3, verdict
    query = (
        "SELECT table_name, column_name, column_type, column_default, is_nullable FROM information_schema.columns "
        f"WHERE table_schema = '{schema}' AND table_name NOT LIKE 's%' ORDER BY table_name, ordinal_position"
    )
    assert source.query(query) == target.query(query)
    left = target.query(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'dm_meta' AND table_name LIKE 'ddl_tr%'"
    )
    assert left == [], "trackers that nobody needs any more"
    assert target.query("SELECT * FROM dm_meta.statement_begun") == []
    assert target.query("SELECT * FROM dm_meta.online_ddl") == []
