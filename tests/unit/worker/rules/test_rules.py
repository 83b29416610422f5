"""Routes, block-allow lists and plans of a subtask."""

from __future__ import annotations

import itertools
import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import AddPrefix, PartitionId, TablePlan
from shardmerge.worker.rules import Rules, TableRoute, check_partitions


def rules(
    routes: list[tuple[str, str, str, str]] | None = None,
    block: pb.BlockAllowList | None = None,
    mappings: list[pb.ColumnMappingRule] | None = None,
    case_sensitive: bool = False,
) -> Rules:
    return Rules.from_config(
        pb.SubTaskConfig(
            task="t",
            source_id="src",
            meta_schema="dm_meta",
            case_sensitive=case_sensitive,
            block_allow_list=block,
            routes=[
                pb.RouteRule(
                    name=f"r{number}",
                    schema_pattern=schema,
                    table_pattern=table,
                    target_schema=target_schema,
                    target_table=target_table,
                )
                for number, (schema, table, target_schema, target_table) in enumerate(routes or [])
            ],
            column_mappings=mappings,
        )
    )


def table(schema: str, name: str, **changes: object) -> Table:
    columns = (
        Column("id", ValueKind.INTEGER, "int(11)", False, auto_increment=True),
        Column("name", ValueKind.STRING, "varchar(20)", True),
        Column("twice", ValueKind.INTEGER, "int(11)", True, generated=True),
        Column("ref", ValueKind.INTEGER, "bigint(20)", False),
    )
    base: dict[str, object] = {
        "schema": schema,
        "name": name,
        "columns": columns,
        "key": (0,),
        "key_name": "PRIMARY",
        "unique_keys": (("id",),),
        "has_foreign_keys": False,
        "engine": "InnoDB",
    }
    return Table(**{**base, **changes})  # pyright: ignore[reportArgumentType]


def mapping(name: str, column: str, expression: str, arguments: list[str], tables: str = "t_*") -> pb.ColumnMappingRule:
    return pb.ColumnMappingRule(
        name=name,
        schema_pattern="s_*",
        table_pattern=tables,
        target_column=column,
        expression=expression,
        arguments=arguments,
    )


def test_without_rules_a_table_keeps_its_name() -> None:
    assert rules().route("Shop", "Cart") == TableRoute("Shop", "Cart")


@pytest.mark.parametrize("schema", ["mysql", "SYS", "information_schema", "performance_schema", "DM_META"])
def test_reserved_schemas_take_no_part(schema: str) -> None:
    some = rules([("*", "*", "x", "y")])
    assert some.route(schema, "t") is None
    assert not some.may_hold(schema)


def test_table_rules_beat_schema_rules_and_names_beat_wildcards() -> None:
    some = rules(
        [
            ("s_*", "", "all", ""),
            ("s_*", "t_*", "s", "t"),
            ("s_*", "t_1*", "s", "ones"),
            ("s_*", "t_11", "s", "eleven"),
            ("s_*", "~^t_11$", "s", "never"),
        ]
    )
    assert some.route("s_1", "x") == TableRoute("all", "x")
    assert some.route("s_1", "t_2") == TableRoute("s", "t")
    assert some.route("s_1", "t_12") == TableRoute("s", "ones")
    assert some.route("S_1", "T_11") == TableRoute("s", "eleven")
    assert some.route("other", "t_1") == TableRoute("other", "t_1")


@pytest.mark.parametrize(
    "routes",
    [
        [("s_1", "t_*", "a", "a"), ("s_*", "t_1", "b", "b")],
        [("s_1", "t_*", "a", "a"), ("s_1", "~^t", "b", "b")],
        [("s_[1-3]", "t_1", "a", "a"), ("s_[13]", "t_1", "b", "b")],
        [("s_*", "", "a", "a"), ("~s", "", "b", "b")],
    ],
)
def test_rules_that_cannot_be_compared_stop(routes: list[tuple[str, str, str, str]]) -> None:
    with pytest.raises(ShardmergeError) as caught:
        rules(routes).route("s_1", "t_1")
    assert caught.value.spec is errors.config.AMBIGUOUS_ROUTE
    assert "src" in caught.value.message
    assert "r0, r1" in caught.value.message
    agreed = [(schema, name, "same", "target") for schema, name, _, _ in routes]
    assert rules(agreed).route("s_1", "t_1") == TableRoute("same", "target")


PATTERNS = st.sampled_from(["*", "a*", "ab", "a?", "a[bc]", "?b", "[ab]*", "~a", "~^ab$", "ac", "b*", "??"])
ROUTES = st.lists(st.tuples(PATTERNS, PATTERNS | st.just(""), st.sampled_from("xyz"), st.just("t")), max_size=6)


def outcome(routes: list[tuple[str, str, str, str]], schema: str, name: str) -> object:
    try:
        return rules(routes).route(schema, name)
    except ShardmergeError as error:
        return error.code


