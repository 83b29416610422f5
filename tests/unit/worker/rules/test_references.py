"""Tests references: which shard table a shard table refers to, and the mapping that its column gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.table import Column, Table
from shardmerge.worker.core.table_plan import AddPrefix, Mapping, PartitionId
from shardmerge.worker.rules import Rules, explain
from tests.support.plans import integer, text


def rules(*references: pb.ReferenceRule, users: str = "users", schema: str = "") -> Rules:
    """Routes ``users*`` and ``orders*`` of every schema to two tables, and maps ``users.id``."""
    config = pb.SubTaskConfig(
        source_id="s",
        routes=[
            pb.RouteRule(schema_pattern="*", table_pattern="users*", target_schema="m", target_table=users),
            pb.RouteRule(schema_pattern="*", table_pattern="orders*", target_schema="m", target_table="orders"),
        ],
        column_mappings=[
            pb.ColumnMappingRule(
                name="ids",
                schema_pattern="*",
                table_pattern="users*",
                target_column="id",
                expression="partition id",
                arguments=["1", schema, "users", "_"],
            ),
            pb.ColumnMappingRule(
                name="tokens",
                schema_pattern="*",
                table_pattern="users*",
                target_column="token",
                expression="add prefix",
                arguments=["s1-"],
            ),
        ],
        references=references,
    )
    return Rules.from_config(config)


def reference(
    column: str = "orders.user_id", to: str = "users.id", shard_table: str = "", shard_schema: str = ""
) -> pb.ReferenceRule:
    table, name = column.split(".")
    to_table, to_name = to.split(".")
    return pb.ReferenceRule(
        table=table,
        column=name,
        to_table=to_table,
        to_column=to_name,
        shard_table=shard_table,
        shard_schema=shard_schema,
    )


def mapped(some: Rules, name: str, *columns: Column) -> dict[str, Mapping | None]:
    schema, _, table = name.partition(".")
    own = columns or (integer("id"), integer("user_id"), text("token"))
    plan = some.plan(0, "s", Table(schema, table, own, (0,), "PRIMARY", ((own[0].name,),), False, "InnoDB"))
    return {each.target_name: each.mapping for each in plan.columns}


def _prefix(table: int) -> int:
    return 1 << 59 | table << 51


@pytest.mark.parametrize(
    ("table", "more", "number", "is_shared"),
    [
        ("a.orders_3", {}, 3, False),
        ("a.orders", {}, 0, False),
        ("a.ORDERS_3", {}, 3, True),
        ("a.orders_3", {"shard_table": "users"}, 0, True),
        ("a.orders_003", {"shard_table": "users_*"}, 3, True),
        ("a.orders_old_7", {"shard_table": "users_*"}, 7, True),
        ("a.orders_3", {"shard_schema": "b"}, 3, True),
    ],
)
def test_the_mapping_of_the_shard_table_it_refers_to(
    table: str, more: dict[str, str], number: int, is_shared: bool
) -> None:
    found = mapped(rules(reference(**more)), table)
    assert found["user_id"] == PartitionId(_prefix(number), 51, is_shared)
    assert found["id"] is None
    assert found["token"] is None


def test_a_reference_within_one_table_is_to_the_shard_table_itself() -> None:
    some = rules(reference("users.parent_id"))
    own = (integer("id"), integer("parent_id"), text("token"))
    for name, number in (("a.users_3", 3), ("a.users", 0)):
        found = mapped(some, name, *own)
        assert found["parent_id"] == found["id"] == PartitionId(_prefix(number), 51)


def test_texts() -> None:
    assert mapped(rules(reference("orders.token", "users.token")), "a.orders_3")["token"] == AddPrefix("s1-")


def test_what_is_not_there_is_not_mapped() -> None:
    assert mapped(rules(reference("orders.nosuch")), "a.orders_3")["user_id"] is None
    assert mapped(rules(reference(to="users.name")), "a.orders_3")["user_id"] is None
    assert mapped(rules(reference("lines.user_id")), "a.orders_3")["user_id"] is None


@pytest.mark.parametrize(
    ("more", "table", "spec"),
    [
        ({"shard_table": "users_*"}, "a.orders", errors.config.REFERENCE_SHARD),  # no digits
        ({"shard_table": "lines"}, "a.orders_3", errors.config.REFERENCE_SHARD),  # another target
        ({}, "a.orders_x", errors.config.PARTITION_NAME),
    ],
)
def test_what_is_unclear_is_refused(more: dict[str, str], table: str, spec: ErrorSpec) -> None:
    with pytest.raises(ShardmergeError) as caught:
        mapped(rules(reference(**more)), table)
    assert caught.value.spec is spec
    schema, name = table.split(".")
    assert explain(rules(reference(**more)), schema, name).error is not None


def test_a_name_that_does_not_begin_like_its_target() -> None:
    some = rules(reference(to="people.id"), users="people")
    with pytest.raises(ShardmergeError) as caught:
        mapped(some, "a.orders_3")
    assert caught.value.spec is errors.config.REFERENCE_SHARD
    assert "people_3" in caught.value.message
    with_name = rules(reference(to="people.id", shard_table="users_*"), users="people")
    assert mapped(with_name, "a.orders_3")["user_id"] == PartitionId(_prefix(3), 51, is_shared=True)


def test_a_column_that_two_rules_map_differently() -> None:
    two = rules(reference(), reference(shard_table="users_9"))
    with pytest.raises(ShardmergeError) as caught:
        mapped(two, "a.orders_3")
    assert caught.value.spec is errors.config.REFERENCE_CLASH


def test_columns_that_cannot_be_mapped() -> None:
    with pytest.raises(ShardmergeError) as caught:
        mapped(rules(reference()), "a.orders_3", integer("id"), text("user_id"))
    assert caught.value.spec is errors.config.MAPPED_COLUMN_TYPE


def test_an_explanation() -> None:
    [found] = [rule for rule in explain(rules(reference()), "a", "orders_3").rules if rule.kind == "references"]
    assert found.text == (
        "user_id: refers to a.users_3.id; partition id, instance 1 in 4 bits, table 3 in 8 bits, the id in 51"
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 127), st.sampled_from(["orders_{}", "Orders_{}", "orders_x_{}"]), st.integers(0, 255)),
        min_size=2,
        max_size=6,
        unique=True,
    ),
    st.sampled_from([{}, {"shard_table": "users_*"}, {"shard_table": "users"}]),
)
def test_shard_tables_with_the_same_ids_are_marked(tables: list[tuple[int, str, int]], more: dict[str, str]) -> None:
    """Two shard tables refer to the same ids only if one of their mappings is marked."""
    some = rules(reference(**more), schema="a")
    found: dict[int, tuple[str, bool]] = {}
    for schema, name, number in tables:
        full = f"a_{schema}.{name.format(number)}"
        try:
            mapping = mapped(some, full)["user_id"]
        except ShardmergeError:
            continue
        assert isinstance(mapping, PartitionId)
        other, is_shared = found.setdefault(mapping.prefix, (full, mapping.is_shared))
        assert other == full or is_shared or mapping.is_shared


def test_a_reference_to_a_column_that_refers_itself() -> None:
    """A composite key: the column gets the mapping at the end of the chain. A circle without a mapping has none."""
    chain = [reference("orders.code", "users.user_id"), reference("users.user_id", "users.id")]
    columns = (integer("id"), integer("user_id"), integer("code"), text("token"))
    for some in (rules(*chain), rules(*reversed(chain))):
        assert mapped(some, "a.orders_3", *columns)["code"] == PartitionId(_prefix(3), 51)
        assert mapped(some, "a.users_3", *columns)["user_id"] == PartitionId(_prefix(3), 51)
    shared = rules(chain[0], reference("users.user_id", "users.id", shard_table="users_7"))
    assert mapped(shared, "a.orders_3", *columns)["code"] == PartitionId(_prefix(7), 51, is_shared=True)
    circle = rules(reference("orders.code", "users.user_id"), reference("users.user_id", "orders.code"))
    assert mapped(circle, "a.orders_3", *columns)["code"] is None
