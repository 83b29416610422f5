"""Pieces of work: each is done once, counted once, and its rows are named up to the limit."""

from __future__ import annotations

from shardmerge.proto import compare_pb2 as pb
from shardmerge.proto import errors, relay_pb2
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.proto.rpc.limits import WORKER
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.verify.compare.compared_relations import RelationShard
from shardmerge.worker.verify.compare.compared_tables import ComparedTable, compared_table
from shardmerge.worker.verify.compare.judge import Missing
from shardmerge.worker.verify.compare.keys import RowKey
from shardmerge.worker.verify.compare.messages import fill_report
from shardmerge.worker.verify.compare.work_queue import Work, WorkQueue
from tests.unit.worker.target.tables.test_row_ownership import TARGET, shard


def table() -> ComparedTable:
    plan = shard(0, None)
    found = compared_table(plan, TARGET, [plan], strays=True)
    assert isinstance(found, ComparedTable)
    return found


def desk(most_rows: int = 10) -> WorkQueue:
    return WorkQueue([table()], most_rows, StopSignal())


def work(number: int) -> pb.CompareWork:
    return pb.CompareWork(kind=Work.KIND_RANGE, number=number)


def done(what: pb.CompareWork, index: int, **counts: int) -> pb.WorkReport:
    rows = [pb.RowDifference(kind=pb.RowDifference.KIND_MISSING)] * counts.get("missing", 0)
    return pb.WorkReport(
        who=relay_pb2.TaskIdentity(index=index),
        work=what,
        differences=rows,
        **counts,  # pyright: ignore[reportArgumentType]
    )


def test_a_task_that_began_again_gets_its_piece_again() -> None:
    made = desk()
    made.put(work(0))
    made.put(work(1))
    assert made.take(0) == work(0)
    assert made.take(0) == work(0)
    assert made.take(1) == work(1)
    assert not made.report(done(work(0), 0, rows=5))
    assert not made.report(done(work(0), 0, rows=5))  # said twice: counted once
    made.complete()
    assert made.take(0).kind == Work.KIND_FINISHED
    assert made.take(1) == work(1)
    [table] = made.tables()
    assert (table.chunks, table.rows) == (1, 5)


def test_rows_beyond_the_limit_are_counted() -> None:
    made = desk(most_rows=3)
    for number in range(2):
        made.put(work(number))
        made.take(0)
        made.report(done(work(number), 0, missing=2))
    assert len(made.rows()) == 3
    assert made.rows() == []
    [table] = made.tables()
    assert (table.missing, table.unnamed) == (4, 1)
    assert made.progress().differences == 4


def test_a_failure_ends_everybody() -> None:
    made = desk()
    made.put(work(0))
    error = errors.compare.STREAM_ENDED(task="t", source="s1")
    assert made.report(pb.WorkReport(failed=error_to_proto(error)))
    assert made.take(1).kind == Work.KIND_STOP
    assert not made.put(work(1))
    assert made.failure is not None
    assert made.failure.spec is errors.compare.STREAM_ENDED


def test_a_task_that_only_reports_it_is_alive_keeps_its_piece() -> None:
    made = desk()
    made.put(work(0))
    made.take(0)
    assert not made.report(pb.WorkReport(who=relay_pb2.TaskIdentity(index=0), alive=True))
    assert made.take(0) == work(0)
    made.stop.set()
    assert made.report(pb.WorkReport(who=relay_pb2.TaskIdentity(index=0), alive=True))


def test_a_report_with_long_keys_counts_all_rows_and_fits_into_a_message() -> None:
    keys = [RowKey((b"'%03d" % at + b"k" * (1 << 18) + b"'",), ()) for at in range(200)]
    report = pb.WorkReport()
    fill_report(report, [Missing(key) for key in keys[:100]], keys[100:], table(), None, 10_000)
    assert (report.missing, report.unjudged) == (100, 100)
    assert len(report.differences) > 10
    assert report.ByteSize() < WORKER.of("/shardmerge.v1.CompareDesk/ReportWork").message_bytes


def test_orphans_are_counted_for_their_shard_table_and_reference() -> None:
    shard_tables = [RelationShard(text, table(), table().plan, TARGET, "") for text in ("c.a to p.id", "c.b to p.id")]
    made = WorkQueue(shard_tables, 1, StopSignal())
    made.put(piece := pb.CompareWork(kind=Work.KIND_REFERENCE))
    assert made.take(0) == piece
    name = made.tables()[0].source_table
    rows = [
        pb.RowDifference(kind=pb.RowDifference.KIND_ORPHAN, source_table=name, reference=text)
        for text in ("c.a to p.id", "c.b to p.id", "c.b to p.id")
    ]
    counts = [pb.OrphanCount(table=0, orphans=1), pb.OrphanCount(table=1, orphans=2, unjudged=3)]
    who = relay_pb2.TaskIdentity(index=0)
    assert not made.report(pb.WorkReport(who=who, work=piece, differences=rows, orphans=counts))
    one, two = made.tables()
    assert (one.reference, one.orphans, one.unjudged, one.unnamed) == ("c.a to p.id", 1, 0, 0)
    assert (two.reference, two.orphans, two.unjudged, two.unnamed) == ("c.b to p.id", 2, 3, 4)
    assert made.rows() == rows[:2]
    assert made.progress().differences == 3
