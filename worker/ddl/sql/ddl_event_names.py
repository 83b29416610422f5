"""Finds the event names of a DDL statement, for event filters. Pure.

DM names a statement by its first words (tiflow pkg/binlog-filter/util.go, ``AstToDDLEvent``): every ALTER TABLE is
"alter table", also ALTER TABLE … RENAME and … ADD INDEX. In addition, its clauses have the finer names of the list.
Names that a clause's text does not show (a type that holds fewer values) come from the table's structures before and
after the statement, if they are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardmerge.proto.sql_lexer import Token, tokens
from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.sql.clause import Clause, ClauseKind
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.ddl.sql import statement
from shardmerge.worker.ddl.sql.column_definition import ColumnDefinition
from shardmerge.worker.ddl.sql.common_type import INTEGERS, ColumnType, common_type
from shardmerge.worker.ddl.sql.table_definition import TableDefinition, parse_table_definition
from shardmerge.worker.rules.ddl_events import DdlEvents

_OF_CLAUSE = {
    ClauseKind.ADD_COLUMN: "add column",
    ClauseKind.DROP_COLUMN: "drop column",
    ClauseKind.CHANGE_COLUMN: "modify column",
    ClauseKind.MODIFY_COLUMN: "modify column",
    ClauseKind.RENAME_COLUMN: "rename column",
    ClauseKind.SET_DEFAULT: "set default value",
    ClauseKind.DROP_DEFAULT: "set default value",
    ClauseKind.ADD_PRIMARY_KEY: "add primary key",
    ClauseKind.DROP_PRIMARY_KEY: "drop primary key",
    ClauseKind.RENAME_INDEX: "rename index",
    ClauseKind.ALTER_INDEX: "alter index visibility",
    ClauseKind.ADD_FOREIGN_KEY: "add foreign key",
    ClauseKind.DROP_FOREIGN_KEY: "drop foreign key",
    ClauseKind.ADD_CHECK: "modify constraint",
    ClauseKind.DROP_CHECK: "modify constraint",
    ClauseKind.ALTER_CHECK: "modify constraint",
    ClauseKind.CONVERT_CHARSET: "modify table charset and collate",
}
_OF_PARTITIONS = {
    ("ADD",): "add table partition",
    ("DROP",): "drop table partition",
    ("TRUNCATE",): "truncate table partition",
    ("REORGANIZE",): "reorganize table partition",
    ("REBUILD",): "rebuild table partition",
    ("COALESCE",): "coalesce table partition",
    ("EXCHANGE",): "exchange table partition",
    ("CONVERT",): "exchange table partition",  # MariaDB: a partition becomes a table, or the reverse
    ("PARTITION",): "alter table partitioning",
    ("REMOVE",): "remove table partitioning",
}
_OF_OPTION = {
    "CHARSET": "modify table charset and collate",
    "CHARACTER": "modify table charset and collate",
    "COLLATE": "modify table charset and collate",
    "COMMENT": "modify table comment",
    "ENGINE": "modify storage engine",
    "AUTO_INCREMENT": "rebase auto id",
}
_MOVES_COLUMN = frozenset({"FIRST", "AFTER"})


def events_of(
    ddl: statement.Ddl, text: str, before: CreateStatement | None = None, after: CreateStatement | None = None
) -> DdlEvents:
    """``text``: the statement's. ``before``, ``after``: the altered table's structures, None when not known: then the
    names in STRUCTURAL of worker/rules/ddl_events.py are not found."""
    match ddl:
        case statement.CreateSchema():
            return DdlEvents.of("create database")
        case statement.AlterSchema():
            charset_words = {token.text.upper() for token in tokens(text)} & {"CHARSET", "CHARACTER", "COLLATE"}
            return DdlEvents.of("alter database", *(("modify schema charset and collate",) if charset_words else ()))
        case statement.DropSchema():
            return DdlEvents.of("drop database")
        case statement.CreateTable():
            return DdlEvents.of("create table")
        case statement.DropTables():
            return DdlEvents.of("drop table")
        case statement.RenameTables():
            return DdlEvents.of("rename table")
        case statement.TruncateTable():
            return DdlEvents.of("truncate table")
        case statement.CreateIndex():
            return DdlEvents.of("create index")
        case statement.DropIndex(name=name):
            return DdlEvents.of("drop index", *(("drop unique key",) if _is_unique(_shape(before), name) else ()))
        case statement.AlterTable():
            return _altered(ddl, text, before, after)


def _altered(
    ddl: statement.AlterTable, text: str, before: CreateStatement | None, after: CreateStatement | None
) -> DdlEvents:
    done = [clause for clause in ddl.clauses if clause.kind is not ClauseKind.HOW]
    whole = {"alter table"} | ({"multi schema change"} if len(done) > 1 else set[str]())
    shapes = _shape(before), _shape(after)
    found = [frozenset(whole | set(_names(clause, text, shapes, before))) for clause in done]
    return DdlEvents(tuple(found) or (frozenset(whole),))


def _names(
    clause: Clause,
    text: str,
    shapes: tuple[TableDefinition | None, TableDefinition | None],
    creation: CreateStatement | None,
) -> Iterator[str]:
    """The names of one clause."""
    words = tokens(text[clause.start : clause.end])
    if clause.kind in _OF_CLAUSE:
        yield _OF_CLAUSE[clause.kind]
    before, after = shapes
    match clause.kind:
        case ClauseKind.CHANGE_COLUMN | ClauseKind.MODIFY_COLUMN:
            if _outside(words) & _MOVES_COLUMN:
                yield "modify columns order"
            new = clause.new_name or clause.columns[0]
            if new.lower() != clause.columns[0].lower():
                yield "rename column"
            old = before.column(clause.columns[0].lower()) if before is not None else None
            now = after.column(new.lower()) if after is not None else None
            if old is not None and now is not None:
                yield from _changes(old, now)
        case ClauseKind.SET_DEFAULT | ClauseKind.DROP_DEFAULT:
            yield "modify default value"
        case ClauseKind.DROP_INDEX | ClauseKind.DROP_CONSTRAINT:
            yield from _dropped(clause, before, creation)
        case ClauseKind.PARTITIONING | ClauseKind.PARTITION_ROWS:
            name = _OF_PARTITIONS.get((words[0].text.upper(),))
            if name is not None:
                yield name
        case ClauseKind.OPTION:
            yield from {_OF_OPTION[word] for word in _outside(words) & _OF_OPTION.keys()}
        case _:
            pass


def _outside(words: Sequence[Token]) -> frozenset[str]:
    """The keywords outside of parentheses, in upper case, without names and strings."""
    found: set[str] = set()
    depth = 0
    for token in words:
        depth += token.is_symbol("(") - token.is_symbol(")")
        if depth == 0 and token.is_word(token.text.upper()):
            found.add(token.text.upper())
    return frozenset(found)


def _changes(old: ColumnDefinition, now: ColumnDefinition) -> Iterator[str]:
    """The event names for a column's new definition."""
    if old.type.charset and now.type.charset:
        if old.type.charset != now.type.charset:
            yield "modify charset"
        if old.type.collation != now.type.collation:
            yield "modify collation"
    yield from lossy_changes(old.type, now.type)
    if old.default_value != now.default_value:
        yield "modify default value"
    if old.nullable != now.nullable:
        yield "modify constraint"
    if _counts(old) and not _counts(now):
        yield "remove auto increment"


