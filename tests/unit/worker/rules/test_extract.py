"""Columns from names (DM docs: "Extract table, schema, and source information and write into the merged table"; tidb
pkg/util/table-router/router.go, ``extractVal``, ``FetchExtendColumn``)."""

from __future__ import annotations

import pytest

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import Constant, ExtractInKey
from shardmerge.worker.rules import Rules
from tests.support.plans import integer, text


def route(
    name: str, schema: str, table: str, *, of_table: str = "", of_schema: str = "", of_source: str = ""
) -> pb.RouteRule:
    def column(pattern: str, target: str) -> pb.ExtractColumn | None:
        return pb.ExtractColumn(pattern=pattern, target_column=target) if pattern else None

    return pb.RouteRule(
        name=name,
        schema_pattern=schema,
        table_pattern=table,
        target_schema="all",
        target_table="orders",
        extract_table=column(of_table, "c_table"),
        extract_schema=column(of_schema, "c_schema"),
        extract_source=column(of_source, "c_source"),
    )


def rules(*routes: pb.RouteRule) -> Rules:
    return Rules.from_config(pb.SubTaskConfig(source_id="mysql-01", routes=routes))


def table(*names: str, key: tuple[int, ...] = (0,)) -> Table:
    columns = (integer(), *(text(name) for name in names))
    return Table("shop_02", "order_003", columns, key, "PRIMARY" if key else "", (), False, "InnoDB")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"of_table": "order_(.*)"}, {"c_table": "003"}, id="what the group finds"),
        pytest.param({"of_table": "(o)rder_0(.*)"}, {"c_table": "o03"}, id="groups one after the other"),
        pytest.param({"of_table": "log_(.*)"}, {"c_table": ""}, id="nothing found: empty"),
        pytest.param({"of_table": "(x)?order"}, {"c_table": ""}, id="a group that takes no part"),
        pytest.param({"of_schema": "_(.*)"}, {"c_schema": "02"}, id="searched anywhere"),
        pytest.param({"of_source": "(.*)-(.*)"}, {"c_source": "mysql01"}, id="the source's id"),
        pytest.param(
            {"of_source": "(.*)", "of_schema": "(.*)", "of_table": "(.*)"},
            {"c_table": "order_003", "c_schema": "shop_02", "c_source": "mysql-01"},
            id="in the order table, schema, source",
        ),
    ],
)
def test_texts(given: dict[str, str], expected: dict[str, str]) -> None:
    plan = rules(route("r", "shop_*", "order_*", **given)).plan(0, "mysql-01", table("v"))
    constant = [(item.target_name, item.mapping) for item in plan.columns if item.is_constant]
    assert constant == [(name, Constant(value)) for name, value in expected.items()]
    assert plan.key == (0, *range(2, 2 + len(expected)))
    assert plan.source_key == (0,)


def test_a_table_without_a_key_gets_none_by_it() -> None:
    plan = rules(route("r", "shop_*", "order_*", of_table="(.*)")).plan(0, "mysql-01", table("v", key=()))
    assert plan.key == ()
    assert plan.columns[-1].is_constant


def test_the_most_specific_route_determines_the_columns() -> None:
    found = rules(
        route("wide", "shop_*", "", of_table="(.*)"), route("narrow", "shop_*", "order_*", of_schema="_(.*)")
    ).plan(0, "mysql-01", table("v"))
    assert [item.target_name for item in found.columns if item.is_constant] == ["c_schema"]


def test_routes_that_disagree_about_columns_alone_are_a_conflict() -> None:
    with pytest.raises(ShardmergeError) as caught:
        rules(
            route("one", "~shop_", "order_*", of_table="(.*)"), route("two", "shop_*", "order_*", of_table="_(.*)")
        ).route("shop_02", "order_003")
    assert caught.value.spec is errors.config.AMBIGUOUS_ROUTE


def test_a_column_of_that_name_is_refused_whatever_its_case() -> None:
    given = route("r", "shop_*", "order_*", of_table="(.*)")
    given.extract_table.target_column = "C_TABLE"
    with pytest.raises(ShardmergeError) as caught:
        rules(given).plan(0, "mysql-01", table("C_Table"))
    assert caught.value.spec is errors.config.EXTRACT_CLASH


def test_recorded_rules_have_no_source_and_get_that_of_the_table() -> None:
    recorded = Rules.from_config(pb.SubTaskConfig(routes=[route("r", "shop_*", "order_*", of_source="(.*)")]))
    for source in ("mysql-01", "mysql-02"):
        [column] = [item for item in recorded.plan(0, source, table("v")).columns if item.is_constant]
        assert column.mapping == Constant(source)


@pytest.mark.parametrize(
    ("of_task", "of_route", "expected"),
    [
        (pb.EXTRACT_IN_KEY_UNSPECIFIED, pb.EXTRACT_IN_KEY_UNSPECIFIED, ExtractInKey.NEVER),
        (pb.EXTRACT_IN_KEY_AUTO, pb.EXTRACT_IN_KEY_UNSPECIFIED, ExtractInKey.AUTO),
        (pb.EXTRACT_IN_KEY_AUTO, pb.EXTRACT_IN_KEY_ALWAYS, ExtractInKey.ALWAYS),
        (pb.EXTRACT_IN_KEY_ALWAYS, pb.EXTRACT_IN_KEY_NEVER, ExtractInKey.NEVER),
    ],
)
def test_columns_in_keys(of_task: pb.ExtractInKey, of_route: pb.ExtractInKey, expected: ExtractInKey) -> None:
    made = route("r", "shop_*", "order_*", of_table="(.)(.*)")
    made.extract_in_key = of_route
    given = pb.SubTaskConfig(source_id="mysql-01", routes=[made], extract_in_key=of_task)
    arguments = ["1", "shop_", "order_"]
    for parts, own in ((arguments, {"id"}), (["1", "shop_", ""], set[str]())):
        del given.column_mappings[:]
        given.column_mappings.add(
            name="m", schema_pattern="shop_*", table_pattern="order_*", source_column="id", target_column="id",
            expression="partition id", arguments=parts,
        )  # fmt: skip
        plan = Rules.from_config(given).plan(0, "mysql-01", table("v"))
        assert (plan.extract_in_key, plan.own_columns) == (expected, own)
    [column] = [item.mapping for item in plan.columns if isinstance(item.mapping, Constant)]
    assert column.most == 128
