"""Tests sharding DDLs of many tables in a row: tables are parked at statements that no lane has reached (I5, I6)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.cluster import Json
from tests.support.kills import VICTIMS, locks_of
from tests.support.wait import until
from tests.support.world import World
from tests.support.writer import ShardTable, Writer, beside_a_writer

pytestmark = pytest.mark.turns

TABLES = 6


def _alter(shards: Sequence[ShardTable]) -> None:
    for shard in shards:
        beside_a_writer(
            shard,
            f"UPDATE {shard.name} SET amount = amount + 1 WHERE id % 3 = 0",
            f"ALTER TABLE {shard.name} ADD COLUMN added INT NOT NULL DEFAULT 7",
            f"UPDATE {shard.name} SET added = id % 5 WHERE id % 2 = 0",
        )


def _parked_ahead(world: World, name: str) -> int:
    """Return how many tables were parked at statements that the lanes had not reached."""
    logs = (worker.log.read_text() for worker in world.cluster.workers)
    lines = (line for log in logs for line in log.splitlines())
    return sum("parked at a following statement" in line and f"task={name}" in line for line in lines)


def _ready(world: World, name: str, source: str) -> int:
    """Return how many shard tables of the source wait at the only lock."""
    listed = locks_of(world, name) or []
    tables: list[Json] = listed[0]["tables"] if len(listed) == 1 else []
    return sum(table["source"] == source and table["standing"] == "ready" for table in tables)


def _of_source(world: World, shards: Sequence[ShardTable], number: int) -> list[ShardTable]:
    server = world.sources[number][1]
    return [shard for shard in shards if shard.connect == server.connect]


def _end(world: World, name: str) -> None:
    until(lambda: locks_of(world, name) == [], "there is no lock any more", 400)
    world.cluster.wait_joined(name)


def test_one_barrier_parks_the_tables_of_all_statements_in_the_relay_log(world: World) -> None:
    name = "ahead"
    family = world.family(name, tables=TABLES)
    shards = family.create(60)
    with Writer(shards, seed=31) as writer:
        world.cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
        world.cluster.wait_replicating(name)
        world.cluster.hooks.hold("ddl.before")
        for number in range(2):
            _alter(_of_source(world, shards, number))
        world.cluster.hooks.release("ddl.before")
        _end(world, name)
        writer.stop()
    assert _parked_ahead(world, name) >= 2 * (TABLES - 2)
    world.judge(family)
    world.cluster.dmctl("stop-task", name)


@pytest.mark.parametrize("victim", ["worker", "tasks", "target"])
def test_lanes_on_both_sides_of_the_statements(world: World, victim: str) -> None:
    """One lane is held before rows that precede the statements, while another has passed them; then both are killed."""
    name, (source, _) = f"sides_{victim}", world.sources[0]
    family = world.family(name, tables=TABLES)
    shards = family.create(60)
    here, there = (_of_source(world, shards, number) for number in range(2))
    hooks = world.cluster.hooks
    world.cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
    world.cluster.wait_replicating(name)
    world.settle([name])
    hooks.hold("ddl.before")
    _alter(here)
    hooks.reached("ddl.before")
    hooks.hold("lane0.before_commit")
    hooks.release("ddl.before")
    # Nothing further comes: the last place that lanes reach without a commit of lane 0 is after the last statement.
    until(lambda: _parked_ahead(world, name) >= TABLES - 2, "tables are parked at following statements")
    hooks.reached("lane0.before_commit")
    apart = (
        f"SELECT COUNT(DISTINCT `segment`, `byte`) > 1 FROM dm_meta.lane_checkpoint WHERE task = '{name}' "
        f"AND source = '{source}'"
    )
    until(lambda: world.target.query(apart) == [(1,)], "another lane has passed statements")
    assert _ready(world, name, source) <= 2, "a table waits only once all lanes have committed its rows"
    VICTIMS[victim](world)
    hooks.release("lane0.before_commit")
    _alter(there)
    _end(world, name)
    world.judge(family)
    world.cluster.dmctl("stop-task", name)


def test_a_released_lock_keeps_its_tables_when_their_worker_restarts(world: World) -> None:
    """Until its lanes report, a new run does not know which tables they have left: it must not report them as not
    parked, for the lock would be closed without them."""
    name, (source, _), (other, _) = "restart_released", *world.sources
    family = world.family(name, tables=TABLES)
    shards = family.create(60)
    hooks = world.cluster.hooks
    world.cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
    world.cluster.wait_replicating(name)
    world.settle([name])
    hooks.hold("ddl.before")
    _alter(shards)
    hooks.reached("ddl.before")
    hooks.hold("lock.before_release")
    hooks.release("ddl.before")
    until(
        lambda: world.cluster.worker_of(source).pid in hooks.standing("lock.before_release"), "its tables are to resume"
    )
    assert _parked_ahead(world, name) >= TABLES - 2
    hooks.hold("lanes.starting")
    VICTIMS["worker"](world)
    hooks.release("lock.before_release")
    hooks.reached("lanes.starting")
    until(lambda: _ready(world, name, other) == 0, "the other source's tables resume")
    for _ in range(5):
        assert _ready(world, name, source) == TABLES
    hooks.release("lanes.starting")
    _end(world, name)
    world.judge(family)
    world.cluster.dmctl("stop-task", name)


def test_a_table_that_is_created_while_the_owner_is_about_to_run_the_statement(world: World) -> None:
    """The master has decided before it knew the table: the owner finds it in the records. The statement would replace
    the table's values."""
    name, change = "late_created", "DROP COLUMN v, ADD COLUMN v INT DEFAULT 5"
    family, hooks = world.family(name, tables=2), world.cluster.hooks
    (_, first), (source, second) = world.sources
    for server, tables in ((first, (1, 2)), (second, (1,))):
        server.execute(f"CREATE DATABASE {name}_01")
        for table in tables:
            server.execute(
                f"CREATE TABLE {name}_01.order_0{table} (id BIGINT PRIMARY KEY, v INT)",
                f"INSERT INTO {name}_01.order_0{table} VALUES (1, {table})",
            )
    world.cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
    world.cluster.wait_replicating(name)
    first.execute(*(f"ALTER TABLE {name}_01.order_0{table} {change}" for table in (1, 2)))
    until(lambda: _ready(world, name, world.sources[0][0]) == 2, "the first source's tables wait")
    hooks.hold("lock.executing")
    second.execute(f"ALTER TABLE {name}_01.order_01 {change}")
    hooks.reached("lock.executing")
    second.execute(
        f"CREATE TABLE {name}_01.order_02 (id BIGINT PRIMARY KEY, v INT DEFAULT 5)",
        f"INSERT INTO {name}_01.order_02 VALUES (1, 111)",
    )
    written = f"SELECT COUNT(*) FROM {name}.orders WHERE v = 111"
    until(lambda: world.target.query(written) == [(1,)], "the new table's row is at the target")
    hooks.release("lock.executing")

    def waits_for_it() -> Json | None:
        listed = locks_of(world, name) or []
        tables: list[Json] = listed[0]["tables"] if len(listed) == 1 else []
        missing = [(each["source"], each["table"]) for each in tables if each["standing"] == "missing"]
        return listed[0] if missing == [(source, "order_02")] and listed[0]["stage"] == "gathering" else None

    lock = until(waits_for_it, "the lock waits for the new table")
    world.cluster.dmctl("shard-ddl-lock", "unlock", str(lock["ID"]), "--force-remove")
    until(lambda: locks_of(world, name) == [], "the lock has come to its end")
    second.execute(f"INSERT INTO {name}_01.order_02 VALUES (2, 2)")
    world.settle([name])
    assert world.target.query(written) == [(1,)], "the statement has not run"
    world.cluster.dmctl("compare", name, "--repair", "--report", str(world.cluster.directory / "late.jsonl"))
    assert family.verdict().differences == 0
    world.cluster.dmctl("stop-task", name)
