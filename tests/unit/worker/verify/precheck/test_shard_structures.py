"""How the shard tables of one target, of several sources, are compared with each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, Constant, PartitionId, TablePlan
from shardmerge.worker.target.tables.column_fit import types_that_hold
from shardmerge.worker.verify.precheck.shard_structures import ShardGroup, compare_shards, structure_key

_KINDS = {
    "int": ValueKind.INTEGER,
    "bigint": ValueKind.INTEGER,
    "bigint unsigned": ValueKind.INTEGER,
    "decimal(65,0)": ValueKind.DECIMAL,
    "decimal(10,2)": ValueKind.DECIMAL,
    "decimal(40,30)": ValueKind.DECIMAL,
    "float(7,2)": ValueKind.FLOAT,
    "double": ValueKind.DOUBLE,
    "bit(1)": ValueKind.BIT,
    "date": ValueKind.DATE,
    "time": ValueKind.TIME,
    "datetime": ValueKind.DATETIME,
    "datetime(6)": ValueKind.DATETIME,
    "timestamp": ValueKind.TIMESTAMP,
    "year(4)": ValueKind.YEAR,
    "char(3)": ValueKind.STRING,
    "varchar(20)": ValueKind.STRING,
    "text": ValueKind.STRING,
    "varbinary(9)": ValueKind.BINARY,
    "uuid": ValueKind.BINARY,
    "enum('a')": ValueKind.ENUM,
    "set('a')": ValueKind.SET,
    "json": ValueKind.JSON,
    "point": ValueKind.GEOMETRY,
    "polygon": ValueKind.GEOMETRY,
    "vector(3)": ValueKind.VECTOR,
}


def column(name: str, type_text: str, *, nullable: bool = True, collation: str = "utf8mb4_bin") -> Column:
    kind = _KINDS[type_text]
    is_text = kind is ValueKind.STRING
    return Column(
        name,
        kind,
        type_text,
        nullable=nullable,
        unsigned="unsigned" in type_text,
        charset=collation.partition("_")[0] if is_text else "",
        collation=collation if is_text else "",
        labels=("a",) if kind in (ValueKind.ENUM, ValueKind.SET) else (),
    )


ID = column("id", "bigint", nullable=False)


def plan(source: str, *columns: Column, key: tuple[int, ...] = (0,), schema: str = "a") -> TablePlan:
    names = tuple(columns[at].name for at in key)
    table = Table(schema, "t", columns, key, "PRIMARY", (names,), False, "InnoDB")
    written = tuple(ColumnPlan(at, each, each.name) for at, each in enumerate(columns))
    return TablePlan(0, source, table, "merged", "t", written, key)


def group(plan: TablePlan, *required: str, makes: bool = True, checked: bool = True) -> ShardGroup:
    return ShardGroup(plan, makes, frozenset(required), checked)


def codes(*groups: ShardGroup, exists: bool = False, widens: bool = False) -> list[tuple[int, bool]]:
    """Return each finding's code and whether it is a failure."""
    return [
        (found.code, found.state == pb.CHECK_STATE_FAIL)
        for found in compare_shards(groups, exists=exists, widens=widens)
    ]


def of_types(one: str, other: str) -> tuple[ShardGroup, ShardGroup]:
    return group(plan("s1", ID, column("v", one))), group(plan("s2", ID, column("v", other)))


@pytest.mark.parametrize("type_text", _KINDS)
def test_each_type_is_held_by_some_type_and_contradicts_not_itself(type_text: str) -> None:
    assert types_that_hold(ColumnPlan(0, column("v", type_text), "v"))
    assert codes(*of_types(type_text, type_text)) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int", "text"),
        ("bigint", "bigint unsigned"),
        ("int", "decimal(10,2)"),
        ("decimal(65,0)", "decimal(10,2)"),
        ("datetime", "timestamp"),
        ("date", "datetime"),
        ("text", "varbinary(9)"),
        ("double", "int"),
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_types_without_a_common_one_are_a_failure_that_names_both(one: str, other: str, exists: bool) -> None:
    groups = of_types(one, other)
    [found] = compare_shards(groups, exists=exists, widens=False)
    assert (found.code, found.state) == (12105, pb.CHECK_STATE_FAIL)
    for part in ("merged.t", f"v {one} in a.t (source s1)", f"v {other} in a.t (source s2)"):
        assert part in found.error_msg
    assert codes(*groups, exists=exists, widens=True) == [(12105, True)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int", "bigint"),
        ("decimal(10,2)", "decimal(40,30)"),
        ("char(3)", "text"),
        ("varchar(20)", "enum('a')"),
        ("enum('a')", "text"),
        ("float(7,2)", "double"),
        ("datetime", "datetime(6)"),
    ],
)
def test_a_type_that_holds_both_is_no_contradiction(one: str, other: str) -> None:
    """An existing target is compared with each source alone. A missing one fits if the right source is first."""
    groups = of_types(one, other)
    assert codes(*groups, exists=True) == []
    assert codes(*groups, widens=True) == []
    assert [code for code, _ in codes(*groups)] == [12106]


def test_who_creates_the_target_decides() -> None:
    small, large = plan("s1", ID, column("v", "int")), plan("s1", ID, column("v", "bigint"))
    assert codes(group(small), group(large, makes=False)) == [(12106, True)]
    assert codes(group(large), group(small, makes=False)) == []
    assert codes(group(large), group(replace(small, source="s2"))) == [(12106, False)]
    # No column of the other source's table, in either order.
    points = plan("s2", ID, column("p", "point"))
    assert codes(group(large), group(points)) == [(12106, True)]
    assert codes(group(large), group(points), widens=True) == []