@given(ROUTES, st.sampled_from(["ab", "ac", "b", "abc"]), st.sampled_from(["ab", "ac", "b"]), st.randoms())
def test_the_order_of_rules_does_not_matter(
    routes: list[tuple[str, str, str, str]], schema: str, name: str, dice: random.Random
) -> None:
    shuffled = routes[:]
    dice.shuffle(shuffled)
    assert outcome(routes, schema, name) == outcome(shuffled, schema, name)


@given(ROUTES, st.sampled_from("xyz"))
def test_a_rule_of_exact_names_always_wins(routes: list[tuple[str, str, str, str]], target: str) -> None:
    others = [route for route in routes if route[:2] != ("ab", "ab")]
    assert outcome([*others, ("ab", "ab", f"own-{target}", "t")], "ab", "ab") == TableRoute(f"own-{target}", "t")


def names(*pairs: str) -> list[pb.TableName]:
    return [pb.TableName(schema=pair.split(".")[0], table=pair.split(".")[1]) for pair in pairs]


DB_LISTS = st.lists(PATTERNS, max_size=2)
TABLE_LISTS = st.lists(st.builds(pb.TableName, schema=PATTERNS, table=PATTERNS), max_size=2)


@given(DB_LISTS, DB_LISTS, TABLE_LISTS, TABLE_LISTS)
def test_may_hold_is_true_for_every_schema_with_a_routed_table(
    do: list[str], ignore: list[str], do_tables: list[pb.TableName], ignore_tables: list[pb.TableName]
) -> None:
    some = rules(
        block=pb.BlockAllowList(do_dbs=do, ignore_dbs=ignore, do_tables=do_tables, ignore_tables=ignore_tables)
    )
    for schema, name in itertools.product(["ab", "ac", "b", "abc", "c"], repeat=2):
        if some.route(schema, name) is not None:
            assert some.may_hold(schema)


def test_may_hold_excludes_what_cannot() -> None:
    some = rules(block=pb.BlockAllowList(do_tables=names("s_*.t")))
    assert some.may_hold("s_9")
    assert not some.may_hold("x")


def test_case_sensitive_names() -> None:
    some = rules([("S_*", "t", "a", "b")], pb.BlockAllowList(do_dbs=["S_*"]), case_sensitive=True)
    assert some.route("S_1", "t") == TableRoute("a", "b")
    assert some.route("s_1", "t") is None


def test_plan() -> None:
    some = rules(
        [("s_*", "t_*", "s", "t")],
        mappings=[
            mapping("m1", "ID", "partition id", ["1", "s", "t", "_"]),
            mapping("m2", "name", "add prefix", ["x-"]),
        ],
    )
    plan = some.plan(3, "src", table("s_2", "t_5"))
    assert (plan.shard, plan.source, plan.target_schema, plan.target_table) == (3, "src", "s", "t")
    assert [column.index for column in plan.columns] == [0, 1, 3]
    assert [column.target_name for column in plan.columns] == ["id", "name", "ref"]
    assert plan.columns[0].mapping == PartitionId(1 << 59 | 2 << 52 | 5 << 44, 44)
    assert plan.columns[1].mapping == AddPrefix("x-")
    assert plan.columns[2].mapping is None
    assert plan.key == (0,)
    assert not plan.one_lane
    assert pickle.loads(pickle.dumps(some)).plan(3, "src", table("s_2", "t_5")) == plan


def test_plan_of_a_table_with_further_unique_keys_keeps_to_one_lane() -> None:
    plan = rules().plan(0, "src", table("s", "t", unique_keys=(("id",), ("name",))))
    assert plan.one_lane


def test_the_target_may_lack_rows_of_a_table_with_an_expression_filter() -> None:
    filtered = pb.ExpressionFilter(name="f", schema="s", table="t", insert_value="id > 1")
    some = Rules.from_config(pb.SubTaskConfig(meta_schema="dm_meta", expression_filters=[filtered]))
    assert [some.plan(0, "src", table("s", name)).may_lack_rows for name in "tu"] == [True, False]


def test_plan_of_a_key_with_a_generated_column() -> None:
    plan = rules().plan(0, "src", table("s", "t", key=(2,), unique_keys=(("twice",), ("name",), ("ref",))))
    assert plan.key == (2,)
    assert plan.one_lane
    assert rules().plan(0, "src", table("s", "t", key=(2,), unique_keys=(("twice",),))).key == ()
    assert rules().plan(0, "src", table("s", "t", key=(), unique_keys=())).key == ()


def test_the_most_specific_mapping_of_a_column_holds() -> None:
    some = rules(
        mappings=[
            mapping("m1", "name", "add prefix", ["any-"], tables=""),
            mapping("m2", "name", "add prefix", ["t-"], tables="t_*"),
            mapping("m3", "name", "add prefix", ["t1-"], tables="t_1"),
        ]
    )
    for name, text in (("x", "any-"), ("t_2", "t-"), ("t_1", "t1-")):
        assert some.plan(0, "src", table("s_1", name)).columns[1].mapping == AddPrefix(text)


