"""A subtask's records after a statement."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.proto import config_pb2
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table_numbers import TableNumbers
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.given_names import GivenNames
from shardmerge.worker.ddl.decide.recorded_tracks import later_structures, plans_before
from shardmerge.worker.ddl.decide.statement_changes import NameChanges, StatementChanges
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import (
    Elsewhere,
    Entering,
    LaterStructure,
    Leaving,
    Own,
    PartialCopy,
    own_tracks,
)
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import Growing, Partitioning
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION
from tests.support.plans import integer, table_plan
from tests.unit.worker.snapshot.statements import place_of, statement_at

RULES = Rules.from_config(config_pb2.SubTaskConfig(task="t", source_id="mysql-01"))
OTHERS = frozenset({("d", "joins"), ("d", "else")})


def plan(number: int, name: str, target: str = "", *, one_lane: bool = False) -> TablePlan:
    made = table_plan((integer(),), (0,), shard=number, schema="d", name=name, one_lane=one_lane)
    return replace(made, target_table=target or name)


def standing(*plans: TablePlan, tables: int | None = None) -> StreamTables:
    """``tables``: how many there are, those of the past too."""
    known = {made.shard: made.table for made in plans}
    past = plan(0, "past").table
    count = len(plans) if tables is None else tables
    dealing = Partitioning(2, frozenset(p.target_name for p in plans if p.one_lane), frozenset(known), "{}")
    return StreamTables(
        tuple(known.get(number, past) for number in range(count)),
        own_tracks(plans),
        dealing,
        TableScope(RULES, OTHERS),
    )


def creation(text: str = "") -> CreateStatement:
    return CreateStatement(text, "utf8mb4_bin")


def test_new_tables_get_numbers_after_all_former_ones() -> None:
    numbers = TableNumbers(4)
    passing = StatementChanges(standing(plan(1, "b"), tables=4), numbers)
    assert passing.take_number() == 4
    passing.change(plan(4, "new"), creation())
    passing.change(plan(1, "b2"), creation())
    assert numbers.take() == 5, "another stream takes a number"
    assert passing.take_number() == 6
    passing.change(plan(6, "newer"), creation())
    assert passing.taken == [4, 6]
    result = passing.apply()
    assert [table.name for table in result.tables[:5]] == ["past", "b2", "past", "past", "new"]
    assert (len(result.tables), result.tables[6].name) == (7, "newer")
    assert sorted(result.plans) == [1, 4, 6]
    assert result.partitioning.shards == {1, 4, 6}


def test_a_table_that_a_joining_stream_has_created() -> None:
    own, joining = standing(plan(0, "a"), tables=2), standing(plan(3, "new"), tables=4)
    merged = own.with_joined(joining)
    assert merged.tables[3].name == "new"
    assert sorted(merged.plans) == [0, 3]


def test_numbers_that_were_not_recorded_are_used_again() -> None:
    numbers = TableNumbers(2)
    assert [numbers.take(), numbers.take(), numbers.take()] == [2, 3, 4]
    numbers.give_back([3, 2])
    assert [numbers.take(), numbers.take(), numbers.take()] == [2, 3, 5]


def test_no_change_keeps_everything() -> None:
    before = standing(plan(0, "a", one_lane=True), plan(1, "b"))
    assert StatementChanges(before, TableNumbers(9)).apply() == before


def test_a_removed_table_keeps_its_number() -> None:
    passing = StatementChanges(standing(plan(0, "a", one_lane=True), plan(1, "b")), TableNumbers(2))
    passing.remove(0)
    passing.change(plan(2, "a"), creation())
    result = passing.apply()
    assert sorted(result.plans) == [1, 2]
    assert len(result.tables) == 3
    assert result.partitioning.shards == {1, 2}
    assert result.partitioning.one_lane == frozenset()


def test_a_targets_facts_are_those_of_all_its_shard_tables() -> None:
    before = standing(plan(0, "a", "all"), plan(1, "b", "all"), plan(2, "c", one_lane=True))
    passing = StatementChanges(before, TableNumbers(9))
    passing.change(plan(1, "b", "all"), creation())
    passing.one_lane[TargetTable("shop", "all")] = True
    result = passing.apply()
    assert [made.one_lane for made in result.plans_in_order] == [True, True, True]
    assert result.partitioning.one_lane == {plan(0, "a", "all").target_name, plan(2, "c").target_name}
    passing.one_lane[TargetTable("shop", "c")] = False
    assert [made.one_lane for made in passing.apply().plans_in_order] == [True, True, False]


def test_tables_that_a_statement_does_not_change_are_not_made_again() -> None:
    """Only other objects are checked after it: there may be thousands of tables."""
    before = standing(plan(0, "a", "all"), plan(1, "b", "all"), plan(2, "c", "all"))
    changes = StatementChanges(before, TableNumbers(9))
    changes.change(plan(1, "b", "all"), creation())
    changes.one_lane[TargetTable("shop", "all")] = False
    after = changes.apply()
    assert [number for number, track in after.tracks.items() if track is not before.tracks[number]] == [1]


def test_merged_streams() -> None:
    own = standing(plan(0, "a"), plan(1, "b"), tables=4)
    joined = standing(plan(2, "joins", one_lane=True), tables=4)
    both = own.with_joined(joined)
    assert both.violations() == ()
    assert [table.name for table in both.tables] == ["a", "b", "joins", "past"]
    assert sorted(both.plans) == [0, 1, 2]
    assert both.partitioning.shards == {0, 1, 2}
    assert both.partitioning.one_lane == {plan(2, "joins").target_name}
    assert both.scope.others == {("d", "else")}


def test_tables_that_are_copied_in_part_leave_at_their_statement() -> None:
    """Unless the statement parks them at a lock or removes them; a table whose statement is later stays."""
    plans = [plan(number, f"t{number}") for number in range(4)]
    places = {0: 100, 1: 100, 2: 100, 3: 300}
    copies = {number: PartialCopy(1 + number, RelayOffset(1, at)) for number, at in places.items()}
    before = replace(standing(*plans), tracks=own_tracks(plans, copies=copies))
    statement = statement_at(100, "ALTER TABLE t0 ADD c INT")
    passing = StatementChanges(before, TableNumbers(4))
    passing.remove(1)
    passing.park(replace(_away(2), released=False))
    passing.change(plan(0, "renamed"), creation())
    passing.leave_to_copy(statement, place_of(110), 5.0)
    left = passing.parked[0].parked
    assert (left.released, left.resumes_copy, left.place) == (True, 1, StatementPlace.of(statement))
    assert sorted(passing.parked) == [0, 2]
    assert not passing.parked[2].parked.resumes_copy, "the lock releases it"
    result = passing.apply()
    assert sorted(result.plans) == [3]
    assert sorted(result.copies) == [3]
    assert {("d", "renamed"), ("d", "t2")} <= result.scope.others
    assert ("d", "t0") not in result.scope.others, "another table may get the name"


def _away(number: int) -> Parked:
    place = StatementPlace(place_of(100), 0)
    return Parked(
        number, "", "db", 0, is_mariadb=True, session=UNKNOWN_SESSION, place=place, resume_at=place_of(110), since=1.0
    )


def test_a_table_grows_at_its_place() -> None:
    before, other = plan(0, "a"), plan(1, "b")
    after = replace(table_plan((integer(), integer("v")), (0,), shard=0, schema="d", name="a"), target_table="a")
    place = RelayOffset(1, 70)
    record = Growing(0, SourcePosition("bin.000001", 70), ("v",))
    changes = StatementChanges(standing(before, other), TableNumbers(2))
    changes.change_later(LaterStructure(after, place, record), creation())
    result = changes.apply()
    assert result.violations() == ()
    assert result.plans[0] is before, "the lanes have not reached the statement"
    assert result.recorded_plans == (after, other)
    assert result.tables[0] == after.table, "the structure that is recorded"
    assert result.partitioning.growing == (record,)
    assert result.at_barrier(RelayOffset(1, 69)).later.keys() == {0}
    there = result.at_barrier(place)
    assert (there.plans[0], there.later, there.partitioning.growing) == (after, {}, ())
    assert plans_before(RULES, (after, other), result.later)[0].table.columns == before.table.columns


def test_a_table_enters_and_leaves_at_its_place() -> None:
    """The statement of the barrier is executed for a table that enters there."""
    end, place = RelayOffset(1, 70), StatementPlace(place_of(60), 0)
    entering = Entering(plan(1, "b"), end, place)
    joining = standing(plan(0, "a"))
    scope = TableScope(RULES, only=frozenset({("d", "a")}))
    joining = replace(joining, tracks={**joining.tracks, 1: entering}, scope=scope)
    assert joining.at_barrier(RelayOffset(1, 69)) is joining
    there = joining.at_barrier(end)
    assert (sorted(there.plans), there.partitioning.shards) == ([0, 1], {0, 1})
    assert there.scope.only == {("d", "a"), ("d", "b")}
    assert (there.entering, there.tracks[1]) == ({}, Own(plan(1, "b")))

    own = standing(plan(0, "a"), tables=2)
    own = replace(own, tracks={**own.tracks, 1: Leaving(plan(1, "joins"), end, place)})
    assert own.at_barrier(RelayOffset(1, 69)) is own
    assert own.at_barrier(end).tracks == {**own.tracks, 1: Elsewhere(("d", "joins"))}


def test_tables_that_lanes_have_passed_no_longer_grow() -> None:
    made = {0: plan(0, "a")}
    records = [Growing(0, SourcePosition("bin.000001", byte), ("v",)) for byte in (70,)]

    def found(*bytes_: int) -> dict[int, LaterStructure]:
        lanes = [
            Checkpoint(lane, 1, 0, "relay", RelayOffset(1, byte), 0, SourcePosition("bin.000001", byte), 0.0)
            for lane, byte in enumerate(bytes_)
        ]
        return later_structures(records, made, lanes, lambda at: RelayOffset(1, at.pos))

    assert found(70, 80) == {}
    assert found(60, 80) == {0: LaterStructure(made[0], RelayOffset(1, 70), records[0])}
    assert later_structures(records, {}, (), lambda at: RelayOffset(1, at.pos)) == {}


def test_a_name_that_no_table_has_taken_stays_the_other_streams() -> None:
    """An operator has skipped a rename to the name of a table that joins."""
    names = GivenNames({}, frozenset({("d", "joins")}))
    before = standing(plan(0, "a"))
    before = replace(before, tracks={**before.tracks, 7: Elsewhere(("d", "joins"))})
    skipped = StatementChanges(before, TableNumbers(8), names=NameChanges(names))
    skipped.detach_renamed()
    assert skipped.apply().scope.others == OTHERS
    taken = StatementChanges(before, TableNumbers(8), names=NameChanges(names))
    taken.change(plan(0, "joins"), creation())
    taken.detach_renamed()
    assert taken.apply().scope.others == OTHERS - names.lost
