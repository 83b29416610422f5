"""Tests a snapshot of MySQL without GTIDs, into both kinds of target, with parallel writes and binlog rotations."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.unit.contract import Finished, Outcome
from tests.integration.snapshot_rig import Rig, subtask_config
from tests.support.database import Database
from tests.support.hooks import Hooks
from tests.support.judge import PartitionIds, Shard, Target, compare
from tests.support.mysql import MySQL
from tests.support.pair import KINDS
from tests.support.wait import until
from tests.support.writer import ShardTable, Writer, create_tables, fill

pytestmark = pytest.mark.turns


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Database]:
    # Small files: chunks are read before and after a rotation.
    server = MySQL(tmp_path / "source", 101, ("--max-binlog-size=65536",), gtid=False)
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(params=KINDS)
def target(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    server = KINDS[request.param](tmp_path / "target", 102)
    try:
        yield server.start()
    finally:
        server.stop()


def test_history_and_its_tail_without_gtids(source: Database, target: Database, tmp_path: Path) -> None:
    shards = [ShardTable(source.connect, "shard_1", f"t_{number}") for number in (1, 2)]
    create_tables(shards)
    for shard in shards:
        fill(shard, 4000, seed=3)
    source.execute("ANALYZE TABLE shard_1.t_1, shard_1.t_2")
    config = subtask_config(target, threads=2, chunk_rows=400)
    config.routes.add(
        name="merge", schema_pattern="shard_*", table_pattern="t_*", target_schema="merged", target_table="t"
    )
    config.column_mappings.add(
        name="ids", schema_pattern="shard_*", table_pattern="t_*", source_column="id", target_column="id",
        expression="partition id", arguments=["1", "shard_", "t_"],
    )  # fmt: skip
    hooks = Hooks(tmp_path / "hooks")
    with Rig(source, target, tmp_path, config) as rig, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
        with Writer(shards, seed=5, threads=2, pause_seconds=0.002) as writer:
            unit = rig.unit()
            outcome: list[Outcome] = []
            run = threading.Thread(target=lambda: outcome.append(unit.run(StopSignal())))
            moments = ("snapshot.after_low", "snapshot.after_select")
            for moment in moments:
                hooks.hold(moment)
            run.start()
            for moment in moments:
                # There are changes between both watermarks and the SELECT, and the binlog continues in another file.
                hooks.reached(moment)
                before, changes = source.binlog_end()[0], writer.counts.changes
                until(lambda before=before: source.binlog_end()[0] > before, "the binlog goes on to another file")
                until(lambda changes=changes: writer.counts.changes > changes + 100, "there is load")
                hooks.release(moment)
            run.join()
            assert outcome == [Finished()]
            assert unit.status().finished_chunks > 15
            during = writer.counts.changes
            until(lambda: writer.counts.changes > during + 50, "more changes after the snapshot")
        assert rig.follow() > 50
    judged = [
        Shard(source.connect, shard.schema, shard.table, PartitionIds(1, 1, number))
        for number, shard in enumerate(shards, 1)
    ]
    verdict = compare(judged, Target(target.connect, "merged", "t"))
    assert verdict.differences == 0, verdict
