"""Tests the sums of what lanes report, over lanes that begin again."""

from __future__ import annotations

import time
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import common_pb2, relay_pb2
from shardmerge.worker.core.batch import ChangeCounts
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.replicate.lane.counters import CommitCounts, LaneCounters
from shardmerge.worker.replicate.lane_totals import NO_CHANGES, LaneTotals, SubTaskTotals, together

_ONE, _TWO, _THREE = TargetTable("d", "one"), TargetTable("d", "two"), TargetTable("d", "three")


def _totals(clock: Callable[[], float] = time.monotonic) -> LaneTotals:
    totals = LaneTotals(clock)
    totals.begin("t", "s")
    return totals


def _report(
    counters: LaneCounters,
    *,
    epoch: int = 1,
    lane: int = 0,
    byte: int = 0,
    stream: relay_pb2.Stream = relay_pb2.STREAM_MAIN,
) -> relay_pb2.LaneReport:
    return relay_pb2.LaneReport(
        who=relay_pb2.TaskIdentity(task="t", source="s", epoch=epoch, index=lane, stream=stream),
        committed=common_pb2.RelayOffset(segment=1, byte=byte),
        counters=counters.message({"target": 0.5, "idle": 1.0}),
    )


def _lane(*inserts: int, table: TargetTable = _ONE) -> LaneCounters:
    """A lane that has committed a transaction for each number of inserts."""
    made = LaneCounters()
    for count in inserts:
        made.add(CommitCounts({table: ChangeCounts(count, 0, 0)}, count, 1, 0.01, 0.2))
    return made


def test_a_report_replaces_the_one_before_of_the_same_lane() -> None:
    totals, lane = _totals(), _lane(3)
    totals.add(_report(lane))
    lane.add(CommitCounts({_ONE: ChangeCounts(0, 2, 1)}, 2, 2, 0.01, None))
    totals.add(_report(lane))
    [total] = totals.of("t", "s").lanes.values()
    assert total.changes.by_table() == {_ONE: ChangeCounts(3, 2, 1)}
    assert total.kinds == ChangeCounts(3, 2, 1)
    assert (total.transactions, total.written_rows, total.statements) == (2, 5, 3)
    assert total.seconds == {"target": 0.5, "idle": 1.0}
    assert total.lag_seconds.count == 1
    assert total.seconds_between_commits.count == 1


def test_a_lane_that_begins_again_continues_the_totals() -> None:
    """Even if it has counted more than the one before when it reports first."""
    totals = _totals()
    totals.add(_report(_lane(3)))
    totals.add(_report(_lane(50)))
    totals.add(_report(_lane(1, 1), epoch=2))
    found = totals.of("t", "s").all
    assert found.kinds == ChangeCounts(55, 0, 0)
    assert found.transactions == 4
    assert found.seconds["target"] == 1.5


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.integers(0, 2),
            st.sampled_from([relay_pb2.STREAM_MAIN, relay_pb2.STREAM_JOIN]),
            st.dictionaries(st.sampled_from([_ONE, _TWO, _THREE]), st.integers(1, 9)),
        ),
        max_size=20,
    )
)
def test_totals_of_any_reports(
    reports: list[tuple[int, int, relay_pb2.Stream, dict[TargetTable, int]]],
) -> None:
    """Of each lane and table: the sum over all processes. The picture that was taken before does not change."""
    totals = _totals()
    running: dict[tuple[int, int], tuple[int, LaneCounters]] = {}
    expected: dict[int, dict[TargetTable, ChangeCounts]] = {}
    order: list[TargetTable] = []
    pictures: list[tuple[SubTaskTotals, dict[int, dict[TargetTable, ChangeCounts]]]] = []
    for wanted, lane, stream, inserts in reports:
        known, counters = running.get((lane, stream), (0, LaneCounters()))
        # The epochs of a lane never fall; each has a process of its own.
        counters = counters if wanted <= known else LaneCounters()
        epoch = max(wanted, known)
        running[lane, stream] = epoch, counters
        changes = {target: ChangeCounts(count, 1, 0) for target, count in inserts.items()}
        counters.add(CommitCounts(changes, 1, 1, 0.01, None))
        totals.add(_report(counters, epoch=epoch, lane=lane, stream=stream))
        tables = expected.setdefault(lane, {})
        for target, counts in changes.items():
            tables[target] = tables.get(target, NO_CHANGES).plus(counts)
            order.extend([] if target in order else [target])
        pictures.append((totals.of("t", "s"), {number: dict(each) for number, each in expected.items()}))
        assert pictures[-1][0].tables == tuple(order)
    for picture, then in pictures:
        assert {number: total.changes.by_table() for number, total in picture.lanes.items()} == then
        for number, total in picture.lanes.items():
            assert total.kinds == together(then[number].values())
            for target in (_ONE, _TWO, _THREE):
                assert total.changes.in_table(target) == then[number].get(target, NO_CHANGES)
        assert picture.all.kinds == together([counts for each in then.values() for counts in each.values()])


def test_a_lane_that_begins_again_and_again_has_few_parts() -> None:
    totals = _totals()
    for epoch in range(1, 30):
        totals.add(_report(_lane(1), epoch=epoch))
    changes = totals.of("t", "s").lanes[0].changes
    assert len(changes.parts) == 2
    assert changes.by_table() == {_ONE: ChangeCounts(29, 0, 0)}


def test_lanes_of_joining_tables_are_added() -> None:
    totals = _totals()
    totals.add(_report(_lane(3)))
    totals.add(_report(_lane(4, table=_TWO), stream=relay_pb2.STREAM_JOIN))
    totals.add(_report(_lane(5), lane=1))
    found = totals.of("t", "s")
    assert found.lanes[0].changes.by_table() == {_ONE: ChangeCounts(3, 0, 0), _TWO: ChangeCounts(4, 0, 0)}
    assert found.tables == (_ONE, _TWO)
    assert found.all.kinds.inserts == 12


def test_when_a_checkpoint_moved() -> None:
    now = [10.0]
    totals, lane = _totals(lambda: now[0]), _lane(1)
    totals.add(_report(lane, byte=4))
    now[0] = 20.0
    totals.add(_report(lane, byte=4))
    assert totals.of("t", "s").moved_at == {0: 10.0}
    totals.add(_report(lane, byte=5))
    assert totals.of("t", "s").moved_at == {0: 20.0}


def test_a_lane_of_an_older_version_reports_no_counters() -> None:
    totals = _totals()
    report = _report(_lane(3))
    report.ClearField("counters")
    totals.add(report)
    assert totals.of("t", "s").all.transactions == 0


def test_a_histogram_with_other_bounds_is_left_out() -> None:
    totals = _totals()
    report = _report(_lane(3))
    report.counters.commit_seconds.counts.append(1)
    totals.add(report)
    found = totals.of("t", "s").all
    assert (found.transactions, found.written_rows) == (0, 3)


def test_a_subtask_that_ends_is_forgotten() -> None:
    totals = _totals()
    totals.add(_report(_lane(3)))
    totals.forget("t", "s")
    assert not totals.of("t", "s").lanes
    totals.add(_report(_lane(3)))  # it has not ended yet
    assert not totals.of("t", "s").lanes
    totals.begin("t", "s")
    totals.add(_report(_lane(4)))
    assert totals.of("t", "s").all.kinds.inserts == 4
