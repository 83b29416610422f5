"""The ALTER TABLE that a swap of a shadow table comes to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.ddl.join_model import altered, shape_of
from worker.ddl.online.meaning import NotTold, converted_by_tool, difference, drawn_by_tool, is_like, said_of
from worker.ddl.online.records import Kept
from worker.ddl.session import PLAIN, StatementSession
from worker.ddl.statement import AlterTable, parse_ddl

ID, KEY = "`id` bigint NOT NULL", "PRIMARY KEY (`id`)"
A, B, C = "`a` int DEFAULT NULL", "`b` int DEFAULT NULL", "`c` varchar(5) DEFAULT NULL"
_ANSI = 4


def kept(*texts: str, sql_mode: int = 0, given: StatementSession = PLAIN) -> tuple[Kept, ...]:
    return tuple(Kept(text, "d", sql_mode, given) for text in texts)


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
def test_what_was_said_of_the_shadow_table_is_said_of_the_table(texts: list[str], text: str) -> None:
    said = said_of(("d", "t"), kept(*texts))
    assert said == Kept(text, "d", 0, PLAIN)


def test_the_session_comes_with_it() -> None:
    session = StatementSession(_ANSI, "5.000000", "+02:00", None)
    said = said_of(("d", "t"), kept('ALTER TABLE "_t_gho" ADD "x" INT', sql_mode=_ANSI, given=session))
    assert said == Kept('ALTER TABLE `d`.`t` ADD "x" INT', "d", _ANSI, session)


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
def test_what_is_not_to_be_said_in_one_statement(statements: tuple[Kept, ...], why: str) -> None:
    said = said_of(("d", "t"), statements)
    assert isinstance(said, NotTold)
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


@settings(max_examples=400)
@given(tables(), tables(), st.booleans())
def test_the_difference_makes_one_of_the_other(before: tuple[str, ...], after: tuple[str, ...], forced: bool) -> None:
    was, now = shape_of(*before), shape_of(*after)
    clauses = difference(was, now, now, forced=forced)
    gone = {each.key for each in was.columns} - {each.key for each in now.columns}
    come = {each.key for each in now.columns} - {each.key for each in was.columns}
    if gone and come and not forced:
        assert isinstance(clauses, NotTold)
        return
    assert not isinstance(clauses, NotTold)
    assert is_like(shape_of(*altered(before, clauses)), now)
    assert (clauses == ()) == is_like(was, now)


def test_what_the_difference_does_not_tell() -> None:
    for before, after, why in (
        ((ID, A, KEY), (ID, B, KEY), "column `a` is gone and `b` has come"),
        ((ID, A, KEY), (ID, A, "PRIMARY KEY (`a`)"), "primary key"),
        ((ID, A, KEY), (ID, A, KEY, "CONSTRAINT `k` CHECK (`a` > 1)"), "checks"),
    ):
        found = difference(shape_of(*before), shape_of(*after), shape_of(*after), forced=False)
        assert isinstance(found, NotTold)
        assert why in found.why


def test_definitions_are_in_the_words_of_the_source() -> None:
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
def test_values_that_the_tool_has_drawn(column: str, drawn: str) -> None:
    ddl = parse_ddl("ALTER TABLE t ADD x INT", "d", 0)
    assert isinstance(ddl, AlterTable)
    assert drawn_by_tool(shape_of(ID, A, KEY), shape_of(ID, A, column, KEY), ddl) == drawn
    assert drawn_by_tool(shape_of(ID, A, column, KEY), shape_of(ID, A, column, KEY), ddl) == ""
    renamed = parse_ddl("ALTER TABLE t CHANGE w x TIMESTAMP", "d", 0)
    assert isinstance(renamed, AlterTable)
    before = shape_of(ID, A, column.replace("`x`", "`w`"), KEY)
    assert drawn_by_tool(before, shape_of(ID, A, column, KEY), renamed) == ""


def test_values_that_the_tool_has_converted() -> None:
    ddl = parse_ddl("ALTER TABLE t CHANGE a b TIMESTAMP NULL", "d", 0)
    assert isinstance(ddl, AlterTable)
    stamp, date = "`b` timestamp NULL DEFAULT NULL", "`a` datetime DEFAULT NULL"
    assert converted_by_tool(shape_of(ID, date, KEY), shape_of(ID, stamp, KEY), ddl) == "b"
    assert converted_by_tool(shape_of(ID, KEY), shape_of(ID, stamp, KEY), ddl) == ""
    assert converted_by_tool(shape_of(ID, stamp.replace("b", "a", 1), KEY), shape_of(ID, stamp, KEY), ddl) == ""
    assert converted_by_tool(shape_of(ID, date, KEY), shape_of(ID, date.replace("a", "b", 1), KEY), ddl) == ""
