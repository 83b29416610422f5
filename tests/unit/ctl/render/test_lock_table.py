"""The locks of sharding DDLs as tables."""

from __future__ import annotations

from shardmerge.ctl.render import lock_table
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.rpc.coded_errors import error_to_proto
from tests.unit.ctl.render.drawing import draw


def _lock(**fields: object) -> pb.DDLLock:
    lock = pb.DDLLock(
        id="merge-`shop`.`orders`", task="merge", owner="s1", ddls=["ALTER TABLE t ADD COLUMN c INT"], synced=["s1"],
        unsynced=["s2", "s3"], stage="gathering", since="2026-01-02T03:04:05Z", seconds=125.0,
        waiting_for="all have come",
        tables=[
            pb.DDLLockTable(source="s1", schema="d", table="a", standing="ready", since="x", seconds=90.0,
                            position="(b.1, 4)", ddl="ALTER A"),
            pb.DDLLockTable(source="s1", schema="d", table="b", standing="passed"),
            pb.DDLLockTable(source="s2", schema="d", table="[bold]c", standing="missing", since="x", seconds=3700.0),
            pb.DDLLockTable(source="s3", standing="unknown"),
        ],
    )  # fmt: skip
    lock.MergeFrom(pb.DDLLock(**fields))  # type: ignore[arg-type]
    return lock


def test_a_lock_and_how_its_tables_stand() -> None:
    text = draw(lock_table.locks(pb.ShowDDLLocksResponse(result=True, locks=[_lock()])), width=200)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "merge-`shop`.`orders` s1 gathering 2m 05s s1 s2, s3 ALTER TABLE t ADD COLUMN c INT" in lines
    assert "merge-`shop`.`orders` waits until all have come" in lines
    assert "s1 d.a ready 1m 30s (b.1, 4) ALTER A" in lines
    assert "s1 d.b passed – – –" in lines
    assert any(line.startswith("s2 d.[bold]c missing 1h 01m") for line in lines)
    assert "s3 has not reported unknown – – –" in lines
    assert "what to do" not in text


def test_a_conflict_names_both_statements_and_the_ways_out() -> None:
    error = errors.ddl.LOCK_CONFLICT(
        task="merge",
        lock="L",
        tables="s2 `d`.`c`",
        source="s2",
        position="p",
        other="ALTER B",
        owner="s1",
        statement="ALTER A",
    )
    lock = _lock(conflict=error_to_proto(error), forced=True)
    text = " ".join(draw(lock_table.locks(pb.ShowDDLLocksResponse(locks=[lock])), width=200).split())
    assert "gathering, forced" in text
    statements, ways_out = ("ALTER A", "ALTER B"), ("what to do:", "unlock 'L'", "stop-task merge -s s2")
    for part in ("[50101 ddl-lock-conflict]", *statements, *ways_out):
        assert part in text


def test_no_lock_and_what_was_decided() -> None:
    assert "no DDL lock exists" in draw(lock_table.locks(pb.ShowDDLLocksResponse(msg="no DDL lock exists")))
    assert "source s1 runs it" in draw(lock_table.unlocked(pb.UnlockDDLLockResponse(msg="source s1 runs it")))