def test_a_column_without_a_default_that_another_table_lacks() -> None:
    more = plan("s1", ID, column("v", "int"), column("w", "int", nullable=False))
    fewer = plan("s2", ID, column("v", "int"))
    assert codes(group(more, "w"), group(fewer)) == [(12106, True)]
    assert codes(group(more), group(fewer)) == [(12106, False)]


def test_keys() -> None:
    v = column("v", "int", nullable=False)
    one, other = plan("s1", ID, v), plan("s2", ID, v, key=(0, 1))
    assert codes(group(one), group(other)) == [(12106, True)]
    assert codes(group(one), group(other), exists=True) == []
    both = replace(other, table=replace(other.table, unique_keys=(("id", "v"), ("id",))))
    assert codes(group(one), group(both)) == [(12106, False)]


def test_collations_of_keys_and_character_sets() -> None:
    def named(source: str, collation: str) -> ShardGroup:
        return group(plan(source, column("n", "varchar(20)", nullable=False, collation=collation)))

    assert codes(named("s1", "utf8mb4_bin"), named("s2", "utf8mb4_general_ci")) == [(12061, False)]
    assert codes(named("s1", "utf8mb4_bin"), named("s2", "utf8mb4_bin")) == []
    assert codes(named("s1", "utf8mb4_bin"), named("s2", "latin1_bin")) == [(12107, False)]
    assert codes(named("s1", "utf8mb4_bin"), named("s2", "latin1_bin"), exists=True) == []
    assert codes(named("s1", "utf8mb3_bin"), named("s2", "utf8_bin")) == []
    as_utf8 = [replace(each, plan=replace(each.plan, text_as_utf8=True)) for each in (named("s1", "latin1_bin"),)]
    assert codes(*as_utf8, replace(named("s2", "utf8mb4_bin"), makes_target=False)) == []


def test_the_collation_that_a_created_target_gets_counts() -> None:
    """The target lacks the one of the shard table."""
    lacking, other = (
        group(plan(source, column("n", "varchar(20)", nullable=False, collation=collation)))
        for source, collation in (("s1", "utf8mb4_0900_as_cs"), ("s2", "utf8mb4_0900_bin"))
    )
    made = replace(lacking, replaced={"utf8mb4_0900_as_cs": "utf8mb4_uca1400_nopad_as_cs"})
    [found] = compare_shards([made, replace(other, makes_target=False)], exists=False, widens=False)
    assert found.code == 12061
    assert "a target that is created like a.t (source s1) utf8mb4_uca1400_nopad_as_cs" in found.error_msg
    exact = replace(lacking, replaced={"utf8mb4_0900_as_cs": "utf8mb4_nopad_bin"})
    assert codes(exact, replace(other, makes_target=False)) == []


def test_different_character_sets_wait_in_optimistic_mode() -> None:
    def named(source: str, collation: str) -> ShardGroup:
        return group(plan(source, ID, column("n", "varchar(20)", collation=collation)))

    one, other = named("s1", "utf8mb4_bin"), named("s2", "latin1_bin")
    assert codes(one, other, exists=True, widens=True) == [(12109, False)]
    assert codes(one, other, widens=True) == [(12109, False), (12107, False)]
    assert codes(one, other, exists=True) == []
    assert codes(one, named("s2", "utf8mb4_general_ci"), exists=True, widens=True) == []
    assert codes(named("s1", "utf8mb3_bin"), named("s2", "utf8_bin"), exists=True, widens=True) == []
    unchecked = [replace(each, checked=False) for each in (one, other)]
    assert codes(*unchecked, exists=True, widens=True) == []
    [found] = compare_shards([replace(one, checked=False), other], exists=True, widens=True)
    assert found.source == "s2"
    assert found.error_msg.endswith("n is utf8mb4 in a.t (source s1) and latin1 in a.t (source s2)")


def test_json_of_mysql_becomes_text_on_mariadb() -> None:
    document, text = plan("s1", ID, column("v", "json")), plan("s2", ID, column("v", "text"))
    assert codes(group(document), group(text)) == [(12106, True)]
    made = replace(group(document), json_is_text=True)
    assert codes(made, group(text, makes=False)) == []


def test_sources_that_are_not_checked_are_only_compared() -> None:
    one, other = of_types("int", "text")
    assert codes(one, replace(other, checked=False)) == [(12105, True)]
    assert codes(replace(one, checked=False), replace(other, checked=False)) == []
    third = group(plan("s3", ID))
    third = replace(third, makes_target=False)
    assert codes(replace(one, checked=False), replace(other, checked=False), third, exists=True) == []


def test_mapped_and_constant_columns() -> None:
    """The target's id is a BIGINT, whatever it was; texts of routes differ, and are one structure."""
    small = plan("s1", column("id", "int", nullable=False), column("v", "int"))
    mapped = replace(small, columns=(replace(small.columns[0], mapping=PartitionId(1 << 44, 44)), small.columns[1]))
    large = plan("s2", ID, column("v", "int"))
    assert codes(group(mapped), group(large)) == []
    text = column("c", "varchar(20)", nullable=False)
    one, other = (
        replace(mapped, columns=(*mapped.columns, ColumnPlan(-1, text, "c", Constant(each, 64)))) for each in "xy"
    )
    assert structure_key(one) == structure_key(other) != structure_key(mapped)
    assert codes(group(one), group(replace(other, source="s2"))) == []
