"""The warnings of a task's sources in the list of tasks."""

from __future__ import annotations

from shardmerge.master.workers.task_warnings import task_warnings
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.worker_pb2 import StatusWarning


def _answer(source: str, *warnings: tuple[str, float]) -> pb.SourceSubTasks:
    status = pb.SourceStatus(source=source)
    status.warnings.extend(StatusWarning(name=name, message=f"{name} of {source}", due=due) for name, due in warnings)
    return pb.SourceSubTasks(result=True, source_status=status)


def test_each_kind_has_the_warning_with_the_least_time() -> None:
    found = task_warnings(
        [
            _answer("s1", ("clocks-differ", 0.0), ("binlog-expiring", 500.0)),
            _answer("s2", ("binlog-expiring", 200.0), ("certificate-expiring", 900.0), ("certificate-expiring", 800.0)),
            _answer("s3", ("binlog-expiring", 0.0)),
        ]
    )
    assert [(each.warning.name, each.source, each.warning.due, each.others) for each in found] == [
        ("binlog-expiring", "s2", 200, 2),
        ("certificate-expiring", "s2", 800, 1),
        ("clocks-differ", "s1", 0, 0),
    ]
    assert found[0].warning.message == "binlog-expiring of s2"


def test_a_source_that_cannot_be_asked_has_no_warnings() -> None:
    assert task_warnings([pb.SourceSubTasks(result=False), _answer("s1")]) == []


def test_the_list_is_bounded() -> None:
    [found] = task_warnings([_answer(f"s{n:02d}", *[("clocks-differ", 0.0)] * 10) for n in range(16)])
    assert (found.source, found.others) == ("s00", 159)
