"""Events of subtasks and of lanes for the history of tasks."""

from __future__ import annotations

from shardmerge.proto import common_pb2, errors, relay_pb2
from shardmerge.proto.task_history.event import Event, HistoryEntryKind
from shardmerge.worker.daemon.task_history import LaneRetries, SubTaskHistory
from shardmerge.worker.unit.run_reports import DdlOutcome


class _Events:
    def __init__(self) -> None:
        self.taken: list[Event] = []

    def add(self, event: Event) -> None:
        self.taken.append(event)

    def separate(self, task: str, source: str) -> None:
        raise AssertionError


def test_statements_of_one_form_repeat_each_other() -> None:
    events = _Events()
    history = SubTaskHistory(events, "t", "s")
    for number in (1, 2):
        outcome = DdlOutcome(f"ALTER o_{number}", "ALTER ?", f"(b.1, {number})", ("`d`.`o`",), "applied")
        history.ddl(outcome, 7)
    history.ddl(DdlOutcome("ALTER o_3", "ALTER ?", "(b.1, 3)", ("`d`.`o`",), "skipped by an operator"), 7)
    one, two, three = events.taken
    assert (one.kind, one.text, one.statement, one.target, one.position, one.epoch, one.sources) == (
        HistoryEntryKind.DDL, "applied", "ALTER o_1", "`d`.`o`", "(b.1, 1)", 7, ("s",),
    )  # fmt: skip
    assert one.same == two.same != three.same


def test_the_copy_of_tables_in_parallel_with_the_unit() -> None:
    events = _Events()
    history = SubTaskHistory(events, "t", "s")
    lost = errors.replicate.TARGET_LOST(host="h", port=1, reason="gone", errno=2003)
    names = [f"d.t{number}" for number in range(10)]
    history.tables("tables cannot join", names, lost, 7)
    history.tables("tables cannot join", names, lost, 7)
    history.tables("tables have joined", ["d.t0"], None, 7)
    failed, again, joined = events.taken
    assert (failed.kind, failed.text, failed.code) == (
        HistoryEntryKind.ERROR,
        "tables cannot join: d.t0, d.t1, d.t2 and 7 more",
        lost.code,
    )
    assert failed.same == again.same != ""
    assert (joined.kind, joined.text, joined.code, joined.same) == (
        HistoryEntryKind.STAGE,
        "tables have joined: d.t0",
        0,
        "",
    )


_ERROR = common_pb2.ErrorDetail(code=40201, name="target-lost", message="gone")


def _report(attempt: int, *, lane: int = 0, epoch: int = 3) -> relay_pb2.LaneReport:
    who = relay_pb2.TaskIdentity(task="t", source="s", epoch=epoch, index=lane)
    return relay_pb2.LaneReport(who=who, attempt=attempt, retrying=_ERROR if attempt else None)


def test_an_attempt_that_is_reported_several_times_is_one_event() -> None:
    events = _Events()
    retries = LaneRetries(events)
    for attempt in (0, 1, 1, 1, 2, 2, 0, 1):
        retries.observe(_report(attempt))
    assert len(events.taken) == 3
    assert {(one.code, one.message, one.sources, one.epoch) for one in events.taken} == {(40201, "gone", ("s",), 3)}
    assert len({one.same for one in events.taken}) == 1
    retries.observe(_report(1, lane=1))
    retries.observe(_report(1, epoch=4))
    assert len(events.taken) == 5
