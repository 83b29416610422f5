"""The rows of `top`: the worst task first, with the main cause of its time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shardmerge.ctl.render.diagnosis import top_table
from shardmerge.ctl.render.diagnosis.top_table import LaneTimes, TaskRow, rows
from shardmerge.proto import common_pb2
from shardmerge.proto import diagnose_pb2 as diagnosis
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.common_pb2 import ErrorDetail
from tests.unit.ctl.render.drawing import draw

_RUNNING, _SYNC, _LOAD = common_pb2.STAGE_RUNNING, common_pb2.UNIT_REPLICATE, common_pb2.UNIT_SNAPSHOT


def _part(
    task: str,
    source: str = "mysql-01",
    *,
    seconds: Mapping[str, float] | None = None,
    error: ErrorDetail | None = None,
    locks: tuple[str, ...] = (),
    **fields: Any,
) -> pb.SourceOverview:
    given: dict[str, Any] = {"task": task, "stage": _RUNNING, "unit": _SYNC, **fields}
    subtask = diagnosis.SubTaskOverview(**given)
    subtask.seconds.update(seconds or {})
    return pb.SourceOverview(task=task, source=source, worker="w", subtask=subtask, error=error, locks=locks)


def _rows(*parts: pb.SourceOverview, times: LaneTimes | None = None) -> list[TaskRow]:
    return rows(pb.OverviewResponse(result=True, sources=parts), times or LaneTimes())


def test_the_worst_task_is_first() -> None:
    found = _rows(
        _part("good", lag_seconds=0.0, synced=True),
        _part("behind", lag_seconds=90.0),
        _part("more", lag_seconds=900.0),
        _part("held", held_keys=3),
        _part("paused", stage=common_pb2.STAGE_PAUSED),
        _part("lost", error=ErrorDetail(code=60101, name="peer-unreachable")),
        _part("parked", locks=("parked-`a`.`b`",)),
        _part("copied", unit=_LOAD, share=0.4, eta_seconds=60),
        _part("dark", unknown="lane 1 has not reported"),
    )
    assert [row.task for row in found] == [
        "lost",
        "paused",
        "parked",
        "held",
        "dark",
        "copied",
        "more",
        "behind",
        "good",
    ]
    assert found[0].cause == "60101 peer-unreachable"
    assert found[2].cause == "DDL lock parked-`a`.`b`"


def test_the_main_cause_is_that_of_the_time_between_two_answers() -> None:
    times = LaneTimes()
    assert _rows(_part("t", seconds={"target": 100, "idle": 5}, waiting_for="x"), times=times)[0].cause == "x"
    [row] = _rows(_part("t", seconds={"target": 101, "gather": 0.5, "idle": 5, "decode": 0.5}), times=times)
    assert row.cause == "target 75 %", "the time before the first answer does not count, and gathering is the target's"
    [row] = _rows(
        _part("t", seconds={"target": 101, "gather": 0.5, "idle": 9, "decode": 0.5}, synced=True), times=times
    )
    assert row.cause == "idle"
    assert _rows(_part("t", seconds={"target": 1}), times=times)[0].cause == "", "the lanes are counted anew"


def test_several_sources_are_one_row() -> None:
    [row] = _rows(
        _part("t", "a", lag_seconds=1.0, recent_rps=5, bytes_behind=7),
        _part("t", "b", lag_seconds=9.0, recent_rps=6, bytes_behind=8, held_keys=2),
    )
    assert (row.sources, row.lag, row.rate, row.bytes_behind, row.held_keys) == (2, 9.0, 11, 15, 2)
    assert (row.cause, row.worst) == ("2 key(s) held", "b")


def test_a_lag_that_is_not_known_at_one_source_is_not_known() -> None:
    [row] = _rows(_part("t", "a", lag_seconds=1.0), _part("t", "b", unknown="x"))
    assert row.lag is None


def test_a_task_that_starts_or_ends() -> None:
    """A run that begins has no unit yet."""
    starting, ending, other = _rows(
        _part("a", unit=common_pb2.UNIT_UNSPECIFIED, waiting_for="the source"),
        _part("b", stage=common_pb2.STAGE_STOPPED),
        _part("c", lag_seconds=5.0, waiting_for="x"),
    )
    assert (starting.cause, ending.cause, other.cause) == ("starts: the source", "is being stopped", "x")


def test_histories() -> None:
    [row] = _rows(_part("t", "a", unit=_LOAD, share=0.5, eta_seconds=60), _part("t", "b", unit=_LOAD, share=0.7))
    assert (row.share, row.eta) == (pytest.approx(0.6), None), "how long one of them takes is not known"
    [row] = _rows(_part("t", "a", unit=_LOAD, share=0.5, eta_seconds=60, throttle="snapshot.rows-per-second: x"))
    assert (row.eta, row.cause) == (60, "snapshot.rows-per-second: x")


def test_a_source_without_figures() -> None:
    error = ErrorDetail(code=60404, name="source-unbound")
    [row] = _rows(pb.SourceOverview(task="t", source="a", error=error))
    assert (row.stage, row.failed, row.cause) == ("unknown", True, "60404 source-unbound")


def test_a_worker_of_an_earlier_version_is_no_failure() -> None:
    error = ErrorDetail(code=60803, name="peer-unimplemented")
    behind, unknown = _rows(pb.SourceOverview(task="a", source="s", error=error), _part("b", lag_seconds=9.0))
    assert (behind.task, unknown.task) == ("b", "a")
    assert (unknown.failed, unknown.cause) == (False, "not known: its worker is of an earlier version")


def test_the_table_counts_what_has_no_room() -> None:
    found = _rows(*(_part(f"task-{n:03d}", lag_seconds=float(n)) for n in range(100)))
    text = draw(top_table.table(found, 10), width=140)
    assert "task-099" in text and "task-091" in text and "task-090" not in text and "and 91 more" in text
    assert len(draw(top_table.table(found), width=140).splitlines()) > 100
    assert "There is no task." in draw(top_table.table([]))


def test_the_table_of_a_task() -> None:
    found = _rows(_part("orders", lag_seconds=75.0, recent_rps=1200, bytes_behind=2048, waiting_for="lane 1: x"))
    text = " ".join(draw(top_table.table(found), width=140).split())
    assert "orders ● Running 1 1m 15s 1,200 2.0 KiB – lane 1: x" in text
