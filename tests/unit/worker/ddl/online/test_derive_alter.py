"""The ALTER TABLE that equals the swap of a shadow table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmerge.worker.ddl.online.derive_alter import (
    CannotDerive,
    alter_from_shadow,
    difference,
    same_structure,
    tool_converted_column,
    tool_generated_column,
)
from shardmerge.worker.ddl.sql.statement import AlterTable, parse_ddl
from shardmerge.worker.target.records.shadow_tables import ShadowAlter
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION, StatementSession
from tests.support.examples import examples
from tests.unit.worker.ddl.schema_join.join_model import altered, shape_of

ID, KEY = "`id` bigint NOT NULL", "PRIMARY KEY (`id`)"
A, B, C = "`a` int DEFAULT NULL", "`b` int DEFAULT NULL", "`c` varchar(5) DEFAULT NULL"
_ANSI = 4


def kept(*texts: str, sql_mode: int = 0, given: StatementSession = UNKNOWN_SESSION) -> tuple[ShadowAlter, ...]:
    return tuple(ShadowAlter(text, "d", sql_mode, given) for text in texts)


@pytest.mark.parametrize(
    ("texts", "text"),
    [
        (["ALTER TABLE _t_gho ADD x INT"], "ALTER TABLE `d`.`t` ADD x INT"),
        (["alter /* gh-ost */ table `d`.`_t_gho` add x int, drop y"], "ALTER TABLE `d`.`t` add x int, drop y"),
        (
            ["ALTER TABLE _t_gho ADD (x INT, y INT), ALGORITHM=COPY", "ALTER TABLE _t_gho DROP z, RENAME TO v"],
            "ALTER TABLE `d`.`t` ADD (x INT, y INT), DROP z",
        ),
    ],
)
def test_alters_of_the_shadow_table_apply_to_the_table(texts: list[str], text: str) -> None:
    said = alter_from_shadow(("d", "t"), kept(*texts))
    assert said == ShadowAlter(text, "d", 0, UNKNOWN_SESSION)


def test_the_session_is_kept() -> None:
    session = StatementSession(_ANSI, "5.000000", "+02:00", None)
    said = alter_from_shadow(("d", "t"), kept('ALTER TABLE "_t_gho" ADD "x" INT', sql_mode=_ANSI, given=session))
    assert said == ShadowAlter('ALTER TABLE `d`.`t` ADD "x" INT', "d", _ANSI, session)


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (kept("CREATE INDEX i ON _t_gho (a)"), "no ALTER TABLE"),
        (kept("ALTER TABLE _t_gho DROP a, ADD a INT"), "`a` was dropped and added again"),
        ((*kept("ALTER TABLE _t_gho ADD a INT"), *kept("ALTER TABLE _t_gho ADD b INT", sql_mode=_ANSI)), "sql_mode"),
        (
            (
                *kept("ALTER TABLE _t_gho ADD a INT"),
                *kept("ALTER TABLE _t_gho ADD b INT", given=StatementSession(0, "1", "+01:00", None)),
            ),
            "time_zone",
        ),
    ],
)
def test_alters_that_cannot_be_one_statement(statements: tuple[ShadowAlter, ...], why: str) -> None:
    said = alter_from_shadow(("d", "t"), statements)
    assert isinstance(said, CannotDerive)
    assert why in said.why


_COLUMNS = {
    "a": (A, "`a` bigint DEFAULT NULL", "`a` int NOT NULL DEFAULT 4"),
    "b": (B, "`b` varchar(9) DEFAULT NULL"),
    "c": (C, "`c` varchar(7) NOT NULL DEFAULT 'x'"),
    "e": ("`e` int DEFAULT NULL",),
}
_INDEXES = ("KEY `i` (`a`)", "KEY `i` (`a`,`b`)", "UNIQUE KEY `i` (`b`)", "KEY `j` (`c`)", "KEY `j` (`c`(2))")


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, ...]:
    """Items of a table: its columns in any order, then its keys."""
    names = draw(st.permutations([*_COLUMNS, "id"]))
    present = draw(st.sets(st.sampled_from([*_COLUMNS])))
    columns = [
        ID if name == "id" else draw(st.sampled_from(_COLUMNS[name])) for name in names if name in present | {"id"}
    ]
    indexes = {item[: item.index("(")].split("`")[1]: item for item in draw(st.lists(st.sampled_from(_INDEXES)))}
    fitting = [item for item in indexes.values() if set(item.split("(", 1)[1].split("`")[1::2]) <= present]
    return (*columns, KEY, *fitting)


@settings(max_examples=examples(400))
@given(tables(), tables(), st.booleans())
def test_the_difference_changes_one_into_the_other(
    before: tuple[str, ...], after: tuple[str, ...], forced: bool
) -> None:
    was, now = shape_of(*before), shape_of(*after)
    clauses = difference(was, now, now, forced=forced)
    gone = {each.key for each in was.columns} - {each.key for each in now.columns}
    come = {each.key for each in now.columns} - {each.key for each in was.columns}
    if gone and come and not forced:
        assert isinstance(clauses, CannotDerive)
        return
    assert not isinstance(clauses, CannotDerive)
    assert same_structure(shape_of(*altered(before, clauses)), now)
    assert (clauses == ()) == same_structure(was, now)


def test_ambiguous_differences() -> None:
    for before, after, why in (
        ((ID, A, KEY), (ID, B, KEY), "column `a` disappeared and `b` appeared"),
        ((ID, A, KEY), (ID, A, "PRIMARY KEY (`a`)"), "primary key"),
        ((ID, A, KEY), (ID, A, KEY, "CONSTRAINT `k` CHECK (`a` > 1)"), "checks"),
    ):
        found = difference(shape_of(*before), shape_of(*after), shape_of(*after), forced=False)
        assert isinstance(found, CannotDerive)
        assert why in found.why


def test_definitions_are_in_the_sources_notation() -> None:
    now = shape_of(ID, "`a` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL", KEY)
    source = shape_of(ID, "`a` json DEFAULT NULL", KEY)
    assert difference(shape_of(ID, KEY), now, source, forced=False) == ("ADD COLUMN `a` json DEFAULT NULL AFTER `id`",)


@pytest.mark.parametrize(
    ("column", "drawn"),
    [
        ("`x` int NOT NULL DEFAULT 4", ""),
        ("`x` varchar(5) DEFAULT 'a'", ""),
        ("`x` int NOT NULL", ""),
        ("`x` int GENERATED ALWAYS AS (`a` + 1) STORED", ""),
        ("`x` int NOT NULL AUTO_INCREMENT", "x"),
        ("`x` timestamp NOT NULL DEFAULT current_timestamp()", "x"),
        ("`x` datetime DEFAULT NULL ON UPDATE current_timestamp()", "x"),
        ("`x` char(36) DEFAULT (uuid())", "x"),
    ],
)
def test_tool_generated_values(column: str, drawn: str) -> None:
    ddl = parse_ddl("ALTER TABLE t ADD x INT", "d", 0)
    assert isinstance(ddl, AlterTable)
    assert tool_generated_column(shape_of(ID, A, KEY), shape_of(ID, A, column, KEY), ddl) == drawn
    assert tool_generated_column(shape_of(ID, A, column, KEY), shape_of(ID, A, column, KEY), ddl) == ""
    renamed = parse_ddl("ALTER TABLE t CHANGE w x TIMESTAMP", "d", 0)
    assert isinstance(renamed, AlterTable)
    before = shape_of(ID, A, column.replace("`x`", "`w`"), KEY)
    assert tool_generated_column(before, shape_of(ID, A, column, KEY), renamed) == ""


def test_tool_converted_values() -> None:
    ddl = parse_ddl("ALTER TABLE t CHANGE a b TIMESTAMP NULL", "d", 0)
    assert isinstance(ddl, AlterTable)
    stamp, date = "`b` timestamp NULL DEFAULT NULL", "`a` datetime DEFAULT NULL"
    assert tool_converted_column(shape_of(ID, date, KEY), shape_of(ID, stamp, KEY), ddl) == "b"
    assert tool_converted_column(shape_of(ID, KEY), shape_of(ID, stamp, KEY), ddl) == ""
    assert tool_converted_column(shape_of(ID, stamp.replace("b", "a", 1), KEY), shape_of(ID, stamp, KEY), ddl) == ""
    assert tool_converted_column(shape_of(ID, date, KEY), shape_of(ID, date.replace("a", "b", 1), KEY), ddl) == ""
