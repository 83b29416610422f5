"""Which further statements of a parked shard table end its wait, and which rows between them can be applied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, TablePlan
from shardmerge.worker.ddl.execute.optimistic import ColumnMoves
from shardmerge.worker.ddl.locks.way_back import (
    ChainStep,
    carried,
    changes_values,
    fits_carried,
    has_other_names,
    has_same_images,
    moves_of,
)
from shardmerge.worker.ddl.sql.statement import parse_ddl
from shardmerge.worker.ddl.sql.table_definition import TableDefinition
from shardmerge.worker.ddl.sql.target_statement import Changing
from shardmerge.worker.target.tables.column_fit import incompatibility
from tests.unit.worker.ddl.schema_join.join_model import shape_of

ID, KEY = "`id` bigint NOT NULL", "PRIMARY KEY (`id`)"
INT, TEXT = "int DEFAULT NULL", "varchar(20) DEFAULT NULL"


def shape(*columns: str) -> TableDefinition:
    return shape_of(ID, *columns, KEY)


def table(**types: str) -> Table:
    columns = [Column("id", ValueKind.INTEGER, "bigint(20)", nullable=False)]
    for name, text in types.items():
        kind = {"int": ValueKind.INTEGER, "dec": ValueKind.DECIMAL}.get(text[:3], ValueKind.STRING)
        columns.append(Column(name, kind, text, nullable=True, charset="utf8mb4" * (kind is ValueKind.STRING)))
    return Table("d", "t", tuple(columns), (0,), "PRIMARY", (("id",),), False, "InnoDB")


def step(text: str, definition: TableDefinition, made: Table | None = None, *, strict: bool = True) -> ChainStep:
    ddl = parse_ddl(f"ALTER TABLE d.t {text}", "d", 0)
    assert isinstance(ddl, Changing)
    return ChainStep(ddl, made or table(), definition, strict)


def plan_of(made: Table) -> TablePlan:
    columns = tuple(ColumnPlan(index, column, column.name) for index, column in enumerate(made.columns))
    return TablePlan(0, "s", made, "d", "all", columns, (0,))


C, C5 = shape(f"`c` {INT}"), shape(f"`c5` {INT}")


def test_a_column_that_gets_another_name_and_its_own_again_is_not_renamed() -> None:
    there, back = step("CHANGE c c5 INT", C5, table(c5="int(11)")), step("CHANGE c5 c INT", C, table(c="int(11)"))
    assert moves_of(C, [there]) == ColumnMoves({"c5": "c"}, frozenset(), True)
    assert moves_of(C, [there, back]) == ColumnMoves({}, frozenset(), True)
    assert not changes_values(C, [there, back])
    assert has_same_images(C, [there, back])
    assert has_other_names([there, back]), "events may contain the names"


def test_another_column_of_the_former_name_is_a_new_one() -> None:
    steps = [step("CHANGE c c5 INT", C5), step("ADD COLUMN c INT, DROP COLUMN c5", C)]
    assert moves_of(C, steps) == ColumnMoves({}, frozenset({"c"}), True)


def test_columns_that_swap_their_names_and_swap_them_again() -> None:
    before = shape(f"`a` {INT}", f"`b` {INT}")
    swapped = shape(f"`b` {INT}", f"`a` {INT}")
    there = step("CHANGE a b INT, CHANGE b a INT", swapped, table(b="int(11)", a="int(11)"))
    back = step("CHANGE a b INT, CHANGE b a INT", before, table(a="int(11)", b="int(11)"))
    assert moves_of(before, [there]).renamed == {"a": "b", "b": "a"}
    assert moves_of(before, [there, back]).renamed == {}
    assert has_same_images(before, [there, back])


def test_columns_that_changed_their_places_are_not_read_by_place() -> None:
    before = shape(f"`a` {INT}", f"`b` {INT}")
    there = step("MODIFY b INT AFTER id", shape(f"`b` {INT}", f"`a` {INT}"), table(b="int(11)", a="int(11)"))
    back = step("MODIFY a INT AFTER id", before, table(a="int(11)", b="int(11)"))
    assert not has_same_images(before, [there, back])


def typed(text: str) -> TableDefinition:
    return shape(f"`c` {text}")


@pytest.mark.parametrize(
    ("types", "changes"),
    [
        (("int", "varchar(20)", "int"), False),
        (("int", "varchar(20)", "bigint"), False),
        (("int", "varchar(20)", "smallint"), False),
        (("decimal(10,2)", "varchar(20)", "decimal(10,2)"), False),
        (("decimal(10,2)", "varchar(20)", "int"), True),
        (("decimal(10,2)", "decimal(10,0)", "decimal(10,2)"), True),
        (("varchar(20)", "int", "varchar(20)"), True),
        (("int", "varchar(20)", "date", "varchar(20)", "int"), True),
        (("int", "float", "int"), True),
        (("datetime", "date", "datetime"), True),
        (("int", "bigint", "int"), False),
        (("varchar(20)", "varchar(10)", "varchar(20)"), True),
    ],
)
def test_conversions_that_keep_each_value(types: tuple[str, ...], *, changes: bool) -> None:
    steps = [step(f"MODIFY c {now}", typed(f"{now} DEFAULT NULL")) for now in types[1:]]
    before = typed(f"{types[0]} DEFAULT NULL")
    assert changes_values(before, steps) is changes
    loose = [replace(each, strict=False) for each in steps]
    assert changes_values(before, loose), "without a strict sql_mode a value that does not fit is changed"


def test_null_is_replaced_without_a_strict_mode() -> None:
    steps = [step("MODIFY c INT NOT NULL", typed("int NOT NULL")), step("MODIFY c INT", C)]
    assert not changes_values(C, steps)
    assert changes_values(C, [replace(steps[0], strict=False), steps[1]])


def test_alter_ignore_may_delete_rows() -> None:
    ddl = parse_ddl("ALTER IGNORE TABLE d.t ADD UNIQUE INDEX u (c)", "d", 0)
    assert isinstance(ddl, Changing)
    steps = [ChainStep(ddl, table(), C, True), step("DROP INDEX u", C)]
    assert changes_values(C, steps)


def test_a_new_column_whose_default_changes_has_the_first_one_in_existing_rows() -> None:
    before, one, two = shape(), typed("int DEFAULT 1"), typed("int DEFAULT 2")
    added = step("ADD COLUMN c INT DEFAULT 1", one)
    assert not changes_values(before, [added, step("ADD INDEX i (id)", one)])
    assert changes_values(before, [added, step("MODIFY c INT DEFAULT 2", two)])
    assert not changes_values(before, [added, step("DROP COLUMN c", before), step("ADD COLUMN c INT DEFAULT 2", two)])


def there_and_back(middle: str = "varchar(20)", last: str = "int(11)") -> list[ChainStep]:
    return [step("MODIFY c X", typed(TEXT), table(c=middle)), step("MODIFY c INT", C, table(c=last))]


def test_numbers_that_are_texts_for_a_while_are_written_as_numbers() -> None:
    made = carried(plan_of(table(c="int(11)")), there_and_back())
    assert made is not None
    assert [column.written_as for column in made.columns] == ["", "int(11)"]
    assert [column.type_text for column in made.columns] == ["bigint(20)", "varchar(20)"]
    text, number = plan_of(made).columns[1], table(c="int(11)").columns[1]
    assert incompatibility(text, number) is None
    assert incompatibility(text, replace(number, type_text="bigint(20)")) is None
    assert incompatibility(text, replace(number, type_text="smallint(6)"))
    assert incompatibility(replace(text, column=replace(text.column, written_as="")), number)


@pytest.mark.parametrize("middle", ["date", "int(10) unsigned"])
def test_other_types_are_not_carried(middle: str) -> None:
    steps = there_and_back()
    columns = (steps[0].table.columns[0], Column("c", ValueKind.DATE, middle, nullable=True))
    steps[0] = replace(steps[0], table=replace(steps[0].table, columns=columns))
    assert carried(plan_of(table(c="int(11)")), steps) is None


def test_a_column_of_a_key_is_not_carried() -> None:
    """Two texts may be one number."""
    before = table(c="int(11)")
    assert carried(plan_of(replace(before, unique_keys=(("id",), ("c",)))), there_and_back()) is None
    assert carried(replace(plan_of(before), key=()), there_and_back()) is None


@pytest.mark.parametrize(
    ("type_text", "literal", "fits"),
    [
        ("int(11)", b"'7'", True),
        ("int(11)", b"'007'", True),
        ("int(11)", b"'-2147483648'", True),
        ("int(11)", b"'2147483648'", False),
        ("int(10) unsigned", b"'-1'", False),
        ("int unsigned", b"'4294967295'", True),
        ("int(11)", b"NULL", True),
        ("int(11)", b"''", False),
        ("int(11)", b"' 7'", False),
        ("int(11)", b"'7.5'", False),
        ("int(11)", b"'1e2'", False),
        ("int(11)", b"_latin1 X'3137'", True),
        ("int(11)", b"_latin1 X'3161'", False),
        ("int(11)", b"_utf16 X'0031'", False),
        ("decimal(5,2)", b"'123.45'", True),
        ("decimal(5,2)", b"'1234.5'", False),
        ("decimal(5,2)", b"'1.234'", False),
    ],
)
def test_which_texts_are_numbers_of_the_column(type_text: str, literal: bytes, *, fits: bool) -> None:
    before = table(c=type_text)
    made = carried(plan_of(before), there_and_back(last=type_text))
    assert made is not None
    assert fits_carried(plan_of(made), (b"1", literal)) is fits
