"""Tests the pre-check of the secondary indexes of existing, empty target tables."""

from __future__ import annotations

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.verify.precheck import check_subtask
from tests.integration.check_rig import failures, fresh, server, source_of, subtask_of, warnings
from tests.support.database import Database

__all__ = ["fresh", "server"]

CREATED = config.LoadConfig(defer_indexes=True)
EMPTY = config.LoadConfig(defer_indexes=True, defer_existing=True)
NEVER = config.LoadConfig()


def check(server: Database, load: config.LoadConfig, *, user: str = "root") -> list[pb.CheckResult]:
    subtask = subtask_of(server) if user == "root" else subtask_of(server, user, "secret")
    subtask.load.CopyFrom(load)
    return [one for one in check_subtask(source_of(server), subtask) if one.name == "target_indexes"]


def fill(server: Database) -> None:
    server.execute(
        "USE shard_1",
        server.spelt("INSERT INTO t_1 SELECT seq, seq FROM seq_1_to_30000"),
        "ANALYZE TABLE t_1",
        "CREATE DATABASE merged",
        "CREATE TABLE merged.t (id bigint PRIMARY KEY, v int, UNIQUE KEY u (id, v), KEY k_v (v), KEY `k,2` (v, id))",
    )


def test_existing_empty_tables_are_named(fresh: Database) -> None:
    fill(fresh)
    [found] = warnings(check(fresh, CREATED)).values()
    assert found.code == 12110
    assert "merged.t is loaded with its secondary indexes k_v, k,2: " in found.error_msg
    assert "defer-indexes: empty" in found.instruction
    [passes] = check(fresh, EMPTY)
    assert passes.state == pb.CHECK_STATE_PASS
    assert passes.desc.endswith("dropped before the load and added after it: merged.t: k_v, k,2")
    assert [one.state for one in check(fresh, NEVER)] == [pb.CHECK_STATE_PASS]


def test_tables_with_rows_and_small_loads_pass(fresh: Database) -> None:
    fill(fresh)
    fresh.execute("INSERT INTO merged.t VALUES (1, 1)")
    assert [one.state for one in check(fresh, CREATED)] == [pb.CHECK_STATE_PASS]
    fresh.execute("DELETE FROM merged.t", "DELETE FROM shard_1.t_1 WHERE id > 10", "ANALYZE TABLE shard_1.t_1")
    assert [one.state for one in check(fresh, CREATED)] == [pb.CHECK_STATE_PASS]


def test_the_privilege_is_named_and_its_grant_suffices(fresh: Database) -> None:
    fill(fresh)
    fresh.execute("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO writer@'%'")
    [found] = failures(check(fresh, EMPTY, user="writer")).values()
    assert found.code == 12111
    assert "merged.t: user writer@% lacks ALTER, INDEX" in found.error_msg
    assert warnings(check(fresh, CREATED, user="writer")).keys() == {"target_indexes"}
    fresh.execute(found.instruction.split("\n")[0])
    assert [one.state for one in check(fresh, EMPTY, user="writer")] == [pb.CHECK_STATE_PASS]
