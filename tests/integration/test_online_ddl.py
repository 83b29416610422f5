"""Tests that pt-online-schema-change alters every shard table while rows change, and the merged table follows."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.support.database import Database
from tests.support.kills import locks_of
from tests.support.wait import until
from tests.support.world import Family, World
from tests.support.writer import ShardTable, Writer, beside_a_writer

_ALTER = "ADD extra INT NOT NULL DEFAULT 7 AFTER amount, MODIFY note VARCHAR(200) NULL, ADD INDEX by_state (state)"
_COLUMNS = (
    "SELECT column_name, column_type, is_nullable, column_default FROM information_schema.columns "
    "WHERE table_schema = '{0}' AND table_name = '{1}' ORDER BY ordinal_position"
)


@pytest.mark.parametrize("shard_mode", ["pessimistic", "optimistic"])
def test_every_shard_table_is_altered_online(world: World, shard_mode: str) -> None:
    family = Family(f"pt{shard_mode[:3]}", world.sources, world.target)
    shards = family.create(2_000)
    world.cluster.start_task(family.task(extra=f"shard-mode: {shard_mode}\n"))
    world.cluster.wait_replicating(family.name)
    with Writer(shards) as writer:
        for (_, server), shard in _places(world, shards):
            _change_online(server, shard, _ALTER)
            beside_a_writer(shard, f"UPDATE {shard.name} SET extra = 8 WHERE id % 3 = 0")
            writer.go_on()
        counts = writer.stop()
    assert counts.changes > 0
    one = world.sources[0][1]
    own = one.query(_COLUMNS.format(shards[0].schema, shards[0].table))
    # No lock is left only at the end: there is also no lock before the last statement arrives.
    merged = _COLUMNS.format(family.name, "orders")
    until(lambda: world.target.query(merged) == own, f"the merged table has the columns {own}")
    until(lambda: locks_of(world, family.name) == [], "no lock is left")
    world.cluster.wait_joined(family.name)
    world.cluster.wait_caught_up(family.name, dict(world.sources))
    verdict = family.verdict()
    assert verdict.differences == 0 and verdict.rows > 4_000, verdict
    assert world.target.query("SELECT * FROM dm_meta.online_ddl") == []
    assert world.target.query(f"SHOW TABLES FROM {family.name}") == [("orders",)]
    world.cluster.dmctl("stop-task", family.name)


def _places(world: World, shards: list[ShardTable]) -> list[tuple[tuple[str, Database], ShardTable]]:
    half = len(shards) // len(world.sources)
    return [(world.sources[number // half], shard) for number, shard in enumerate(shards)]


def _change_online(server: Database, shard: ShardTable, alter: str) -> None:
    program = shutil.which("pt-online-schema-change")
    assert program is not None, "percona-toolkit has it"
    place = f"h={server.host},P={server.port},u={server.user},D={shard.schema},t={shard.table}"
    options = ["--alter", alter, "--execute", "--chunk-size", "300", "--charset", "utf8mb4", "--no-version-check"]
    # By default the tool waits one second for row locks, ten times; a writer that is not scheduled holds them for
    # longer.
    options += ["--tries", "copy_rows:300:1"]
    done = subprocess.run(
        [program, *options, place],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
