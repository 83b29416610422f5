"""Which tables and schemas a statement of the binlog changes: pure, by its words.

What is not understood is "unknown", which counts as touching everything: the task stops before the statement
instead of losing it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from worker.ddl.lexer import Kind, Token, tokens

TableName = tuple[str, str]
"""(schema, table) as written, the default schema filled in."""


@dataclass(frozen=True, slots=True)
class StatementScope:
    """``kind``: "ddl" changes the structure of ``tables`` or whole ``schemas``; "dml" changes rows of ``tables``
    (a source that does not log rows); "ignored" changes no rows and no structure of base tables (views, routines,
    accounts, temporary tables, maintenance); "unknown" may change anything.
    """

    kind: Literal["ddl", "dml", "ignored", "unknown"]
    tables: tuple[TableName, ...] = ()
    schemas: tuple[str, ...] = ()


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_IGNORED = StatementScope("ignored")
_UNKNOWN = StatementScope("unknown")

_NO_ROWS = _set(
    "BEGIN BINLOG CACHE CHANGE CHECK CHECKSUM COMMIT FLUSH GRANT HELP INSTALL KILL LOCK OPTIMIZE PURGE "
    "RELEASE REPAIR RESET REVOKE ROLLBACK SAVEPOINT SHOW UNINSTALL UNLOCK USE XA"
)
"""First words of statements that change no row and no structure of a base table."""

_NO_TABLES = _set(
    "AGGREGATE EVENT FUNCTION LIBRARY LOGFILE PACKAGE PREPARE PROCEDURE REFERENCE RESOURCE ROLE ROUTINE "
    "SEQUENCE SERVER TABLESPACE TRIGGER USER VIEW INSTANCE"
)
"""Objects of CREATE, ALTER and DROP that hold no rows of a base table. (MariaDB's sequences are no base tables.)"""

_OBJECTS = _NO_TABLES | {"TABLE", "TABLES", "DATABASE", "SCHEMA", "INDEX"}
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
_OPTIONS_OF_SCHEMA = _set("CHARACTER CHARSET COLLATE COMMENT DEFAULT ENCRYPTION READ UPGRADE")


class _NotUnderstoodError(Exception):
    """The words do not go on as this module knows them."""


class _Words:
    """The tokens of a statement, read from left to right."""

    def __init__(self, found: tuple[Token, ...], default_schema: str) -> None:
        self._tokens = found
        self._at = 0
        self._schema = default_schema

    @property
    def next(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def word(self) -> str:
        """The next token if it is a keyword, in upper case; else ""."""
        token = self.next
        return token.text.upper() if token is not None and token.kind is Kind.WORD else ""

    def advance(self) -> None:
        self._at += 1

    def take(self, *words: str) -> bool:
        """Go past the next token if it is one of these keywords."""
        if self.word() not in words:
            return False
        self._at += 1
        return True

    def take_symbol(self, symbol: str) -> bool:
        token = self.next
        if token is None or not token.is_symbol(symbol):
            return False
        self._at += 1
        return True

    def skip(self, words: frozenset[str]) -> None:
        while self.word() in words:
            self._at += 1

    def exists(self) -> None:
        """Go past IF [NOT] EXISTS."""
        if self.take("IF"):
            self.take("NOT")
            if not self.take("EXISTS"):
                raise _NotUnderstoodError

    def name(self) -> str:
        token = self.next
        if token is None or not token.is_name:
            raise _NotUnderstoodError
        self._at += 1
        return token.text

    def table(self) -> TableName:
        """[schema .] table, or . table"""
        if self.take_symbol("."):
            return self._in_default(self.name())
        first = self.name()
        return (first, self.name()) if self.take_symbol(".") else self._in_default(first)

    def _in_default(self, table: str) -> TableName:
        if not self._schema:
            raise _NotUnderstoodError
        return self._schema, table

    def schemas(self) -> tuple[str, ...]:
        """A schema's name. ALTER may leave it out: what could be an option counts as both."""
        if self.word() not in _OPTIONS_OF_SCHEMA:
            return (self.name(),)
        return (self.name(), self._schema) if self._schema else (self.name(),)

    def alias(self, follows: frozenset[str]) -> None:
        """Go past [AS] alias, unless one of ``follows`` is next."""
        if self.take("AS"):
            self.name()
            return
        token = self.next
        if token is not None and token.is_name and self.word() not in follows:
            self._at += 1

    def seek(self, *words: str) -> str:
        """Go past the next of these keywords that stands outside of parentheses; which it was, "" for none."""
        depth = 0
        while (token := self.next) is not None:
            self._at += 1
            if token.is_symbol("("):
                depth += 1
            elif token.is_symbol(")"):
                depth -= 1
            elif depth == 0 and token.is_word(*words):
                return token.text.upper()
        return ""

    @property
    def at_end(self) -> bool:
        token = self.next
        return token is None or token.is_symbol(";")


def classify(statement: str, default_schema: str, sql_mode: int | None) -> StatementScope:
    """What ``statement`` changes; names without a schema are in ``default_schema`` ("" for none).

    ``sql_mode``: the server's bit mask in the statement's event; None counts as 0.
    """
    found = tokens(statement, sql_mode or 0)
    if any(token.kind is Kind.BAD for token in found):
        return _UNKNOWN
    try:
        return _classify(_Words(found, default_schema))
    except _NotUnderstoodError:
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


def _classify(words: _Words) -> StatementScope:
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


def _ddl(*tables: TableName) -> StatementScope:
    return StatementScope("ddl", tables)


def _object(words: _Words, verb: str) -> StatementScope:
    """CREATE, DROP or ALTER of something."""
    temporary = False
    while (word := words.word()) not in _OBJECTS:
        if words.next is None:
            return _UNKNOWN
        temporary = temporary or word == "TEMPORARY"
        if word == "DEFINER":
            _definer(words)
        else:  # OR REPLACE, UNIQUE, ONLINE, IGNORE, ALGORITHM = …, SQL SECURITY …, UNDO, SPATIAL
            words.advance()
    words.advance()
    if word in _NO_TABLES:
        return _IGNORED
    if word in ("DATABASE", "SCHEMA"):
        words.exists()
        return StatementScope("ddl", (), words.schemas())
    if word == "INDEX":
        return _ddl(words.table()) if words.seek("ON") else _UNKNOWN
    if temporary:
        return _IGNORED
    words.exists()
    if verb == "DROP":
        return _list(words)
    table = words.table()
    return _alter(words, table) if verb == "ALTER" else _ddl(table)


def _definer(words: _Words) -> None:
    """DEFINER = user [@ host], whose names may look like keywords."""
    words.advance()
    if words.take_symbol("="):
        words.advance()
        if words.take_symbol("@"):
            words.advance()


def _list(words: _Words) -> StatementScope:
    tables = [words.table()]
    while words.take_symbol(","):
        tables.append(words.table())
    return _ddl(*tables)


def _alter(words: _Words, table: TableName) -> StatementScope:
    """ALTER TABLE: its table, its new name, and a table that a partition is exchanged with or made of."""
    tables = [table]
    while clause := words.seek("RENAME", "EXCHANGE", "CONVERT"):
        if clause == "RENAME":
            if words.take("COLUMN", "INDEX", "KEY"):
                continue
            if not words.take("TO", "AS"):
                words.take_symbol("=")
            tables.append(words.table())
        elif words.take("PARTITION"):
            # EXCHANGE PARTITION p WITH TABLE t; MariaDB: CONVERT PARTITION p TO TABLE t
            words.name()
            if not (words.take("WITH", "TO") and words.take("TABLE")):
                raise _NotUnderstoodError
            tables.append(words.table())
        elif clause == "CONVERT" and words.take("TABLE"):
            tables.append(words.table())  # MariaDB: CONVERT TABLE t TO PARTITION p …
    return _ddl(*tables)


def _rename(words: _Words) -> StatementScope:
    if words.take("USER"):
        return _IGNORED
    if not words.take("TABLE", "TABLES"):
        return _UNKNOWN
    words.exists()
    tables: list[TableName] = []
    while True:
        tables.append(words.table())
        if words.take("WAIT"):  # MariaDB: RENAME TABLE t WAIT n TO …
            words.advance()
        words.take("NOWAIT")
        if not words.take("TO"):
            raise _NotUnderstoodError
        tables.append(words.table())
        if not words.take_symbol(","):
            return _ddl(*tables)


def _rows(words: _Words, verb: str) -> StatementScope:
    """A statement on one table; those on several are not taken apart."""
    words.skip(_TARGETS_OF_DML[verb])
    table = words.table()
    follows = _AFTER_TARGET.get(verb)
    if follows is not None:
        words.alias(follows)
        if not (words.word() in follows or (verb == "DELETE" and words.at_end)):
            return _UNKNOWN
    return StatementScope("dml", (table,))


def _load(words: _Words) -> StatementScope:
    if not words.take("DATA", "XML"):
        return _UNKNOWN
    if not (words.seek("INTO") and words.take("TABLE")):
        return _UNKNOWN
    return StatementScope("dml", (words.table(),))