@pytest.mark.parametrize(
    ("wrong", "spec"),
    [
        ([mapping("m", "nope", "add prefix", ["x"])], errors.config.MAPPED_COLUMN_MISSING),
        ([mapping("m", "twice", "partition id", ["1", "", ""])], errors.config.MAPPED_COLUMN_MISSING),
        ([mapping("m", "name", "partition id", ["1", "", ""])], errors.config.MAPPED_COLUMN_TYPE),
        ([mapping("m", "id", "add suffix", ["x"])], errors.config.MAPPED_COLUMN_TYPE),
        ([mapping("m", "id", "partition id", ["1", "x", ""])], errors.config.PARTITION_NAME),
        (
            [mapping("m", "name", "add prefix", ["x"]), mapping("n", "name", "add prefix", ["y"])],
            errors.config.AMBIGUOUS_MAPPING,
        ),
    ],
)
def test_mappings_that_do_not_fit_the_table_stop(wrong: list[pb.ColumnMappingRule], spec: errors.ErrorSpec) -> None:
    with pytest.raises(ShardmergeError) as caught:
        rules(mappings=wrong).plan(0, "src", table("s_1", "t_1"))
    assert caught.value.spec is spec
    assert spec.placeholders() <= caught.value.values.keys()


def test_a_bad_pattern_is_a_coded_error() -> None:
    with pytest.raises(ShardmergeError) as caught:
        rules([("s_*x", "t", "a", "b")])
    assert caught.value.spec is errors.config.PATTERN


def test_tables_with_the_same_partition_number_clash() -> None:
    some = rules([("*", "*", "s", "t")], mappings=[mapping("m1", "id", "partition id", ["1", "s", "t", "_"], "*")])

    def plans(*pairs: str) -> list[TablePlan]:
        return [some.plan(at, "src", table(*pair.split("."))) for at, pair in enumerate(pairs)]

    check_partitions(plans("s_1.t_1", "s_1.t_2", "s_2.t_1"))
    for first, second in (("s_1.t_1", "s_1.t_01"), ("s_1.t", "s_1.t_0"), ("s_1.t_1", "s_001.t_1")):
        with pytest.raises(ShardmergeError) as caught:
            check_partitions(plans(first, second))
        assert caught.value.spec is errors.config.PARTITION_CLASH


IN_ONE_SCHEMA = [("shop", "t_*", "m", "t")]
IN_ONE_TABLE = [("shop_*", "orders", "m", "t"), ("shop_*", "other", "m", "other")]
NAMES_STAY = [("shop_*", "", "m", "")]


@pytest.mark.parametrize(
    ("routes", "arguments", "own"),
    [
        (IN_ONE_SCHEMA, ["1", "", "t", "_"], True),
        (IN_ONE_SCHEMA, ["", "", "t", "_"], False),  # other sources may have the same tables
        (IN_ONE_SCHEMA, ["1", "", ""], False),
        ([*IN_ONE_SCHEMA, ("shop", "u_*", "m", "t")], ["1", "", "t", "_"], True),
        ([*IN_ONE_SCHEMA, ("shop_*", "t_*", "m", "t")], ["1", "", "t", "_"], False),
        ([*IN_ONE_SCHEMA, ("*", "", "m", "")], ["1", "", "t", "_"], False),  # each schema's table `t`
        ([*IN_ONE_SCHEMA, ("*", "", "n", "")], ["1", "", "t", "_"], True),
        ([("~^shop$", "t_*", "m", "t")], ["1", "", "t", "_"], False),
        ([("shop", "t_*", "shop", "t")], ["1", "", "t", "_"], False),  # a table shop.t would go there too, as it is
        (IN_ONE_TABLE, ["1", "shop", "", "_"], True),
        (NAMES_STAY, ["1", "shop", "", "_"], True),
        ([*NAMES_STAY, ("shop_*", "t_*", "m", "t")], ["1", "shop", "", "_"], False),
    ],
)
def test_keys_are_a_tables_own_where_the_routes_tell_the_part_that_ids_do_not(
    routes: list[tuple[str, str, str, str]], arguments: list[str], own: bool
) -> None:
    mapping = pb.ColumnMappingRule(
        name="ids", schema_pattern="*", table_pattern="*", target_column="id", expression="partition id",
        arguments=arguments,
    )  # fmt: skip
    schema, name = routes[0][0].strip("~^$").replace("*", "1"), routes[0][1].replace("*", "1") or "t"
    block = pb.BlockAllowList(name="b", do_dbs=["shop*"])
    made = rules(routes, block, [mapping], case_sensitive=True)
    assert made.plan(0, "src", table(schema, name)).own_keys is own
    # Ranges of another layout might lie within these.
    other = pb.ColumnMappingRule(
        name="more", schema_pattern="*", table_pattern="z", target_column="id", expression="partition id",
        arguments=["2", "", ""],
    )  # fmt: skip
    made = rules(routes, block, [mapping, other], case_sensitive=True)
    assert made.plan(0, "src", table(schema, name)).own_keys is False
