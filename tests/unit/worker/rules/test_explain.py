"""The explanation of a table's rules, compared with the functions that decide."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.table_plan import PartitionId
from shardmerge.worker.rules import EffectiveRule, Rules, explain
from tests.unit.worker.rules.test_rules import PATTERNS, ROUTES, mapping, rules, table

TABLE = st.builds(pb.TableName, schema=PATTERNS, table=PATTERNS)
LISTS = st.builds(
    pb.BlockAllowList,
    name=st.just("some"),
    do_dbs=st.lists(PATTERNS, max_size=2),
    ignore_dbs=st.lists(PATTERNS, max_size=2),
    do_tables=st.lists(TABLE, max_size=2),
    ignore_tables=st.lists(TABLE, max_size=2),
)


def said(some: Rules, schema: str, name: str, kind: str) -> EffectiveRule:
    [found] = [rule for rule in explain(some, schema, name).rules if rule.kind == kind]
    return found


@given(ROUTES, LISTS, st.sampled_from(["ab", "ac", "b", "sys"]), st.sampled_from(["ab", "ac", "b", "_b_gho"]))
def test_an_explanation_is_what_happens(
    routes: list[tuple[str, str, str, str]], block: pb.BlockAllowList, schema: str, name: str
) -> None:
    some = rules(routes, block)
    found = explain(some, schema, name)
    try:
        route = some.route(schema, name)
    except ShardmergeError as error:
        assert found.takes_part
        assert found.target is None
        assert found.error is not None
        assert found.error.message == error.message
        return
    assert found.error is None
    assert found.target == route
    assert found.takes_part is (route is not None)
    if route is None:
        return
    [by] = [rule for rule in found.rules if rule.kind == "route-rules"]
    won = [number for number in range(len(routes)) if f"r{number}" in by.name.split(", ")]
    assert {(routes[at][2], routes[at][3]) for at in won} <= {(route.target_schema, route.target_table)}
    # Without those that are said to have won, another one decides or the table keeps its name.
    left = [each for at, each in enumerate(routes) if at not in won]
    alone = rules(left).router.choose(schema, name) if won and not by.overridden else None
    assert alone is None or not alone.rules.best


def test_who_won_over_whom() -> None:
    some = rules([("s_*", "", "all", ""), ("s_*", "t_*", "s", "t"), ("s_*", "t_1*", "s", "ones")])
    assert said(some, "s_1", "t_12", "route-rules") == EffectiveRule(
        "route-rules", "r2", "matches s_*.t_1*", ("r0", "r1")
    )
    assert said(some, "s_1", "x", "route-rules") == EffectiveRule("route-rules", "r0", "matches s_*", ())
    assert said(some, "other", "x", "route-rules") == EffectiveRule("route-rules", "", "no route: it keeps its name")


@pytest.mark.parametrize(
    ("block", "schema", "name", "takes_part", "why"),
    [
        ({}, "s", "t", True, "nothing excludes it"),
        ({"do_dbs": ["a*", "s*"]}, "s", "t", True, "do-dbs has s*"),
        ({"do_dbs": ["a*"]}, "s", "t", False, "no entry of do-dbs matches"),
        ({"ignore_dbs": ["~^s$"]}, "s", "t", False, "ignore-dbs has ~^s$"),
        ({"do_tables": [pb.TableName(schema="s", table="t*")]}, "s", "t", True, "do-tables has s.t*"),
        ({"do_tables": [pb.TableName(schema="s", table="u*")]}, "s", "t", False, "no entry of do-tables matches"),
        ({"ignore_tables": [pb.TableName(schema="s", table="t")]}, "s", "t", False, "ignore-tables has s.t"),
        ({}, "sys", "t", False, "a schema of the server itself, or of this program's records"),
    ],
)
def test_which_entry_decides(
    block: dict[str, list[object]], schema: str, name: str, takes_part: bool, why: str
) -> None:
    some = rules(block=pb.BlockAllowList(name="users", **block))  # pyright: ignore[reportArgumentType]
    found = explain(some, schema, name)
    assert found.takes_part is takes_part
    assert said(some, schema, name, "block-allow-list") == EffectiveRule("block-allow-list", "users", why)


def test_tables_of_an_online_schema_change_say_whose_they_are() -> None:
    some = Rules.from_config(
        pb.SubTaskConfig(
            task="t",
            source_id="src",
            online_ddl=pb.OnlineDdl(shadow_tables=["^_(.+)_gho$"], trash_tables=["^_(.+)_del$"]),
        )
    )
    assert (
        said(some, "s", "_cart_gho", "block-allow-list").text == "the shadow table of an online schema change of cart"
    )
    assert said(some, "s", "_cart_del", "block-allow-list").text == "left over from an online schema change of cart"


def test_partition_id_is_explained_with_numbers_and_bits() -> None:
    some = rules(
        [("s_*", "t_*", "s", "t")],
        mappings=[
            mapping("wide", "id", "partition id", ["1", "s_", "t_"], tables="*"),
            mapping("ids", "id", "partition id", ["9", "", "t_"]),
            mapping("who", "name", "add prefix", ["s1-"]),
        ],
    )
    ids, who = (rule for rule in explain(some, "s_2", "t_3").rules if rule.kind == "column-mapping-rules")
    assert (ids.name, ids.overridden) == ("ids", ("wide",))
    assert (who.name, who.text) == ("who", "name: add prefix 's1-'")
    numbers = re.fullmatch(
        r"id: partition id, instance (\d+) in (\d+) bits, table (\d+) in (\d+) bits, the id in (\d+)", ids.text
    )
    assert numbers is not None, ids.text
    instance, instance_bits, number, bits, left = map(int, numbers.groups())
    done = some.plan(0, "src", table("s_2", "t_3")).columns[0].mapping
    assert done == PartitionId(instance << (63 - instance_bits) | number << (63 - instance_bits - bits), left)


def test_what_a_task_would_refuse() -> None:
    some = rules([("s_*", "t_*", "s", "t")], mappings=[mapping("m", "nope", "add prefix", ["x"])])
    assert explain(some, "s_1", "t_1").error is None, "its columns are not known"
    error = explain(some, "s_1", "t_1", table("s_1", "t_1")).error
    assert error is not None
    assert error.spec is errors.config.MAPPED_COLUMN_MISSING
    numbers = rules(mappings=[mapping("m", "id", "partition id", ["1", "s_", "t_"])])
    found = explain(numbers, "s_x", "t_1")
    assert found.error is not None
    assert found.error.spec is errors.config.PARTITION_NAME
    assert found.target is not None


def test_the_transform_that_holds() -> None:
    wide = pb.Transform(name="wide", schema_pattern="s_*", projection="*")
    fit = pb.Transform(
        name="fit", schema_pattern="s_*", table_pattern="t_*", projection="id, n * 2 AS twice", filter="n > 0"
    )
    some = Rules.from_config(pb.SubTaskConfig(task="t", source_id="src", transforms=[wide, fit]))
    text = "projection: id, n * 2 AS twice, filter: n > 0"
    assert said(some, "s_1", "t_1", "transform-rules") == EffectiveRule("transform-rules", "fit", text, ("wide",))
    assert not [rule for rule in explain(some, "x", "t_1").rules if rule.kind == "transform-rules"]


def test_filters_are_listed_in_the_order_of_evaluation() -> None:
    subtask = pb.SubTaskConfig(
        source_id="s1",
        routes=[
            pb.RouteRule(
                name="r",
                schema_pattern="shop_*",
                target_schema="shop",
                extract_schema=pb.ExtractColumn(pattern="^shop_(.*)$", target_column="shop_no"),
            )
        ],
        source_filters=[
            pb.EventFilter(
                name="filters[0]", schema_pattern="shop_*", events=["drop table"], action="FILTER_ACTION_ERROR"
            )
        ],
        event_filters=[
            pb.EventFilter(
                name="keep",
                schema_pattern="shop_*",
                table_pattern="order*",
                events=["delete"],
                sql_patterns=["^ALTER"],
                action="FILTER_ACTION_IGNORE",
            ),
            pb.EventFilter(name="other", schema_pattern="b", events=["all"], action="FILTER_ACTION_IGNORE"),
        ],
        expression_filters=[
            pb.ExpressionFilter(
                name="old", schema="shop_1", table="orders", update_old_value="a = 1", update_new_value="b = 2"
            ),
            pb.ExpressionFilter(name="no", schema="shop_1", table="items", insert_value="a = 1"),
        ],
    )
    found = explain(Rules.from_config(subtask), "shop_1", "orders").rules
    assert [(rule.kind, rule.name, rule.text) for rule in found[1:]] == [
        ("route-rules", "r", "matches shop_*, adds shop_no = '1'"),
        ("filter-rules", "filters[0]", "stops before: drop table"),
        ("filter-rules", "keep", "skips: delete, statements that a sql-pattern finds"),
        ("expression-filters", "old", "skips rows where update-old-value: a = 1 and update-new-value: b = 2"),
    ]
