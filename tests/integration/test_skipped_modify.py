"""Tests `binlog skip` of a MODIFY at which a shard table is parked: the target keeps a type that is too small."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from tests.integration.lane_rig import LaneRig, has_joined
from tests.integration.local_locks import LocalLocks
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database
from tests.support.wait import until

__all__ = ["servers", "source", "target"]


@pytest.mark.parametrize(
    ("mode", "alter"),
    [
        (config_pb2.SHARD_MODE_PESSIMISTIC, "MODIFY v BIGINT"),
        (config_pb2.SHARD_MODE_OPTIMISTIC, "CHANGE v v BIGINT NOT NULL, ADD UNIQUE (v)"),
    ],
    ids=["pessimistic", "optimistic"],
)
def test_the_table_waits_for_the_target(
    source: Database, target: Database, tmp_path: Path, mode: config_pb2.ShardMode, alter: str
) -> None:
    """Only this table waits, and it continues by itself when the target's column has the type."""
    make_tables(
        source,
        "CREATE TABLE a (id INT PRIMARY KEY, v INT NOT NULL)",
        "CREATE TABLE b LIKE a",
        "INSERT INTO a VALUES (1, 1)",
        "INSERT INTO b VALUES (2, 2)",
    )
    config = subtask_config(target)
    config.shard_mode = mode
    config.routes.add(name="r", schema_pattern="shard", table_pattern="*", target_schema="shard", target_table="t")
    with LaneRig(source, target, tmp_path, config) as rig:
        locks = rig.locks = LocalLocks()
        run = rig.begin(config)
        until(lambda: locks.record.targets, "the history is copied, and the tables are published")
        place = rig.position()
        source.execute(f"ALTER TABLE shard.a {alter}", "INSERT INTO shard.a VALUES (10, 5000000000)")
        until(lambda: locks.parked() == {"a"}, "a is parked")
        run.stop()
        skip = StoredOverride(kind=OverrideKind.SKIP, file=place.file, pos=place.pos)
        run = rig.begin(config, ops=(skip,))
        source.execute("INSERT INTO shard.b VALUES (20, 20)")

        def reason() -> str:
            assert not run.ended, run.join()
            return next((t.parked.reason for one in locks.record.targets for t in one.tables if t.table == "a"), "")

        until(lambda: errors.replicate.TARGET_TABLE_DIFFERS.name in reason(), "the reason is published")
        until(lambda: target.query("SELECT v FROM shard.t WHERE id = 20") == [(20,)], "b continues")
        assert locks.parked() == {"a"}
        target.execute("ALTER TABLE shard.t MODIFY v BIGINT")
        until(lambda: reason() == "" and has_joined(run, target), "a has continued")
        assert target.query("SELECT id, v FROM shard.t ORDER BY id") == [(1, 1), (2, 2), (10, 5000000000), (20, 20)]
        run.stop()


def test_the_statement_runs_for_the_other_table(source: Database, target: Database, tmp_path: Path) -> None:
    """A skip is for its table alone. The other table waits for the statement, which gives the target the type."""
    make_tables(source, "CREATE TABLE a (id INT PRIMARY KEY, v INT)", "CREATE TABLE b LIKE a")
    config = subtask_config(target)
    config.shard_mode = config_pb2.SHARD_MODE_PESSIMISTIC
    config.routes.add(name="r", schema_pattern="shard", table_pattern="*", target_schema="shard", target_table="t")
    with LaneRig(source, target, tmp_path, config) as rig:
        locks = rig.locks = LocalLocks()
        run = rig.begin(config)
        until(lambda: locks.record.targets, "the tables are published")
        place = rig.position()
        source.execute("ALTER TABLE shard.a MODIFY v BIGINT", "INSERT INTO shard.a VALUES (10, 5000000000)")
        until(lambda: locks.parked() == {"a"}, "a is parked")
        run.stop()
        skip = StoredOverride(kind=OverrideKind.SKIP, file=place.file, pos=place.pos)
        run = rig.begin(config, ops=(skip,))
        assert target.query("SELECT * FROM shard.t") == [], "no table has continued"
        source.execute("ALTER TABLE shard.b MODIFY v BIGINT", "INSERT INTO shard.b VALUES (20, 20)")
        rows = [(10, 5000000000), (20, 20)]
        until(lambda: run.ended or target.query("SELECT id, v FROM shard.t ORDER BY id") == rows, "both have continued")
        assert not run.ended, run.join()
        until(lambda: not locks.parked() and has_joined(run, target), "both have joined")
        [(column,)] = target.query(
            "SELECT COLUMN_TYPE FROM information_schema.COLUMNS WHERE (TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME) = "
            "('shard', 't', 'v')"
        )
        assert str(column).startswith("bigint")
        run.stop()
