"""Finds statements of the task that read many more rows than they have keys: the target finds their rows by a scan.

MariaDB shows the rows that a running statement has read so far (EXAMINED_ROWS of information_schema.PROCESSLIST; an
account sees its own sessions without PROCESS). MySQL shows them in performance_schema, which needs SELECT on it, and
also how many rows the last statements of each connection have changed. TiDB shows neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql

from shardmerge.worker.core.mysql.connection import Session, ask, dialect_of, text_of
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of

_CHARACTERS = 4000
_LEAST_ROWS = 20_000
"""A statement of fewer rows is no scan that matters: deletions by ranges read 10,000 rows that they delete."""

_LEAST_RATIO = 100

_KEYS = "LENGTH({text}) - LENGTH(REPLACE({text}, ',', '')) + 1"
"""A statement names no more keys than it has commas, and one. The servers show its first 64 KiB."""

_RUNNING = (
    f"SELECT ID, EXAMINED_ROWS, {_KEYS.format(text='INFO')}, NULL, LEFT(INFO, {_CHARACTERS}) "
    "FROM information_schema.PROCESSLIST WHERE ID IN ({numbers}) AND INFO IS NOT NULL"
)
_LAST = " UNION ALL ".join(
    f"SELECT t.PROCESSLIST_ID, s.ROWS_EXAMINED, {_KEYS.format(text='t.PROCESSLIST_INFO')}, "
    "IF(s.END_EVENT_ID IS NULL, NULL, s.ROWS_AFFECTED), s.SQL_TEXT "
    f"FROM performance_schema.{table} s JOIN performance_schema.threads t ON t.THREAD_ID = s.THREAD_ID "
    f"WHERE t.PROCESSLIST_ID IN ({{numbers}}) AND s.ROWS_EXAMINED >= {_LEAST_ROWS} AND s.SQL_TEXT IS NOT NULL"
    for table in ("events_statements_current", "events_statements_history")
)
_WRITES = ("update", "delete", "insert", "replace")


@dataclass(frozen=True, slots=True)
class StatementScan:
    """``most_keys``: that the statement names, at most; 0: not known. ``changed``: None: not known."""

    connection: int
    table: str
    read: int
    most_keys: int
    changed: int | None
    statement: str


def read_scans(session: Session, connections: Sequence[int], tables: Sequence[str]) -> tuple[StatementScan, ...]:
    """The worst one of each connection. ``tables``: quoted names. Raises ``pymysql.MySQLError``."""
    dialect = dialect_of(session)
    if not connections or dialect.is_tidb:
        return ()
    numbers = ", ".join(str(int(number)) for number in connections)
    statement = (_RUNNING if dialect.is_mariadb else _LAST).format(numbers=numbers)
    try:
        found = ask(session, statement)
    except pymysql.MySQLError as error:
        if kind_of(errno_of(error)) not in (ErrorKind.PRIVILEGE, ErrorKind.STATEMENT):
            raise
        return ()
    worst: dict[int, StatementScan] = {}
    for scan in sorted(_scans(found, tables), key=lambda each: -each.read):
        worst.setdefault(scan.connection, scan)
    return tuple(worst.values())


def _scans(found: Sequence[Sequence[Any]], tables: Sequence[str]) -> Iterator[StatementScan]:
    for number, read, keys, changed, text in found:
        statement = text_of(text)
        table = next((name for name in tables if name in statement), "")
        has_ended = changed is not None
        known = 0 if has_ended else int(keys or 0)
        scan = StatementScan(int(number), table, int(read or 0), known, int(changed) if has_ended else None, statement)
        if table and is_scan(scan):
            yield scan


def is_scan(scan: StatementScan) -> bool:
    """Whether it reads many more rows than it has keys, or has changed. Pure."""
    if not scan.statement.lstrip().lower().startswith(_WRITES):
        return False  # a comparison reads what it shows
    if scan.changed is None and not scan.most_keys:
        return False
    needed = scan.most_keys if scan.changed is None else scan.changed
    return scan.read >= _LEAST_ROWS and scan.read >= _LEAST_RATIO * max(needed, 1)