def _dropped(clause: Clause, before: TableDefinition | None, creation: CreateStatement | None) -> Iterator[str]:
    if _is_unique(before, clause.name):
        yield "drop unique key"
    elif clause.kind is ClauseKind.DROP_CONSTRAINT and creation is not None:
        name = re.escape(quote_name(clause.name))
        if re.search(rf"CONSTRAINT\s+{name}\s+FOREIGN\s+KEY\b", creation.text, re.IGNORECASE):
            yield "drop foreign key"
        else:
            yield "modify constraint"


def _shape(creation: CreateStatement | None) -> TableDefinition | None:
    try:
        return parse_table_definition(creation) if creation is not None else None
    except UnreadableCreateTable:
        return None


def _is_unique(shape: TableDefinition | None, name: str) -> bool:
    index = shape.index(name.lower()) if shape is not None else None
    return index is not None and index.unique


def _counts(column: ColumnDefinition) -> bool:
    return any(each.upper().startswith("AUTO_INCREMENT") for each in column.rest)


_TEMPORAL = frozenset({"datetime", "timestamp", "time"})
_PADDED = ({"char", "varchar"}, {"binary", "varbinary"})
_DIGITS = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}
"""Of the largest value, signed or not."""


def lossy_changes(old: ColumnType, now: ColumnType) -> Iterator[str]:
    """The event names for possible losses: decimal digits, or values that do not fit. Values of unrelated types count
    as not fitting; display widths and character sets do not count."""
    was, is_now = (replace(each, zerofill=False, charset="", collation="") for each in (old, now))
    bases = {was.base, is_now.base}
    if was == is_now or (was.base, is_now.base) == ("float", "double"):
        return
    if was.base == is_now.base and was.base in _TEMPORAL:
        if is_now.length < was.length:
            yield "precision decrease"
    elif (was.base, is_now.base) == ("double", "float"):
        yield "precision decrease"
        yield "value range decrease"
    elif "decimal" in bases and bases <= {"decimal", *INTEGERS}:
        if _scale(is_now) < _scale(was):
            yield "precision decrease"
        if _whole(is_now, least=True) < _whole(was) or (is_now.unsigned and not was.unsigned):
            yield "value range decrease"
    elif any(bases <= padded for padded in _PADDED):
        if is_now.length < was.length:
            yield "value range decrease"
    elif common_type((was, is_now)) != is_now:
        yield "value range decrease"


def _scale(kind: ColumnType) -> int:
    return int(kind.arguments[1]) if kind.base == "decimal" and len(kind.arguments) > 1 else 0


def _whole(kind: ColumnType, *, least: bool = False) -> int:
    """Digits before the point, of an integer's largest value. ``least``: so many that every number with them fits."""
    if kind.base != "decimal":
        return _DIGITS[kind.base] - least
    return kind.length - _scale(kind)
