"""Tests `binlog skip` of a DROP COLUMN (optimistic): a new column of that name does not get the former values back."""

from __future__ import annotations

from pathlib import Path

from shardmerge.proto import config_pb2
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from tests.integration.lane_rig import LaneRig, has_joined
from tests.integration.local_locks import LocalLocks
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database
from tests.support.wait import until

__all__ = ["servers", "source", "target"]


def test_a_column_that_is_added_again_waits(source: Database, target: Database, tmp_path: Path) -> None:
    make_tables(
        source,
        "CREATE TABLE a (id INT PRIMARY KEY, c INT DEFAULT 7)",
        "CREATE TABLE b LIKE a",
        "INSERT INTO a VALUES (1, 99)",
        "INSERT INTO b VALUES (2, 99)",
    )
    config = subtask_config(target)
    config.shard_mode = config_pb2.SHARD_MODE_OPTIMISTIC
    config.routes.add(name="r", schema_pattern="shard", table_pattern="*", target_schema="shard", target_table="t")
    with LaneRig(source, target, tmp_path, config) as rig:
        locks = rig.locks = LocalLocks()
        run = rig.begin(config)
        until(lambda: locks.record.targets, "the history is copied, and the tables are published")
        run.stop()
        place = rig.position()
        source.execute("ALTER TABLE shard.a DROP COLUMN c", "INSERT INTO shard.a VALUES (10)")
        skip = StoredOverride(kind=OverrideKind.SKIP, file=place.file, pos=place.pos)
        run = rig.begin(config, ops=(skip,))
        until(lambda: has_joined(run, target), "the row after the statement is applied")
        source.execute("ALTER TABLE shard.a ADD COLUMN c INT DEFAULT 7", "INSERT INTO shard.b VALUES (20, 20)")
        until(lambda: run.ended or locks.parked() == {"a"}, "a is parked", 60)
        assert not run.ended, run.join()
        [reason] = [each.parked.reason for one in locks.record.targets for each in one.tables if each.table == "a"]
        assert "dropped column `c`" in reason
        until(lambda: target.query("SELECT c FROM shard.t WHERE id = 20") == [(20,)], "b continues")
        run.stop()
