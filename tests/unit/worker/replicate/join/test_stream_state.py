"""Where two streams may become one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.proto import config_pb2
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table_numbers import TableNumbers
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.given_names import GivenNames
from shardmerge.worker.ddl.decide.statement_changes import NameChanges, StatementChanges
from shardmerge.worker.ddl.decide.track import PartialCopy
from shardmerge.worker.replicate.join.stream_state import (
    excluded_tables,
    is_after_statements,
    is_one_place,
    joining_after,
    known_away_names,
    stream_tables,
)
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.joining_tables import Joining, KeptName, PendingEntry
from shardmerge.worker.target.records.partitioning import AwayName, Partitioning
from tests.support.plans import integer, table_plan

RULES = Rules.from_config(config_pb2.SubTaskConfig(task="t", meta_schema="dm_meta", case_sensitive=True))


def stands(pos: int, *, lane: int = 0, skip: int = 0) -> Checkpoint:
    return Checkpoint(lane, 7, 3, "relay", RelayOffset(1, pos), skip, place(pos), 0.0)


def place(pos: int) -> SourcePosition:
    return SourcePosition("bin.000001", pos, "", "one")


def passed(pos: int) -> StatementPlace:
    return StatementPlace(place(pos), 40)


def test_lanes_stand_at_one_place_or_not() -> None:
    assert is_one_place([stands(9), stands(9, lane=1)])
    assert not is_one_place([stands(9), stands(10, lane=1)])
    assert not is_one_place([stands(9), stands(9, lane=1, skip=1)])


@pytest.mark.parametrize(
    ("last", "is_behind"),
    [((None, None), True), ((passed(8), None), True), ((passed(8), passed(9)), False), ((passed(9), None), False)],
)
def test_of_a_statement_right_there_it_is_not_known_on_which_side_a_stream_is(
    last: tuple[StatementPlace | None, ...], *, is_behind: bool
) -> None:
    assert is_after_statements([stands(9), stands(9, lane=1)], last) is is_behind


def _table(number: int, name: str) -> TablePlan:
    return table_plan((integer(),), (0,), shard=number, schema="d", name=name)


def test_names_of_other_streams_after_a_restart() -> None:
    tables = tuple(_table(number, f"t{number}").table for number in range(9))
    own = Partitioning(1, frozenset(), frozenset({0}), "{}")
    away = (
        AwayName(1, "d", "x"),
        AwayName(2, "", ""),  # dropped, and another table has its name
        AwayName(4, "d", "m", passed(9), 5),  # created like table 5, which no stream has created yet
        AwayName(5, "d", "n", passed(8), 1),
        AwayName(6, "d", "gone"),  # the task no longer has it
        AwayName(7, "d", "late", passed(9), 6),
    )
    recorded = replace(own, away=away)
    kept = (KeptName(3, "d", "t3"), KeptName(2, "d", "t2"))
    joining = Joining(replace(own, shards=frozenset({8})), place(4), replays=True, kept=kept)
    named = known_away_names(recorded, joining, [1])
    assert [item.number for item in named] == [1, 2, 4, 5]
    assert excluded_tables(tables, joining, [1], named) == {
        ("d", "x"): 1,
        ("d", "t3"): 3,
        ("d", "m"): 4,
        ("d", "n"): 5,
        ("d", "t8"): 8,
    }
    assert known_away_names(own, joining, [1]) == ()


def test_a_dropped_table_leaves_its_name_to_its_stream() -> None:
    plan = _table(0, "t0")
    own = Partitioning(1, frozenset(), frozenset({0}), "{}")
    joining = Joining(own, place(4), replays=True)
    before = stream_tables(joining, RULES, (plan.table,), {0: plan}, {})
    changes = StatementChanges(before, TableNumbers(1))
    changes.remove(0)
    record = joining_after(joining, changes.apply())
    assert record.kept == (KeptName(0, "d", "t0"),)
    after = stream_tables(Joining.from_json(record.to_json()) or joining, RULES, (plan.table,), {}, {})
    assert after.scope.only == {("d", "t0")}
    made = StatementChanges(after, TableNumbers(1))
    made.change(_table(1, "t0"), CreateStatement("", ""))
    assert joining_after(record, made.apply()).kept == ()


def test_a_dropped_table_keeps_its_name_while_other_statements_follow() -> None:
    """A step is checked before it is recorded: an illegal one would pause the task."""
    plans = {number: _table(number, f"t{number}") for number in range(2)}
    own = Partitioning(1, frozenset(), frozenset({1}), "{}")
    joining = Joining(own, place(4), replays=True, kept=(KeptName(0, "d", "t0"),))
    before = stream_tables(joining, RULES, tuple(plan.table for plan in plans.values()), plans, {})
    changes = StatementChanges(before, TableNumbers(2))
    changes.change(replace(plans[1], table=replace(plans[1].table, name="t2")), CreateStatement("", ""))
    changes.names = NameChanges(GivenNames({("d", "t2"): ("d", "t1")}, frozenset({("d", "t1")})))
    assert joining_after(joining, changes.apply().checked(before, "a place")).kept == joining.kept


def test_a_table_enters_a_stream_once_its_name_is_free() -> None:
    plans = {number: _table(number, "t") for number in range(2)}
    own = Partitioning(1, frozenset(), frozenset({0}), "{}")
    joining = Joining(own, place(4), replays=True, entries=(PendingEntry(1, passed(8)),))
    before = stream_tables(joining, RULES, tuple(plan.table for plan in plans.values()), plans, {1: RelayOffset(1, 9)})
    assert (before.timed_plans, before.windows) == ((), ())
    changes = StatementChanges(before, TableNumbers(2))
    changes.change(_table(0, "x"), CreateStatement("", ""))
    assert changes.apply().timed_plans == (plans[1],)


def test_a_table_enters_with_the_place_at_which_its_copy_was_interrupted() -> None:
    """It leaves the stream again at that statement, or the rest of its history would never be copied."""
    plans = {number: _table(number, f"t{number}") for number in range(2)}
    own = Partitioning(1, frozenset(), frozenset({0}), "{}")
    joining = Joining(own, place(4), replays=True, entries=(PendingEntry(1, passed(8)),))
    copies = {number: PartialCopy(7 + number, RelayOffset(1, 20)) for number in plans}
    tables = tuple(plan.table for plan in plans.values())
    begin = stream_tables(joining, RULES, tables, plans, {1: RelayOffset(1, 9)}, copies)
    assert begin.copies == {0: copies[0]}
    assert begin.at_barrier(RelayOffset(1, 9)).copies == copies
