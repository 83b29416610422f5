"""Kills processes while the target takes the schema join of its shard tables at once (I6, I9)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.kills import Kills, kill_at_each, locks_of
from tests.support.wait import until
from tests.support.world import World
from tests.support.writer import ShardTable, Writer, beside_a_writer

JOINED = ("ddl.before", "join.held", "ddl.begun", "ddl.run", "ddl.before_passing", "ddl.passing", "ddl.passed")
"""The moments of a statement that changes the target."""


def kill_while_joined(world: World, label: str, adding: Kills, dropping: Kills) -> None:
    """Kill at moments of the first ADD COLUMN of a column, and of its last DROP COLUMN, under load."""
    name = f"optimistic_{label}"
    family = world.family(name, tables=2)
    shards = family.create(300)
    own = world.sources[0][1].connect
    here = [shard for shard in shards if shard.connect == own]
    there = [shard for shard in shards if shard.connect != own]
    with Writer(shards, seed=31) as writer:
        world.cluster.start_task(family.task(extra="shard-mode: optimistic\n"))
        world.cluster.wait_replicating(name)
        _give(world, adding, here, "ADD COLUMN added INT NOT NULL DEFAULT 7")
        _give(world, {}, there, "ADD COLUMN added INT NOT NULL DEFAULT 7")
        # The last kill may come before the statement is recorded: until it is, the other source's tables are the only
        # ones that have the column, and their DROP would remove it.
        added = f"SELECT COUNT(*) FROM dm_meta.table_structure WHERE task = '{name}' AND structure LIKE '%added%'"
        until(lambda: world.target.query(added) == [(len(shards),)], "all tables are recorded with the column", 300)
        writer.go_on()
        _give(world, {}, there, "DROP COLUMN added")
        # The target's column is dropped with the last one: that of the source at which the kills are arranged.
        dropped = f"SELECT COUNT(*) FROM dm_meta.dropped_column WHERE task = '{name}'"
        until(lambda: world.target.query(dropped) == [(len(there),)], "the other source's tables have dropped it", 300)
        _give(world, dropping, here, "DROP COLUMN added")
        writer.go_on()
        writer.stop()
    world.judge(family)
    until(lambda: locks_of(world, name) == [], "there is no lock")
    columns = world.target.query(
        f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{family.name}' "
        "AND column_name = 'added'"
    )
    assert columns == [], "the last shard table has dropped it"
    for table in ("dropped_column", "statement_begun"):
        assert world.target.query(f"SELECT * FROM dm_meta.{table} WHERE task = '{name}'") == []
    world.cluster.dmctl("stop-task", name)


def _give(world: World, kills: Kills, shards: Sequence[ShardTable], clause: str) -> None:
    if kills:
        world.cluster.hooks.hold(next(iter(kills)))
    for shard in shards:
        texts = [f"ALTER TABLE {shard.name} {clause}"]
        if clause.startswith("ADD"):
            texts.append(f"UPDATE {shard.name} SET added = id % 5 WHERE id % 2 = 0")
        beside_a_writer(shard, *texts)
    if kills:
        kill_at_each(world, kills)


ENDED = (
    "lock.held",
    "lock.joined",
    "lock.before_release",
    "lock.released",
    "replay.beginning",
    "replay.begun",
    "join.near",
    "join.adopted",
)
"""The moments of a parked table whose further statements end its wait."""


def kill_while_renamed_back(world: World, kills: Kills, label: str = "renamed") -> None:
    """Kill while a shard table continues that has renamed a column and renamed it back."""
    _go_back(
        world,
        label,
        kills,
        (
            "ALTER TABLE {0} CHANGE note memo VARCHAR(120) NULL",
            "UPDATE {0} SET memo = CONCAT(id, ' between') WHERE id % 3 = 0",
            "DELETE FROM {0} WHERE id % 7 = 0",
        ),
        ("ALTER TABLE {0} CHANGE memo note VARCHAR(120) NULL", "UPDATE {0} SET note = 'x' WHERE id % 5 = 0"),
    )


def kill_while_numbers_were_texts(world: World, kills: Kills) -> None:
    """Kill while a shard table continues whose numbers were texts for a while."""
    _go_back(
        world,
        "texts",
        kills,
        (
            "ALTER TABLE {0} MODIFY amount VARCHAR(40) NOT NULL",
            "UPDATE {0} SET amount = CONCAT('-00', id, '.5') WHERE id % 3 = 1",
        ),
        ("ALTER TABLE {0} MODIFY amount DECIMAL(12,2) NOT NULL", "UPDATE {0} SET amount = 7 WHERE id < 9"),
    )


def _go_back(world: World, label: str, kills: Kills, there: Sequence[str], back: Sequence[str]) -> None:
    """Rows are written between the statements and after them."""
    name = f"back_{label}"
    family = world.family(name, tables=2)
    shards = family.create(300)
    own = world.sources[0][1].connect
    shard = next(shard for shard in shards if shard.connect == own)
    world.cluster.start_task(family.task(extra="shard-mode: optimistic\n"))
    world.cluster.wait_replicating(name)
    beside_a_writer(shard, *(text.format(shard.name) for text in there))
    until(lambda: locks_of(world, name), "the shard table waits", 300)
    world.cluster.hooks.hold(next(iter(kills)))
    beside_a_writer(shard, *(text.format(shard.name) for text in back))
    kill_at_each(world, kills)
    until(lambda: locks_of(world, name) == [], "there is no lock any more", 400)
    world.cluster.wait_joined(name)
    world.judge(family)
    assert world.target.query(f"SELECT * FROM dm_meta.statement_begun WHERE task = '{name}'") == []
    world.cluster.dmctl("stop-task", name)
