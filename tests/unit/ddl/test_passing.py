"""What a subtask's records become behind a statement."""

from __future__ import annotations

from dataclasses import replace

from proto import config_pb2
from tests.support.plans import integer, table_plan
from worker.ddl.creation import Creation
from worker.ddl.passing import Passing, TablesStanding
from worker.ddl.tables import TableScope
from worker.plan import TablePlan, TargetTable
from worker.replicate.dealing import Dealing
from worker.rules import Rules

RULES = Rules.from_config(config_pb2.SubTaskConfig(task="t", source_id="mysql-01"))
OTHERS = frozenset({("d", "joins"), ("d", "else")})


def plan(number: int, name: str, target: str = "", *, one_lane: bool = False) -> TablePlan:
    made = table_plan((integer(),), (0,), shard=number, schema="d", name=name, one_lane=one_lane)
    return replace(made, target_table=target or name)


def standing(*plans: TablePlan, tables: int | None = None) -> TablesStanding:
    """``tables``: how many there are, those of the past too."""
    known = {made.shard: made.table for made in plans}
    past = plan(0, "past").table
    count = len(plans) if tables is None else tables
    dealing = Dealing(2, frozenset(p.target_name for p in plans if p.one_lane), frozenset(known), "{}")
    return TablesStanding(
        tuple(known.get(number, past) for number in range(count)),
        {made.shard: made for made in plans},
        dealing,
        TableScope(RULES, OTHERS),
    )


def creation(text: str = "") -> Creation:
    return Creation(text, "utf8mb4_bin")


def test_new_tables_get_the_numbers_behind_all_of_the_past() -> None:
    passing = Passing(standing(plan(1, "b"), tables=4))
    assert passing.next_number == 4
    passing.put(plan(4, "new"), creation())
    assert passing.next_number == 5
    passing.put(plan(1, "b2"), creation())
    assert passing.next_number == 5
    passing.put(plan(5, "newer"), creation())
    assert passing.next_number == 6
    result = passing.result()
    assert [table.name for table in result.tables] == ["past", "b2", "past", "past", "new", "newer"]
    assert sorted(result.plans) == [1, 4, 5]
    assert result.dealing.shards == {1, 4, 5}


def test_nothing_that_happened_changes_nothing() -> None:
    before = standing(plan(0, "a", one_lane=True), plan(1, "b"))
    assert Passing(before).result() == before


def test_what_goes_takes_no_part_and_keeps_its_number() -> None:
    passing = Passing(standing(plan(0, "a", one_lane=True), plan(1, "b")))
    passing.gone.add(0)
    passing.put(plan(2, "a"), creation())
    result = passing.result()
    assert sorted(result.plans) == [1, 2]
    assert len(result.tables) == 3
    assert result.dealing.shards == {1, 2}
    assert result.dealing.one_lane == frozenset()


def test_a_targets_facts_are_those_of_all_its_shard_tables() -> None:
    before = standing(plan(0, "a", "all"), plan(1, "b", "all"), plan(2, "c", one_lane=True))
    passing = Passing(before)
    passing.put(plan(1, "b", "all"), creation())
    passing.one_lane[TargetTable("shop", "all")] = True
    result = passing.result()
    assert [made.one_lane for made in result.in_order] == [True, True, True]
    assert result.dealing.one_lane == {plan(0, "a", "all").target_name, plan(2, "c").target_name}
    passing.one_lane[TargetTable("shop", "c")] = False
    assert [made.one_lane for made in passing.result().in_order] == [True, True, False]


def test_both_streams_as_one() -> None:
    own = standing(plan(0, "a"), plan(1, "b"), tables=4)
    joined = standing(plan(2, "joins", one_lane=True), tables=4)
    both = own.with_joined(joined)
    assert [table.name for table in both.tables] == ["a", "b", "joins", "past"]
    assert sorted(both.plans) == [0, 1, 2]
    assert both.dealing.shards == {0, 1, 2}
    assert both.dealing.one_lane == {plan(2, "joins").target_name}
    assert both.scope.others == {("d", "else")}
