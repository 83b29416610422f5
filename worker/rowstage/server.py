"""Expressions that the target evaluates: over a temporary table whose columns have the source's types and collations.

The text stands in the query as the user wrote it. What it means there depends on the row alone: the session's settings
that functions look at are fixed, the clock among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pymysql

from proto import errors
from proto.errors import ShardmergeError
from worker.connection import (
    Endpoint,
    Session,
    Side,
    Trouble,
    coded,
    connect,
    errno_of,
    execute,
    quote_name,
    rows,
    send,
    server_info,
    trouble,
)
from worker.cutoff import ANSWER_SECONDS, let_go
from worker.plan import TablePlan
from worker.rows import Literals
from worker.snapshot.order import typed
from worker.table import Column, ValueKind
from worker.trouble import reason_of

SESSION = "SET SESSION timestamp = 1, lc_time_names = 'en_US', default_week_format = 0, div_precision_increment = 4"
"""What functions of an expression would otherwise take from the server or the clock."""

_ROWS = 1000
_BYTES = 1 << 20
"""Of one INSERT."""
_MARK = "shardmerge_row"


class Unevaluated(Exception):
    """The server refuses to evaluate. ``row``: the first row of those asked about that makes it so."""

    def __init__(self, row: int, reason: str, errno: int) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason
        self.errno = errno


class Judge:
    """One task's line to the target for expressions. Opened when first asked; one thread at a time.

    Methods raise the coded errors of the connection, and :class:`Unevaluated`.
    """

    def __init__(self, endpoint: Endpoint, meta_schema: str) -> None:
        self._endpoint = endpoint
        self._meta_schema = meta_schema
        self._session: Session | None = None
        self._tables: dict[tuple[Column, ...], str] = {}
        self._is_mariadb = False

    def close(self) -> None:
        session, self._session = self._session, None
        self._tables = {}
        let_go(session)

    def true_of(
        self, table: str, columns: tuple[Column, ...], expressions: Sequence[str], found: Sequence[Literals]
    ) -> list[tuple[bool, ...]]:
        """For each row which of ``expressions`` are true.

        ``table``: the source table's name; ``columns``: those that the expressions name; ``found``: their literals.
        """
        if not found:
            return []
        try:
            return self._ask(table, columns, expressions, found)
        except pymysql.MySQLError as error:
            self.close()
            if trouble(errno_of(error)) is not Trouble.STATEMENT:
                # Nothing is written: a line that was cut while idle is opened once more.
                try:
                    return self._ask(table, columns, expressions, found)
                except pymysql.MySQLError as again:
                    self.close()
                    error = again
            if trouble(errno_of(error)) is not Trouble.STATEMENT:
                raise coded(error, self._endpoint, Side.TARGET, "target") from error
            row = self._first_refused(table, columns, expressions, found)
            raise Unevaluated(row, reason_of(error), errno_of(error)) from error

    def _first_refused(
        self, table: str, columns: tuple[Column, ...], expressions: Sequence[str], found: Sequence[Literals]
    ) -> int:
        if len(found) == 1:
            return 0
        for at, row in enumerate(found):
            try:
                self._ask(table, columns, expressions, [row])
            except pymysql.MySQLError:
                self.close()
                return at
        return 0

    def _ask(
        self, table: str, columns: tuple[Column, ...], expressions: Sequence[str], found: Sequence[Literals]
    ) -> list[tuple[bool, ...]]:
        session = self._opened()
        held = self._table(session, columns)
        asked = ", ".join(f"({text}) IS TRUE" for text in expressions)
        answers: list[tuple[bool, ...]] = []
        for start, statement in _inserts(held, columns, found):
            send(session, statement)
            got = rows(session, f"SELECT {_MARK}, {asked} FROM {held} AS {quote_name(table)} ORDER BY {_MARK}")
            if [int(row[0]) for row in got] != list(range(start, start + len(got))):
                raise AssertionError("rows of an evaluation are missing")
            answers += [tuple(bool(value) for value in row[1:]) for row in got]
            session.rollback()
        return answers

    def _opened(self) -> Session:
        if self._session is None:
            session = connect(self._endpoint, Side.TARGET, name="target", autocommit=False, read_timeout=ANSWER_SECONDS)
            self._session = session
            execute(session, SESSION)
            self._is_mariadb = server_info(session).is_mariadb
        return self._session

    def _table(self, session: Session, columns: tuple[Column, ...]) -> str:
        known = self._tables.get(columns)
        if known is None:
            known = f"{quote_name(self._meta_schema)}.{quote_name(f'{_MARK}s_{len(self._tables)}')}"
            execute(session, created(known, columns, is_mariadb=self._is_mariadb))
            session.commit()
            self._tables[columns] = known
        return known


def created(name: str, columns: Sequence[Column], *, is_mariadb: bool) -> str:
    """The temporary table's statement. Raises ``pymysql.ProgrammingError`` for types that mean something else there."""
    parts = [f"{_MARK} INT NOT NULL PRIMARY KEY"]
    for column in columns:
        if column.kind in (ValueKind.GEOMETRY, ValueKind.VECTOR) or (column.kind is ValueKind.JSON and is_mariadb):
            raise pymysql.ProgrammingError(1235, f"the target cannot evaluate a column of type {column.type_text}")
        charset = f" CHARACTER SET {column.charset} COLLATE {column.collation}" if column.collation else ""
        parts.append(f"{quote_name(column.name)} {column.type_text}{charset} NULL")
    return f"CREATE TEMPORARY TABLE {name} ({', '.join(parts)}) ENGINE = InnoDB"


def _inserts(name: str, columns: Sequence[Column], found: Sequence[Literals]) -> Iterator[tuple[int, bytes]]:
    """(number of the first row, statement)."""
    names = ", ".join([_MARK, *(quote_name(column.name) for column in columns)])
    head = f"INSERT INTO {name} ({names}) VALUES ".encode()
    parts: list[bytes] = []
    start = size = 0
    for number, row in enumerate(found):
        part = b"(" + b",".join([b"%d" % number, *row]) + b")"
        if parts and (len(parts) == _ROWS or size + len(part) > _BYTES):
            yield start, head + b",".join(parts)
            parts, start, size = [], number, 0
        parts.append(part)
        size += len(part)
    yield start, head + b",".join(parts)


def trial(plan: TablePlan, columns: Sequence[Column], expressions: Sequence[str]) -> bytes:
    """A query without a table or a row, that a server refuses if it does not understand the expressions."""
    given: list[bytes] = []
    for column in columns:
        value = typed(column, b"''") if column.kind is ValueKind.STRING else b"NULL"
        given.append(value + b" AS " + quote_name(column.name).encode())
    asked = ", ".join(f"({text}) IS TRUE" for text in expressions)
    inner = b", ".join(given) or b"1"
    return b"SELECT %s FROM (SELECT %s) AS %s LIMIT 0" % (asked.encode(), inner, quote_name(plan.table.name).encode())


def failed(plan: TablePlan, expressions: Sequence[str], position: object, why: Unevaluated) -> ShardmergeError:
    return errors.replicate.EXPRESSION_FAILED(
        source=plan.source,
        schema=plan.table.schema,
        table=plan.table.name,
        position=position,
        expression="; ".join(dict.fromkeys(expressions)),
        reason=why.reason,
        errno=why.errno,
    )
