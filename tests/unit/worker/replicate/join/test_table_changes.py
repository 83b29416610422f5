"""What an update changes for a subtask's tables, and what of an earlier one still joins."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.replicate.join.table_changes import (
    Change,
    Leaves,
    Moves,
    Remaps,
    changes_of,
    check_transform_filters,
    tables_to_copy,
)
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.rules import same_route
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.joining_tables import Joining, PendingEntry, keep_unchanged
from shardmerge.worker.target.records.partitioning import Partitioning, merge_partitionings, partitioning_for
from tests.support.plans import integer, text

SOURCE = "s1"
NAMES = ("a_1", "a_2", "a_3", "b_1")
START = SourcePosition("bin.000007", 4)
PLACE = StatementPlace(START, 0)


def _table(name: str) -> Table:
    return Table("shard", name, (integer(), text("v")), (0,), "PRIMARY", (), False, "InnoDB")


def _config(*tables: str, target: str = "merged", number: str = "1") -> pb.SubTaskConfig:
    """Lets ``tables`` through, all to ``target``, with their numbers in their ids."""
    return pb.SubTaskConfig(
        task="t",
        source_id=SOURCE,
        meta_schema="dm_meta",
        case_sensitive=True,
        block_allow_list=pb.BlockAllowList(
            name="l", do_tables=[pb.TableName(schema="shard", table=name) for name in tables]
        ),
        routes=[
            pb.RouteRule(name="r", schema_pattern="shard", table_pattern="*", target_schema="all", target_table=target)
        ],
        column_mappings=[
            pb.ColumnMappingRule(
                name="m",
                schema_pattern="shard",
                table_pattern="*",
                source_column="id",
                target_column="id",
                expression="partition id",
                arguments=[number, "", "a_"],
            )
        ],
    )


def _dealing(config: pb.SubTaskConfig, tables: tuple[Table, ...]) -> Partitioning:
    rules = Rules.from_config(config)
    plans = [rules.plan(at, SOURCE, table) for at, table in enumerate(tables) if rules.route(table.schema, table.name)]
    return partitioning_for(config, 2, plans)


def _changes(
    before: pb.SubTaskConfig,
    after: pb.SubTaskConfig,
    recorded: tuple[str, ...],
    present: tuple[str, ...] = NAMES,
    joining: Joining | None = None,
) -> tuple[Change, ...]:
    tables = tuple(map(_table, recorded))
    wanted = Rules.from_config(after)
    found = [_table(name) for name in present if wanted.route("shard", name)]
    dealing = _dealing(before, tables)
    if joining is not None:
        dealing = replace(dealing, shards=dealing.shards - joining.partitioning.shards)
    return changes_of(SOURCE, tables, dealing, joining, wanted, found)


def _names(changes: tuple[Change, ...]) -> dict[str, set[str]]:
    told: dict[str, set[str]] = {}
    for change in changes:
        plan = change.after if isinstance(change, Moves | Remaps) else change.plan
        told.setdefault(type(change).__name__, set()).add(plan.table.name)
    return told


def test_tables_come_and_go_and_the_others_stay() -> None:
    changes = _changes(_config("a_1", "a_2"), _config("a_2", "a_3"), ("a_1", "a_2"))
    assert _names(changes) == {"Joins": {"a_3"}, "Leaves": {"a_1"}}
    assert [(plan.shard, plan.table.name) for plan in tables_to_copy(SOURCE, changes)] == [(2, "a_3")]


def test_a_table_that_waits_before_a_ddl_does_not_join_once_more() -> None:
    config = _config("a_1", "a_2")
    tables = (_table("a_1"), _table("a_2"))
    dealing = _dealing(config, tables)
    without = replace(dealing, shards=frozenset({1}))
    wanted = Rules.from_config(config)
    assert _names(changes_of(SOURCE, tables, without, None, wanted, tables)) == {"Joins": {"a_1"}}
    assert changes_of(SOURCE, tables, without.with_tables({0}), None, wanted, tables) == ()
    coming_in = Joining(without, SourcePosition("f", 4), replays=True, entries=(PendingEntry(0, PLACE),))
    nobody = replace(dealing, shards=frozenset())
    assert changes_of(SOURCE, tables, nobody, coming_in, wanted, tables) == ()


def test_who_stays() -> None:
    before = Rules.from_config(_config("a_1", "a_2"))
    assert same_route(_table("a_1"), before, Rules.from_config(_config("a_1")))
    assert not same_route(_table("a_2"), before, Rules.from_config(_config("a_1")))
    assert not same_route(_table("a_1"), before, Rules.from_config(_config("a_1", target="other")))
    assert not same_route(_table("a_3"), before, Rules.from_config(_config("a_3")))


def _transformed(projection: str = "", condition: str = "") -> pb.SubTaskConfig:
    config = _config("a_1", "a_2")
    if projection or condition:
        config.transforms.add(name="t", schema_pattern="shard", projection=projection, filter=condition)
    return config


@pytest.mark.long  # its first test starts Spark
@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (("*", "id > 0"), ("*", "id > 0"), {}),
        (("", "id > 0"), ("", "id > 1"), {"Remaps": {"a_1"}}),
        (("", ""), ("", "id > 1"), {"Remaps": {"a_1"}}),
        (("id, upper(v) AS v", ""), ("id, lower(v) AS v", ""), {"Remaps": {"a_1"}}),
        (("id, v", ""), ("v, id", ""), {"Remaps": {"a_1"}}),
    ],
)
def test_a_merged_table_keeps_its_transform(
    before: tuple[str, str], after: tuple[str, str], told: dict[str, set[str]]
) -> None:
    changes = _changes(_transformed(*before), _transformed(*after), ("a_1",), ("a_1",))
    assert _names(changes) == told
    if told:
        with pytest.raises(ShardmergeError) as caught:
            tables_to_copy(SOURCE, changes)
        assert caught.value.spec is errors.replicate.UPDATE_REMAPS


def test_a_table_that_comes_gets_the_transform_that_holds_then() -> None:
    changes = _changes(_config("a_1"), _config("a_1", "a_2"), ("a_1",), ("a_1", "a_2"))
    assert _names(changes) == {"Joins": {"a_2"}}
    narrow = _config("a_1", "a_2")
    narrow.transforms.add(name="t", schema_pattern="shard", table_pattern="a_2", filter="id > 0")
    changes = _changes(_config("a_1"), narrow, ("a_1",), ("a_1", "a_2"))
    assert _names(changes) == {"Joins": {"a_2"}}
    [plan] = tables_to_copy(SOURCE, changes)
    assert plan.transform is not None


def test_a_start_may_bring_another_projection_but_no_other_filter() -> None:
    def plans(projection: str, condition: str) -> list[TablePlan]:
        return [Rules.from_config(_transformed(projection, condition)).plan(0, SOURCE, _table("a_1"))]

    check_transform_filters(plans("*", "id > 0"), plans("id, upper(v) AS v", "id > 0"))
    check_transform_filters(plans("*", ""), plans("", ""))
    check_transform_filters([], plans("", "id > 0"))
    for before, after in (("id > 0", "id > 1"), ("", "id > 1"), ("id > 0", "")):
        with pytest.raises(ShardmergeError) as caught:
            check_transform_filters(plans("*", before), plans("*", after))
        assert caught.value.spec is errors.replicate.TRANSFORM_FILTER_CHANGED


def test_a_table_that_once_left_joins_under_a_new_number() -> None:
    changes = _changes(_config("a_2"), _config("a_1", "a_2"), ("a_1", "a_2"))
    assert [(plan.shard, plan.table.name) for plan in tables_to_copy(SOURCE, changes)] == [(2, "a_1")]


def test_another_target_is_to_be_copied_anew() -> None:
    changes = _changes(_config("a_1", "a_2"), _config("a_1", "a_2", target="other"), ("a_1", "a_2"))
    assert _names(changes) == {"Moves": {"a_1", "a_2"}}
    assert [plan.shard for plan in tables_to_copy(SOURCE, changes)] == [2, 3]
    assert {plan.target_table for plan in tables_to_copy(SOURCE, changes)} == {"other"}


def test_rows_are_not_written_otherwise_beside_those_that_are_there() -> None:
    changes = _changes(_config("a_1"), _config("a_1", number="2"), ("a_1",))
    assert _names(changes) == {"Remaps": {"a_1"}}
    with pytest.raises(ShardmergeError) as caught:
        tables_to_copy(SOURCE, changes)
    assert caught.value.spec is errors.replicate.UPDATE_REMAPS


def test_tables_with_one_number_are_refused_also_when_one_of_them_joins() -> None:
    with pytest.raises(ShardmergeError) as caught:
        _changes(_config("a_1"), _config("a_1", "a_01"), ("a_1",), ("a_1", "a_01"))
    assert caught.value.spec is errors.config.PARTITION_CLASH


def _joining(config: pb.SubTaskConfig, tables: tuple[Table, ...], *shards: int) -> Joining:
    return Joining(replace(_dealing(config, tables), shards=frozenset(shards)), START)


def test_what_is_on_its_way_does_not_join_twice() -> None:
    tables = tuple(map(_table, ("a_1", "a_2")))
    config = _config("a_1", "a_2")
    assert _changes(config, config, ("a_1", "a_2"), joining=_joining(config, tables, 1)) == ()
    assert _names(_changes(config, _config("a_1"), ("a_1", "a_2"), joining=_joining(config, tables, 1))) == {
        "Leaves": {"a_2"}
    }


def test_what_is_no_longer_wanted_so_does_not_join() -> None:
    tables = tuple(map(_table, NAMES[:3]))
    joining = _joining(_config(*NAMES[:3]), tables, 1, 2)
    assert keep_unchanged(joining, SOURCE, tables, Rules.from_config(_config(*NAMES[:3]))) == joining
    left = keep_unchanged(joining, SOURCE, tables, Rules.from_config(_config("a_1", "a_3")))
    assert left is not None
    assert left.partitioning.shards == {2}
    assert left.names(tables) == {("shard", "a_3")}
    assert keep_unchanged(joining, SOURCE, tables, Rules.from_config(_config("a_1"))) is None
    assert keep_unchanged(joining, SOURCE, tables, Rules.from_config(_config(*NAMES[:3], number="2"))) is None
    assert keep_unchanged(joining, SOURCE, tables, Rules.from_config(_config(*NAMES[:3], target="other"))) is None


def test_the_record_survives_its_text() -> None:
    joining = _joining(_config("a_1"), (_table("a_1"),), 0)
    assert Joining.from_json(joining.to_json()) == joining
    assert Joining.from_json("") is None


@given(
    before=st.sets(st.sampled_from(NAMES[:3]), min_size=1),
    after=st.sets(st.sampled_from(NAMES[:3]), min_size=1),
    present=st.sets(st.sampled_from(NAMES)),
)
def test_afterwards_exactly_the_wanted_tables_take_part(before: set[str], after: set[str], present: set[str]) -> None:
    """Each by one number; none of those that were there is copied again."""
    recorded = tuple(sorted(before))
    tables = tuple(map(_table, recorded))
    old, new = _config(*sorted(before)), _config(*sorted(after))
    changes = _changes(old, new, recorded, tuple(sorted(present)))
    comes = tables_to_copy(SOURCE, changes)
    own = _dealing(old, tables)
    leaves = {change.plan.shard for change in changes if isinstance(change, Leaves)}
    joined = replace(own, shards=frozenset(plan.shard for plan in comes))
    everybody = (*tables, *(plan.table for plan in comes))
    taking_part = [
        everybody[at].name for at in merge_partitionings(replace(own, shards=own.shards - leaves), joined).shards
    ]
    assert sorted(taking_part) == sorted((before & after) | (after & present))
    assert not {plan.table.name for plan in comes} & before
