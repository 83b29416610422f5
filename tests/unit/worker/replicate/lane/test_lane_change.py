"""A change of a lane's plans leads to the driver's plans, whatever the change is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import config_pb2
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.replicate.lane.lane_change import LaneChange, LanePlans, LaterPlan, LaterPlans
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.rules.table_window import TableWindow
from tests.support.plans import integer, table_plan

RULES = Rules.from_config(config_pb2.SubTaskConfig(task="task", source_id="s"))
NAMES = [("d", f"t{number}") for number in range(6)]
PLANS = {
    (name, form): table_plan(tuple(integer(f"c{column}") for column in range(form)), (0,), schema=name[0], name=name[1])
    for name in NAMES
    for form in (1, 2)
}

names = st.sets(st.sampled_from(NAMES)).map(frozenset)
windows = st.lists(
    st.builds(
        TableWindow,
        st.sampled_from(NAMES),
        st.none() | st.just(RelayOffset(1, 4)),
        st.none() | st.just(RelayOffset(1, 9)),
    ),
    unique_by=lambda window: window.name,
).map(tuple)
scopes = st.builds(TableScope, st.just(RULES), names, st.none() | names)


@st.composite
def plans(draw: st.DrawFn) -> tuple[TablePlan, ...]:
    return tuple(PLANS[name, draw(st.sampled_from((1, 2)))] for name in sorted(draw(names)))


places = st.integers(4, 9).map(lambda byte: RelayOffset(1, byte))
later_plans = st.lists(
    st.builds(
        LaterPlan, st.integers(4, 9).map(lambda byte: RelayOffset(1, byte)), st.sampled_from(list(PLANS.values()))
    )
).map(tuple)

State = tuple[tuple[TablePlan, ...], TableScope, tuple[TableWindow, ...], tuple[LaterPlan, ...]]


@given(st.lists(st.tuples(plans(), scopes, windows, later_plans), min_size=2, max_size=6))
def test_changes_lead_to_the_plans_of_the_driver(states: list[State]) -> None:
    driver = lane = LanePlans.of(*states[0])
    for wanted, scope, now, later in states[1:]:
        change, after = LaneChange.between(driver, wanted, scope, now, later)
        lane_after = LaneChange.from_bytes(change.to_bytes()).apply(lane)
        assert lane_after.scope == scope
        assert lane_after.windows == now
        assert lane_after.later == later
        assert {name: id_of(plan) for name, plan in lane_after.plans.items()} == {
            name: id_of(plan) for name, plan in after.plans.items()
        }
        assert set(lane_after.plans.values()) == set(wanted)
        _check_names(change, lane, lane_after)
        driver, lane = after, lane_after


def id_of(plan: TablePlan) -> tuple[TableName, int]:
    return (plan.table.schema, plan.table.name), len(plan.columns)


def _check_names(change: LaneChange, before: LanePlans, after: LanePlans) -> None:
    """Every table for which an answer differs is named."""
    for name in NAMES:
        if change.names is not None and name not in change.names:
            assert before.plans.get(name) == after.plans.get(name)
            assert (name in before.scope.others) == (name in after.scope.others)
            assert (name in (before.scope.only or ())) == (name in (after.scope.only or ()))
            assert not any(window.name == name for window in after.windows)


def test_a_change_that_was_missed_is_noticed() -> None:
    begin = LanePlans.of((), TableScope(RULES))
    _, after = LaneChange.between(begin, (PLANS[NAMES[0], 1],), TableScope(RULES))
    second, _ = LaneChange.between(after, (PLANS[NAMES[1], 1],), TableScope(RULES))
    with pytest.raises(ValueError, match="change 2 does not follow change 0"):
        second.apply(begin)


def test_later_plans_begin_at_their_places() -> None:
    one, two = (LaterPlan(RelayOffset(1, byte), PLANS[NAMES[number], 2]) for byte, number in ((9, 0), (4, 1)))
    plans = LaterPlans((one, two))
    assert plans.reached(RelayOffset(1, 3)) == {}
    assert list(plans.due(RelayOffset(1, 4))) == [two.plan]
    assert plans.reached(RelayOffset(1, 4)) == {NAMES[1]: two.plan}
    assert list(plans.due(RelayOffset(1, 8))) == []
    assert plans.reached(RelayOffset(2, 0)) == {NAMES[0]: one.plan}
    assert plans.reached(RelayOffset(2, 0)) == {}
