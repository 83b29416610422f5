"""Tests dmctl's commands for DDL: recorded structures and locks."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from tests.integration.dmctl_rig import dmctl, master, no_error, task_file
from tests.support.canned_master import CannedMaster

pytestmark = pytest.mark.turns

__all__ = ["master", "task_file"]


def test_recorded_structures(master: CannedMaster, task_file: Path, tmp_path: Path) -> None:
    shown = pb.SourceSchema(
        result=True, source="mysql-01", worker="w1", msg="CREATE TABLE `d`.`a` (x)", target="`d`.`t`"
    )
    master.answer("OperateSchema", pb.OperateSchemaResponse(result=True, sources=[shown]))
    file = tmp_path / "a.sql"
    file.write_text("CREATE TABLE a (x INT)")
    by_file = {"task": "merge", "database": "d", "table": "a", "sources": ["mysql-01"]}
    op = worker_pb2.SchemaOp
    for arguments, wanted in (
        (("binlog-schema", "list", str(task_file), "d", "a"), {"op": op.SCHEMA_OP_LIST}),
        (("binlog-schema", "delete", "merge", "d", "a"), {"op": op.SCHEMA_OP_DELETE}),
        (("binlog-schema", "update", "merge", "d", "a", "--from-source"), {"from_source": True}),
        (("binlog-schema", "update", "merge", "d", "a", "--from-target", "--sync"), {"from_target": True}),
        (("binlog-schema", "update", "merge", "d", "a", str(file), "--flush"), {"schema": file.read_text()}),
        (("operate-schema", "get", "merge", "-d", "d", "-t", "a"), {"op": op.SCHEMA_OP_LIST}),
        (("operate-schema", "remove", str(task_file), "-d", "d", "-t", "a"), {"op": op.SCHEMA_OP_DELETE}),
        (
            ("operate-schema", "set", "merge", "-d", "d", "-t", "a", str(file), "--flush", "--sync"),
            {"schema": file.read_text()},
        ),
    ):
        ran = dmctl(*arguments, "-s", "mysql-01", address=master.address)
        no_error(ran)
        assert ran.json["sources"][0]["msg"] == shown.msg
        request = pb.OperateSchemaRequest(**{"op": op.SCHEMA_OP_UPDATE, **by_file, **wanted})  # type: ignore[arg-type]
        assert master.requests[-1] == request
    count = len(master.requests)
    for arguments in (
        ("binlog-schema", "update", "merge", "d", "a"),
        ("binlog-schema", "update", "merge", "d", "a", str(file), "--from-target"),
        ("binlog-schema", "update", "merge", "d", "a", "--from-source", "--from-target"),
        ("binlog-schema", "list", "merge", "d"),
        ("operate-schema", "set", "merge", "-d", "d", "-t", "a"),
        ("operate-schema", "get", "merge", "-d", "d", "-t", "a", str(file)),
        ("operate-schema", "get", "merge", "-d", "d"),
    ):
        ran = dmctl(*arguments, address=master.address)
        assert ran.code == 2
        assert ran.error.startswith("error: [80001 "), ran.err
    missing = dmctl("binlog-schema", "update", "merge", "d", "a", "none.sql", address=master.address)
    assert missing.error.startswith(f"error: [{errors.ctl.FILE_NOT_FOUND.code} ")
    assert len(master.requests) == count


LOCK = pb.DDLLock(
    id="merge-`shop`.`orders`",
    task="merge",
    mode="pessimistic",
    owner="mysql-01",
    ddls=["ALTER TABLE `shop`.`orders` ADD COLUMN c INT"],
    synced=["mysql-01"],
    unsynced=["mysql-02"],
    stage="gathering",
    waiting_for="shard table(s) mysql-02 `s`.`o` to reach the statement",
    tables=[pb.DDLLockTable(source="mysql-02", schema="s", table="o", standing="missing")],
)


@pytest.mark.parametrize("command", ["shard-ddl-lock", "show-ddl-locks"])
def test_locks_are_listed_with_dm_names(command: str, master: CannedMaster, task_file: Path) -> None:
    master.answer("ShowDDLLocks", pb.ShowDDLLocksResponse(result=True, locks=[LOCK]))
    ran = dmctl(command, address=master.address)
    no_error(ran)
    [lock] = ran.json["locks"]
    dm = {name: lock[name] for name in ("ID", "task", "mode", "owner", "DDLs", "synced", "unsynced")}
    assert dm == {
        "ID": "merge-`shop`.`orders`",
        "task": "merge",
        "mode": "pessimistic",
        "owner": "mysql-01",
        "DDLs": ["ALTER TABLE `shop`.`orders` ADD COLUMN c INT"],
        "synced": ["mysql-01"],
        "unsynced": ["mysql-02"],
    }
    assert (lock["tables"][0]["standing"], lock["conflict"]) == ("missing", None)
    no_error(dmctl(command, str(task_file), "-s", "mysql-02", address=master.address))
    assert master.requests == [
        pb.ShowDDLLocksRequest(),
        pb.ShowDDLLocksRequest(task="merge", sources=["mysql-02"]),
    ]


def test_a_lock_is_unlocked_in_both_spellings(master: CannedMaster) -> None:
    master.answer("UnlockDDLLock", pb.UnlockDDLLockResponse(result=True, msg="source mysql-02 runs the statement"))
    for command in (("shard-ddl-lock", "unlock"), ("unlock-ddl-lock",)):
        ran = dmctl(*command, LOCK.id, "-o", "mysql-02", address=master.address)
        no_error(ran)
        assert ran.json == {"result": True, "msg": "source mysql-02 runs the statement"}
        no_error(dmctl(*command, LOCK.id, "--force-remove", address=master.address))
        flags = ("-a", "exec", "-d", "s", "-t", "o", "-s", "mysql-01")
        no_error(dmctl(*command, LOCK.id, *flags, address=master.address))
        assert master.requests[-3:] == [
            pb.UnlockDDLLockRequest(id=LOCK.id, replace_owner="mysql-02"),
            pb.UnlockDDLLockRequest(id=LOCK.id, force_remove=True),
            pb.UnlockDDLLockRequest(id=LOCK.id, action="exec", database="s", table="o", sources=["mysql-01"]),
        ]
    assert len(master.requests) == 6
    assert "show-ddl-locks" not in dmctl("--help").out
    assert "dmctl shard-ddl-lock unlock 'merge-`shop`.`orders`'" in dmctl("shard-ddl-lock", "unlock", "--help").out
