"""Finds which tables and schemas a statement of the binlog changes, on tokens. Pure.

A statement that cannot be parsed is "unknown", which counts as changing everything: the task stops before the statement
instead of losing it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from shardmerge.proto.sql_lexer import Kind, tokens
from shardmerge.worker.core.sql.clause import MOVES, ClauseKind
from shardmerge.worker.core.sql.token_reader import (
    NO_TABLES,
    NameAt,
    NotUnderstoodError,
    TableName,
    TokenReader,
    keywords,
    read_object_kind,
)
from shardmerge.worker.ddl.sql.alter_parser import parse_clauses


@dataclass(frozen=True, slots=True)
class StatementScope:
    """``kind``: "ddl" changes the structure of ``tables`` or whole ``schemas``; "dml" changes rows of ``tables``
    (a source that does not log rows); "ignored" changes no rows and no structure of base tables (views, routines,
    accounts, temporary tables, maintenance); "unknown" may change anything. ``changes_names``: it creates, renames
    or drops tables. ``like``: the table whose structure a CREATE TABLE … LIKE copies, which itself stays as it is.
    """

    kind: Literal["ddl", "dml", "ignored", "unknown"]
    tables: tuple[TableName, ...] = ()
    schemas: tuple[str, ...] = ()
    changes_names: bool = False
    like: TableName | None = None


_IGNORED = StatementScope("ignored")
_UNKNOWN = StatementScope("unknown")

_NO_ROWS = keywords(
    "BEGIN BINLOG CACHE CHANGE CHECK CHECKSUM COMMIT FLUSH GRANT HELP INSTALL KILL LOCK OPTIMIZE PURGE "
    "RELEASE REPAIR RESET REVOKE ROLLBACK SAVEPOINT SHOW UNINSTALL UNLOCK USE XA"
)
"""First words of statements that change no row and no structure of a base table."""

_TARGETS_OF_DML = {
    "INSERT": frozenset({"LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO"}),
    "REPLACE": frozenset({"LOW_PRIORITY", "DELAYED", "INTO"}),
    "UPDATE": frozenset({"LOW_PRIORITY", "IGNORE"}),
    "DELETE": frozenset({"LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY", "FROM"}),
}
_AFTER_TARGET = {
    "UPDATE": frozenset({"SET", "PARTITION"}),
    "DELETE": frozenset({"WHERE", "ORDER", "LIMIT", "RETURNING", "PARTITION", "BEFORE"}),
}


def classify(statement: str, default_schema: str, sql_mode: int | None) -> StatementScope:
    """What ``statement`` changes; names without a schema are in ``default_schema`` ("" for none).

    ``sql_mode``: the server's bit mask in the statement's event; None counts as 0.
    """
    found = tokens(statement, sql_mode or 0)
    if any(token.kind is Kind.BAD for token in found):
        return _UNKNOWN
    try:
        return _classify(TokenReader(found, default_schema))
    except NotUnderstoodError:
        return _UNKNOWN


def touches(
    scope: StatementScope, route: Callable[[str, str], bool], may_hold: Callable[[str], bool] = lambda _: True
) -> bool:
    """Whether the statement concerns a task.

    ``route``: whether the task has this (schema, table); ``may_hold``: whether any of its tables could be in a schema.
    """
    match scope.kind:
        case "ignored":
            return False
        case "unknown":
            return True
        case "ddl" | "dml":
            return any(route(*table) for table in scope.tables) or any(map(may_hold, scope.schemas))


def _classify(words: TokenReader) -> StatementScope:
    if words.at_end:  # nothing but comments
        return _IGNORED
    first = words.word()
    words.advance()
    match first:
        case "CREATE" | "DROP" | "ALTER":
            return _object(words, first)
        case "TRUNCATE":
            words.take("TABLE")
            return _ddl(words.table())
        case "RENAME":
            return _rename(words)
        case "INSERT" | "REPLACE" | "UPDATE" | "DELETE":
            return _rows(words, first)
        case "LOAD":
            return _load(words)
        case "ANALYZE":
            # MariaDB's ANALYZE statement runs the statement.
            words.take("LOCAL", "NO_WRITE_TO_BINLOG")
            return _IGNORED if words.take("TABLE", "TABLES") else _UNKNOWN
        case "SET":
            # MariaDB: SET STATEMENT variable = value, … FOR statement
            if words.take("STATEMENT"):
                return _classify(words) if words.seek("FOR") else _UNKNOWN
            return _IGNORED
        case "START":
            return _IGNORED if words.take("TRANSACTION", "SLAVE", "REPLICA") else _UNKNOWN
        case "STOP":
            return _IGNORED if words.take("SLAVE", "REPLICA") else _UNKNOWN
        case _:
            return _IGNORED if first in _NO_ROWS else _UNKNOWN


def _ddl(*tables: NameAt) -> StatementScope:
    return StatementScope("ddl", tuple(table.name for table in tables))


def _object(words: TokenReader, verb: str) -> StatementScope:
    """CREATE, DROP or ALTER of something."""
    found = read_object_kind(words)
    if not found.word:
        return _UNKNOWN
    if found.word in NO_TABLES:
        return _IGNORED
    if found.word in ("DATABASE", "SCHEMA"):
        words.exists()
        return StatementScope("ddl", (), words.schemas())
    if found.word == "INDEX":
        return _ddl(words.table()) if words.seek("ON") else _UNKNOWN
    if "TEMPORARY" in found.before:
        return _IGNORED
    words.exists()
    if verb == "DROP":
        return replace(_ddl(*words.tables()), changes_names=True)
    table = words.table()
    if verb == "CREATE":
        words.take_symbol("(")
        like = words.table().name if words.take("LIKE") else None
        return StatementScope("ddl", (table.name,), changes_names=True, like=like)
    # The tables that foreign keys refer to stay as they are.
    moves = [clause for clause in parse_clauses(words, table) if clause.kind in MOVES]
    found = _ddl(table, *itertools.chain.from_iterable(clause.names for clause in moves))
    return replace(found, changes_names=any(clause.kind is ClauseKind.RENAME_TABLE for clause in moves))


def _rename(words: TokenReader) -> StatementScope:
    if words.take("USER"):
        return _IGNORED
    if not words.take("TABLE", "TABLES"):
        return _UNKNOWN
    words.exists()
    return replace(_ddl(*itertools.chain.from_iterable(words.renames())), changes_names=True)


def _rows(words: TokenReader, verb: str) -> StatementScope:
    """A statement on one table; statements on several tables are not parsed."""
    words.skip(_TARGETS_OF_DML[verb])
    table = words.table()
    follows = _AFTER_TARGET.get(verb)
    if follows is not None:
        words.alias(follows)
        if not (words.word() in follows or (verb == "DELETE" and words.at_end)):
            return _UNKNOWN
    return StatementScope("dml", (table.name,))


def _load(words: TokenReader) -> StatementScope:
    if not words.take("DATA", "XML"):
        return _UNKNOWN
    if not (words.seek("INTO") and words.take("TABLE")):
        return _UNKNOWN
    return StatementScope("dml", (words.table().name,))
