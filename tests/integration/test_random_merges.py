"""Tests merges of 2 x 4 tables by real daemons: random writes, random DDL and random kills during the copy and after
it; the target is the merge.

Each seed is one merge; SHARDMERGE_RANDOM_MERGES sets how many there are for each shard mode.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.support.daemon import Daemon
from tests.support.kills import locks_of
from tests.support.wait import until
from tests.support.world import World
from tests.support.writer import ShardTable, Writer, beside_a_writer

SEEDS = int(os.environ.get("SHARDMERGE_RANDOM_MERGES", "1"))
ROWS = 300


@dataclass(slots=True)
class _Migration:
    """The ALTERs that every shard table gets, in this order, and how many each has had."""

    statements: tuple[tuple[str, ...], ...]
    done: dict[ShardTable, int]

    def advance(self, shard: ShardTable) -> None:
        """Execute the next ALTER of ``shard``, and the changes of rows that belong to it; nothing after the last."""
        at = self.done.get(shard, 0)
        if at < len(self.statements):
            beside_a_writer(shard, *(text.format(shard.name) for text in self.statements[at]))
            self.done[shard] = at + 1

    def is_done(self, shard: ShardTable) -> bool:
        return self.done.get(shard, 0) == len(self.statements)


def _migration(rng: random.Random) -> _Migration:
    added: list[str] = []
    statements: list[tuple[str, ...]] = []
    for number in range(rng.randrange(1, 5)):
        match rng.choice(["add", "add", "drop", "modify", "change", "index"]):
            case "drop" if added:
                statements.append((f"ALTER TABLE {{0}} DROP COLUMN {added.pop(rng.randrange(len(added)))}",))
            case "change" if added:
                column = added.pop(rng.randrange(len(added)))
                added.append(f"c{number}")
                statements.append(
                    (
                        f"ALTER TABLE {{0}} CHANGE {column} c{number} BIGINT NULL",
                        f"UPDATE {{0}} SET c{number} = id % 11 WHERE id % 4 = 1",
                    )
                )
            case "modify":
                statements.append((f"ALTER TABLE {{0}} MODIFY note VARCHAR({200 + 10 * number}) NULL",))
            case "index":
                statements.append((f"ALTER TABLE {{0}} ADD INDEX i{number} (customer, amount)",))
            case _:
                added.append(f"c{number}")
                statements.append(
                    (
                        f"ALTER TABLE {{0}} ADD COLUMN c{number} INT NULL",
                        f"UPDATE {{0}} SET c{number} = id % 5 WHERE id % 3 = 0",
                    )
                )
    return _Migration(tuple(statements), {})


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_a_random_merge(world: World, mode: str, seed: int) -> None:
    rng = random.Random(f"{mode}/{seed}")
    name = f"random_{mode}_{seed}"
    family = world.family(name, tables=4)
    shards = family.create(ROWS)
    migration = _migration(rng)
    limits = (
        f"snapshot: {{chunk-rows: {rng.choice([40, 100, 1000])}, rows-per-second: {rng.choice([200, 600, 3000])}}}\n"
    )
    log: list[str] = [f"{migration.statements}", limits]
    with Writer(shards, seed=seed) as writer:
        world.cluster.start_task(family.task(extra=f"shard-mode: {mode}\n{limits}"))
        # A source whose structures are not recorded yet begins with the structures that its tables have later.
        world.cluster.wait_subtasks(name, lambda sub: sub.unit in ("Load", "Sync"), "has recorded its tables")
        for _ in range(rng.randrange(6, 20)):
            match rng.choice(["alter", "alter", "alter", "kill", "write", "write"]):
                case "kill":
                    log.append(f"kill {_kill_one(rng, world.cluster.daemons)}")
                case "alter":
                    shard = rng.choice(shards)
                    log.append(f"alter {shard}")
                    migration.advance(shard)
                case _:
                    writer.go_on(rng.choice([5, 40]))
        _finish(migration, rng, shards)
        writer.stop()
    print("\n".join(log))
    until(lambda: locks_of(world, name) == [], "there is no lock any more", 300)
    world.cluster.wait_joined(name)
    world.judge(family)
    world.cluster.dmctl("stop-task", name)
    world.target.execute(f"DROP DATABASE {name}")


def _kill_one(rng: random.Random, daemons: Sequence[Daemon]) -> str:
    """Kill -9 a daemon with all of its processes and start it again."""
    daemon = rng.choice(daemons)
    daemon.kill_all()
    daemon.start(wait=rng.random() < 0.5)
    return daemon.name


def _finish(migration: _Migration, rng: random.Random, shards: Sequence[ShardTable]) -> None:
    """Execute the rest of the migration, the shard tables in a random order."""
    left: list[ShardTable] = [shard for shard in shards if not migration.is_done(shard)]
    while left:
        migration.advance(rng.choice(left))
        left = [shard for shard in left if not migration.is_done(shard)]
