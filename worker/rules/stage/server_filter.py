"""Evaluates expressions at the target: over a temporary table whose columns have the source's types and collations.

The query contains the user's text unchanged. Its result depends on the row alone: the session settings that functions
use are fixed, including the clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pymysql

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.rows.charsets import is_utf8
from shardmerge.worker.binlog.rows.literal_text import comparable_expression
from shardmerge.worker.core.mysql.cancellable_session import ANSWER_SECONDS, close_quietly
from shardmerge.worker.core.mysql.connection import (
    Endpoint,
    ErrorKind,
    Session,
    Side,
    connect,
    dialect_of,
    errno_of,
    execute,
    kind_of,
    quote_name,
    rows,
    send,
    to_coded,
)
from shardmerge.worker.core.mysql.server_errors import reason_of
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import TablePlan

SESSION = "SET SESSION timestamp = 1, default_week_format = 0, div_precision_increment = 4"
_TIME_LOCALE = ", lc_time_names = 'en_US'"
"""Settings on which the result of functions depends."""

_ROWS = 1000
_BYTES = 1 << 20
"""Limits of one INSERT."""
_MARK = "shardmerge_row"
_NOT_SUPPORTED = 1235
"""ER_NOT_SUPPORTED_YET"""


class EvaluationFailed(Exception):
    """The server refuses to evaluate the expressions. ``row``: number of the first row for which it does."""

    def __init__(self, row: int, reason: str, errno: int) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason
        self.errno = errno


class ServerFilter:
    """One task's connection to the target for expressions. Opened when first used; one thread at a time.

    Methods raise the coded errors of the connection, and :class:`EvaluationFailed`.
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
        close_quietly(session)

    def true_of(
        self, table: str, columns: tuple[Column, ...], expressions: Sequence[str], found: Sequence[Literals]
    ) -> list[tuple[bool, ...]]:
        """For each row, which of ``expressions`` are true.

        ``table``: the source table's name; ``columns``: the columns in the expressions; ``found``: their literals.
        """
        if not found:
            return []
        try:
            return self._ask(table, columns, expressions, found)
        except pymysql.MySQLError as error:
            self.close()
            if kind_of(errno_of(error)) is not ErrorKind.STATEMENT:
                # Nothing is written: after a connection was lost while idle, try once more.
                try:
                    return self._ask(table, columns, expressions, found)
                except pymysql.MySQLError as again:
                    self.close()
                    error = again
            if kind_of(errno_of(error)) is not ErrorKind.STATEMENT:
                raise to_coded(error, self._endpoint, Side.TARGET, "target") from error
            row = self._first_refused(table, columns, expressions, found)
            raise EvaluationFailed(row, reason_of(error), errno_of(error)) from error

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
        conditions = ", ".join(f"({text}) IS TRUE" for text in expressions)
        answers: list[tuple[bool, ...]] = []
        for start, statement in _inserts(held, columns, found):
            send(session, statement)
            got = rows(session, f"SELECT {_MARK}, {conditions} FROM {held} AS {quote_name(table)} ORDER BY {_MARK}")
            if [int(row[0]) for row in got] != list(range(start, start + len(got))):
                raise AssertionError("rows of an evaluation are missing")
            answers += [tuple(bool(value) for value in row[1:]) for row in got]
            session.rollback()
        return answers

    def _opened(self) -> Session:
        if self._session is None:
            session = connect(self._endpoint, Side.TARGET, name="target", autocommit=False, read_timeout=ANSWER_SECONDS)
            self._session = session
            dialect = dialect_of(session)
            execute(session, f"{SESSION}{_TIME_LOCALE if dialect.has_time_locale else ''}")
            self._is_mariadb = dialect.is_mariadb
        return self._session

    def _table(self, session: Session, columns: tuple[Column, ...]) -> str:
        known = self._tables.get(columns)
        if known is None:
            known = f"{quote_name(self._meta_schema)}.{quote_name(f'{_MARK}s_{len(self._tables)}')}"
            execute(session, create_statement(known, columns, is_mariadb=self._is_mariadb))
            session.commit()
            self._tables[columns] = known
        return known


def check_evaluable(plan: TablePlan, columns: Sequence[Column]) -> None:
    """Check that the target has the character sets of ``columns``: comparisons depend on their collations, too. Raises
    EvaluationFailed."""
    for column in columns:
        if plan.text_as_utf8 and column.charset and not is_utf8(column.charset):
            reason = f"the target lacks character set {column.charset} of column {column.name}, and its collation"
            raise EvaluationFailed(0, reason, _NOT_SUPPORTED)


def create_statement(name: str, columns: Sequence[Column], *, is_mariadb: bool) -> str:
    """The temporary table's statement. Raises ``pymysql.ProgrammingError`` for types that differ at the target."""
    parts = [f"{_MARK} INT NOT NULL PRIMARY KEY"]
    for column in columns:
        if column.kind in (ValueKind.GEOMETRY, ValueKind.VECTOR) or (column.kind is ValueKind.JSON and is_mariadb):
            raise pymysql.ProgrammingError(
                _NOT_SUPPORTED, f"the target cannot evaluate a column of type {column.type_text}"
            )
        charset = f" CHARACTER SET {column.charset} COLLATE {column.collation}" if column.collation else ""
        parts.append(f"{quote_name(column.name)} {column.type_text}{charset} NULL")
    return f"CREATE TEMPORARY TABLE {name} ({', '.join(parts)}) ENGINE = InnoDB"


def _inserts(name: str, columns: Sequence[Column], found: Sequence[Literals]) -> Iterator[tuple[int, bytes]]:
    """Yields (number of the first row, statement)."""
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


def probe_query(plan: TablePlan, columns: Sequence[Column], expressions: Sequence[str]) -> bytes:
    """A query without a table and rows, which a server refuses if it does not support the expressions."""
    columns_sql: list[bytes] = []
    for column in columns:
        value = comparable_expression(column, b"''") if column.kind is ValueKind.STRING else b"NULL"
        columns_sql.append(value + b" AS " + quote_name(column.name).encode())
    conditions = ", ".join(f"({text}) IS TRUE" for text in expressions)
    inner = b", ".join(columns_sql) or b"1"
    return b"SELECT %s FROM (SELECT %s) AS %s LIMIT 0" % (
        conditions.encode(),
        inner,
        quote_name(plan.table.name).encode(),
    )


def failed(plan: TablePlan, expressions: Sequence[str], position: object, why: EvaluationFailed) -> ShardmergeError:
    return errors.replicate.EXPRESSION_FAILED(
        source=plan.source,
        schema=plan.table.schema,
        table=plan.table.name,
        position=position,
        expression="; ".join(dict.fromkeys(expressions)),
        reason=why.reason,
        errno=why.errno,
    )
