"""Runs a SELECT and reads its rows as raw bytes as they arrive. PyMySQL sends it, this module reads the answer.

PyMySQL makes a packet object and a decoder call per row and value; here a block of bytes becomes rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pymysql
from pymysql.constants import COMMAND, CR

from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.guarded_connection import LARGEST_ROW, MOST_COLUMNS, raise_error_packet
from shardmerge.worker.core.row_change import JoinedLiterals
from shardmerge.worker.snapshot.source.text_columns import ColumnCutter, CutColumn
from shardmerge.worker.snapshot.source.text_rows import END, ROWS, RowJoiner, join_rows, split_rows

RawRow = list[bytes | None]
T = TypeVar("T")

_READ_BYTES = 1 << 18


def raw_rows(session: Session, statement: bytes) -> Iterator[list[RawRow]]:
    """Run ``statement`` and yield its rows in batches, values as the server's bytes, None for NULL.

    Rows are not buffered: a slow consumer slows down the server. If the iterator is not consumed to its end, the
    connection is unusable: close it. Raises ``pymysql.MySQLError``, also in the middle of the rows.
    """
    return _batches(session, statement, lambda columns: partial(_split, columns))


def joined_rows(session: Session, statement: bytes, joiner: RowJoiner) -> Iterator[list[JoinedLiterals]]:
    """As :func:`raw_rows`, but each row is what ``joiner`` makes of it. Also raises what that raises."""
    return _batches(session, statement, lambda columns: partial(_joined, joiner, columns))


def column_batches(session: Session, statement: bytes, most_bytes: int) -> Iterator[list[CutColumn]]:
    """As :func:`raw_rows`, but the rows as columns, in batches of little more than ``most_bytes``."""
    for batches in _batches(session, statement, partial(_column_cutter, most_bytes)):
        yield from batches


RowCutter = Callable[[bytes, list[T]], tuple[int, int]]
"""A function of text_rows: (bytes, rows to fill) → (state, bytes used)."""


def _split(columns: int, pending: bytes, rows: list[RawRow]) -> tuple[int, int]:
    return split_rows(pending, columns, rows)


def _joined(joiner: RowJoiner, columns: int, pending: bytes, rows: list[JoinedLiterals]) -> tuple[int, int]:
    return join_rows(pending, joiner, columns, rows)


def _column_cutter(most_bytes: int, columns: int) -> RowCutter[list[CutColumn]]:
    cutter = ColumnCutter(columns)

    def cut(pending: bytes, batches: list[list[CutColumn]]) -> tuple[int, int]:
        state, used = cutter.cut(pending)
        held = cutter.held_bytes
        if held > most_bytes or (held and state == END):
            batches.append(cutter.take())
        return state, used

    return cut


def _batches(session: Session, statement: bytes, cut_of: Callable[[int], RowCutter[T]]) -> Iterator[list[T]]:
    """``cut_of``: returns the cutter for rows of so many columns."""
    wire: Any = session
    wire._execute_command(COMMAND.COM_QUERY, statement)
    first = wire._read_packet()
    columns: int | None = None if first.is_ok_packet() else first.read_length_encoded_integer()
    if columns is None or not 0 < columns <= MOST_COLUMNS:
        raise session.refuse("the answer to a SELECT is not a result set")
    for _ in range(columns + 1):  # the column definitions and their EOF
        wire._read_packet()
    cut = cut_of(columns)
    reader = wire._rfile
    pending = b""
    while True:
        pending = _read_more(session, reader, pending)
        rows: list[T] = []
        try:
            state, used = cut(pending, rows)
        except ValueError as error:
            raise pymysql.OperationalError(CR.CR_MALFORMED_PACKET, f"malformed packet: {error}") from error
        if rows:
            yield rows
        if state == ROWS:
            pending = pending[used:]
            continue
        if state == END:
            return
        raise_error_packet(pending[used + 4 :])


def _read_more(session: Session, reader: Any, pending: bytes) -> bytes:
    """Read more bytes after ``pending``; up to the end of the packet that it begins, so that a large row is not joined
    many times."""
    wanted = max(_row_end(session, pending), len(pending) + 1)
    parts = [pending]
    got = len(pending)
    while got < wanted:
        try:
            data: bytes = reader.read1(_READ_BYTES)
        except OSError as error:
            raise pymysql.OperationalError(CR.CR_SERVER_LOST, f"lost connection during query: {error}") from error
        if not data:
            raise pymysql.OperationalError(CR.CR_SERVER_LOST, "lost connection to server during query")
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def _row_end(session: Session, pending: bytes) -> int:
    """Where the first row of ``pending`` ends, as far as its packets' headers are known."""
    end = 0
    while end + 4 <= len(pending):
        length = int.from_bytes(pending[end : end + 3], "little")
        end += 4 + length
        if length < 0xFFFFFF:
            break
        if end > LARGEST_ROW:
            raise session.refuse("a row exceeds the largest possible size")
    return end
