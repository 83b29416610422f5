"""From two samples to what a subtask has done between them; and the overview of one."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import pytest

from shardmerge.proto import common_pb2, worker_pb2
from shardmerge.proto import diagnose_pb2 as pb
from shardmerge.proto.metrics.distribution import DURATIONS, Distribution
from shardmerge.worker.core.batch import ChangeCounts
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.daemon.diagnosis.diagnose import diagnose, target_names, waiting_lanes
from shardmerge.worker.daemon.diagnosis.sample import (
    CopySample,
    RelaySample,
    SubTaskSample,
    one_lane_reasons,
    overview,
    use_between,
)
from shardmerge.worker.replicate.lane_totals import Changes, LaneTotal, SubTaskTotals
from shardmerge.worker.snapshot.limits.reader_times import ReaderSeconds
from tests.support.plans import integer, table_plan, text

_ONE, _TWO = TargetTable("shop", "orders"), TargetTable("shop", "lines")


def _total(orders: int, lines: int, target: float, commits: Mapping[float, int], written_rows: int = 0) -> LaneTotal:
    counts = [0] * (len(DURATIONS) + 1)
    for number in commits.values():
        counts[0] += number
    seconds = Distribution(tuple(counts), sum(each * number for each, number in commits.items()))
    changes = Changes.of({_ONE: ChangeCounts(orders, 0, 0), _TWO: ChangeCounts(0, lines, 0)})
    return LaneTotal(
        changes, seconds={"target": target, "idle": 10 - target}, written_rows=written_rows, commit_seconds=seconds
    )


def _status(lanes: int = 1, phase: str = "committing", phase_seconds: float = 9.0) -> worker_pb2.SubTaskStatus:
    status = worker_pb2.SubTaskStatus(name="t", stage=common_pb2.STAGE_RUNNING)
    for number in range(lanes):
        status.sync.lanes.add(lane=number, phase=phase, phase_seconds=phase_seconds)
    return status


def _sample(at: float, *totals: LaneTotal, relay: RelaySample = RelaySample()) -> SubTaskSample:  # noqa: B008 - frozen
    return SubTaskSample(at, _status(len(totals)), relay, SubTaskTotals(dict(enumerate(totals))))


def test_the_work_of_a_lane_between_two_samples() -> None:
    before, after = _total(5, 3, 1.0, {0.1: 2}, written_rows=4), _total(7, 13, 3.5, {0.1: 2, 0.5: 4}, written_rows=6)
    use = use_between(_sample(10, before), _sample(14, after))
    [lane] = use.lanes
    assert use.seconds == 4
    assert (lane.changes, lane.written_rows, lane.transactions) == (12, 2, 4)
    assert lane.commit_seconds == pytest.approx(2)
    assert dict(lane.seconds) == {"target": 2.5}, "the idle time has fallen: that is no figure"
    assert [(each.table, each.changes) for each in lane.tables] == [("`shop`.`lines`", 10), ("`shop`.`orders`", 2)]


def test_a_lane_that_is_new() -> None:
    use = use_between(_sample(10), _sample(14, _total(1, 0, 2.0, {0.1: 1})))
    assert (use.lanes[0].changes, use.lanes[0].seconds["target"]) == (1, 2)


def test_a_lane_without_reports_has_no_figures() -> None:
    use = use_between(_sample(10, LaneTotal()), _sample(14, LaneTotal()))
    assert not use.lanes[0].seconds and not use.lanes[0].tables


def test_why_a_table_has_one_lane() -> None:
    columns = (integer(), text("v"))
    assert one_lane_reasons([table_plan(columns, (0,))]) == {}
    assert one_lane_reasons([table_plan(columns, ())]) == {_ONE: "it has no key"}
    reason = "it has a further unique key, or one WITHOUT OVERLAPS"
    assert one_lane_reasons([table_plan(columns, (0,), one_lane=True)]) == {_ONE: reason}
    assert "text of this collation" in one_lane_reasons([table_plan(columns, (1,))])[_ONE]


def _relay(head: int, end: int, fetched: int = 0, unknown: str = "") -> RelaySample:
    return RelaySample(fetched, SourcePosition("b.000001", head), SourcePosition("b.000001", end), 0.02, unknown)


def test_what_the_relay_lacks() -> None:
    relay = use_between(_sample(1, relay=_relay(10, 50, 5)), _sample(2, relay=_relay(30, 90, 25))).relay
    assert (relay.unfetched_before, relay.unfetched_after, relay.fetched_bytes) == (40, 60, 20)
    assert relay.source_moved and relay.round_trip == 0.02
    ahead = use_between(_sample(1, relay=_relay(50, 50)), _sample(2, relay=_relay(70, 50))).relay
    assert (ahead.unfetched_before, ahead.unfetched_after, ahead.source_moved) == (0, 0, False)


def test_what_the_relay_lacks_is_not_known() -> None:
    relay = use_between(_sample(1), _sample(2, relay=_relay(30, 90, unknown="the source does not answer"))).relay
    assert not relay.HasField("unfetched_before") and not relay.HasField("unfetched_after")
    assert not use_between(_sample(1), _sample(2)).relay.HasField("round_trip")


def test_the_copy_of_a_history() -> None:
    first, second = ReaderSeconds({"read": 1.0, "write": 2.0}), ReaderSeconds({"read": 4.0, "write": 2.5})
    before, after = (
        SubTaskSample(at, _status(), copy=CopySample(each, "limit", 4)) for at, each in ((1, first), (2, second))
    )
    use = use_between(before, after)
    assert (dict(use.copy.seconds), use.copy.throttle, use.copy.readers) == ({"read": 3.0, "write": 0.5}, "limit", 4)
    assert not use_between(before, _sample(2)).HasField("copy")


# --- the course of a diagnosis


class _Looking:
    def __init__(self, found: pb.TargetLook) -> None:
        self.found = found
        self.waited: list[float] = []

    def result(self, seconds: float) -> pb.TargetLook:
        self.waited.append(seconds)
        return self.found


def test_only_lanes_that_wait_are_looked_at() -> None:
    asked: list[tuple[Mapping[int, int], Sequence[str]]] = []
    looking = _Looking(pb.TargetLook(answered=True))
    status = _status(3)
    status.sync.lanes[1].phase = "reading"
    status.sync.lanes[2].phase_seconds = 0.1
    plans = (table_plan((integer(),), (0,)),)
    times = iter((1.0, 2.0, 3.0))

    def look(lanes: Mapping[int, int], tables: Sequence[str]) -> _Looking:
        asked.append((lanes, tables))
        return looking

    def take() -> SubTaskSample:
        return SubTaskSample(next(times), status, plans=plans, connections={0: 70, 1: 71, 2: 72})

    second, use = diagnose(take, look, 0.5, threading.Event())
    assert asked == [({0: 70}, ["`shop`.`orders`"])]
    assert (second.at, use.seconds, use.target.answered) == (3.0, 2.0, True)
    assert looking.waited == [5.0]


def _wait_of_lane_0(middle: SubTaskSample, second: SubTaskSample) -> list[pb.TargetWait]:
    """Return the waits in the answer if the look finds one."""
    samples = iter((_sample(1), middle, second))
    found = pb.TargetLook(answered=True, waits=[pb.TargetWait(lane=0, kind="row lock")])
    _, use = diagnose(lambda: next(samples), lambda lanes, tables: _Looking(found), 0.5, threading.Event())
    return list(use.target.waits)


def test_a_wait_that_has_ended_since_the_look_is_not_reported() -> None:
    """Its holder may do something else by now, and must not be killed."""
    before, after = _total(5, 3, 1.0, {0.1: 2}), _total(7, 3, 1.5, {0.1: 3})
    assert len(_wait_of_lane_0(_sample(2, before), _sample(3, before))) == 1
    assert _wait_of_lane_0(_sample(2, before), _sample(3, after)) == [], "it has committed"
    reading = SubTaskSample(3, _status(1, "reading"), totals=SubTaskTotals({0: before}))
    assert _wait_of_lane_0(_sample(2, before), reading) == []


def test_the_look_is_near_the_end() -> None:
    """So that a session that it names still holds the lock when the answer is read."""

    class Over(threading.Event):
        slept = 0.0

        def wait(self, timeout: float | None = None) -> bool:
            self.slept += timeout or 0.0
            return False

    for seconds, wanted in ((1.0, 0.5), (3.0, 1.5), (30.0, 28.5)):
        over, looked = Over(), list[float]()
        diagnose(lambda: _sample(1), lambda lanes, tables: looked.append(over.slept), seconds, over)  # noqa: B023
        assert (looked, over.slept) == ([wanted], seconds)


def test_the_target_tables_are_those_of_lanes_and_of_readers() -> None:
    """While the history is copied there are no plans of lanes, and those of parked tables are absent."""
    load = worker_pb2.LoadStatus(tables=[worker_pb2.TableProgress(target_table="`shop`.`copied`")])
    join = worker_pb2.LoadStatus(tables=[worker_pb2.TableProgress(target_table="`shop`.`joins`")])
    status = worker_pb2.SubTaskStatus(load=load, copies=[worker_pb2.JoinStatus(load=join)])
    plans = (table_plan((integer(),), (0,)),)
    locked = TargetTable("shop", "locked")
    found = target_names(SubTaskSample(1, status, totals=SubTaskTotals(tables=(_TWO,)), plans=plans, locked=(locked,)))
    assert found == ["`shop`.`copied`", "`shop`.`joins`", "`shop`.`lines`", "`shop`.`locked`", "`shop`.`orders`"]


def test_the_longest_wait_is_looked_at_first() -> None:
    status = _status(3)
    for lane, seconds in zip(status.sync.lanes, (2.0, 9.0, 4.0), strict=True):
        lane.phase_seconds = seconds
    assert list(waiting_lanes(SubTaskSample(1, status, connections={0: 70, 1: 71, 2: 72}))) == [1, 2, 0]


@pytest.mark.parametrize(("wanted", "waited"), [(0.0, 3.0), (0.1, 0.5), (99.0, 30.0), (float("nan"), 3.0)])
def test_how_long_it_takes(wanted: float, waited: float) -> None:
    class Over(threading.Event):
        slept = 0.0

        def wait(self, timeout: float | None = None) -> bool:
            self.slept += timeout or 0.0
            return False

    over = Over()
    diagnose(lambda: _sample(1), lambda lanes, tables: None, wanted, over)
    assert over.slept == waited


def test_a_caller_that_has_gone_ends_it_at_once() -> None:
    over = threading.Event()
    over.set()
    looked: list[object] = []

    def look(lanes: Mapping[int, int], tables: Sequence[str]) -> None:
        looked.append(lanes)

    _, use = diagnose(lambda: _sample(1), look, 30, over)
    assert looked == [] and not use.target.answered


# --- the overview


def test_the_overview_of_replication() -> None:
    status = _status()
    status.unit = common_pb2.UNIT_REPLICATE
    status.sync.oldest_ms, status.sync.bytes_behind, status.sync.recent_rps = 3500, 99, 7
    found = overview(status, {"target": 2.0})
    assert (found.lag_seconds, found.bytes_behind, found.recent_rps, dict(found.seconds)) == (3.5, 99, 7, {"target": 2})
    status.sync.unknown = "x"
    assert not overview(status, {}).HasField("lag_seconds")


def test_the_overview_of_a_history_and_of_an_error() -> None:
    load = worker_pb2.LoadStatus(progress="43.21 %", eta_seconds=9, rows_per_second=5.4)
    found = overview(worker_pb2.SubTaskStatus(name="t", load=load), {}, "limit")
    assert (found.share, found.eta_seconds, found.recent_rps, found.throttle) == (0.4321, 9, 5, "limit")
    failed = worker_pb2.SubTaskStatus(name="t", stage=common_pb2.STAGE_PAUSED)
    failed.result.errors.add(code=40001, name="key-collision", message="key 7 collides")
    error = overview(failed, {}).error
    assert (error.code, error.name, error.message) == (40001, "key-collision", "")
