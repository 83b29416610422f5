"""Failed attempts of lanes as events."""

from __future__ import annotations

from shardmerge.proto import common_pb2, relay_pb2
from shardmerge.proto.task_history.event import Event
from shardmerge.worker.daemon.lane_retries import LaneRetries

_ERROR = common_pb2.ErrorDetail(code=40201, name="target-lost", message="gone")


class _Events:
    def __init__(self) -> None:
        self.taken: list[Event] = []

    def add(self, event: Event) -> None:
        self.taken.append(event)

    def separate(self, task: str, source: str) -> None:
        raise AssertionError


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
