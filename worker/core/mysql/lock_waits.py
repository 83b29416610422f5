"""Reads which lock a connection of a server waits for, and which connection holds it.

Row locks: INNODB_LOCK_WAITS (MariaDB, MySQL 5.7), performance_schema.data_lock_waits (MySQL 8). Metadata locks (LOCK
TABLES, an open transaction before a DDL): performance_schema.metadata_locks (MySQL), the plugin METADATA_LOCK_INFO
(MariaDB); without the plugin the server does not show the holder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pymysql

from shardmerge.proto.listed_names import listed
from shardmerge.worker.core.mysql.connection import Session, ask, dialect_of, text_of
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of

_NAMED = 3

_INNODB_WAITS = (
    "SELECT b.trx_mysql_thread_id, l.lock_table, l.lock_index FROM information_schema.INNODB_TRX r "
    "JOIN information_schema.INNODB_LOCK_WAITS w ON w.requesting_trx_id = r.trx_id "
    "JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id "
    "JOIN information_schema.INNODB_LOCKS l ON l.lock_id = w.requested_lock_id WHERE r.trx_mysql_thread_id = %s"
)
_DATA_LOCK_WAITS = (
    "SELECT b.PROCESSLIST_ID, CONCAT('`', l.OBJECT_SCHEMA, '`.`', l.OBJECT_NAME, '`'), l.INDEX_NAME "
    "FROM performance_schema.data_lock_waits w "
    "JOIN performance_schema.threads r ON r.THREAD_ID = w.REQUESTING_THREAD_ID "
    "JOIN performance_schema.threads b ON b.THREAD_ID = w.BLOCKING_THREAD_ID "
    "JOIN performance_schema.data_locks l ON l.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID "
    "WHERE r.PROCESSLIST_ID = %s"
)
_METADATA_LOCKS = (
    "SELECT b.PROCESSLIST_ID, CONCAT('`', p.OBJECT_SCHEMA, '`.`', p.OBJECT_NAME, '`') "
    "FROM performance_schema.metadata_locks p JOIN performance_schema.threads r ON r.THREAD_ID = p.OWNER_THREAD_ID "
    "JOIN performance_schema.metadata_locks g ON g.OBJECT_TYPE = p.OBJECT_TYPE AND g.OBJECT_SCHEMA <=> p.OBJECT_SCHEMA "
    "AND g.OBJECT_NAME <=> p.OBJECT_NAME AND g.LOCK_STATUS = 'GRANTED' AND g.OWNER_THREAD_ID <> p.OWNER_THREAD_ID "
    "JOIN performance_schema.threads b ON b.THREAD_ID = g.OWNER_THREAD_ID "
    "WHERE p.LOCK_STATUS = 'PENDING' AND r.PROCESSLIST_ID = %s"
)
_LOCK_INFO = (
    "SELECT THREAD_ID, CONCAT('`', TABLE_SCHEMA, '`.`', TABLE_NAME, '`') FROM information_schema.METADATA_LOCK_INFO "
    "WHERE THREAD_ID <> %s AND LOCK_TYPE LIKE 'Table%%'"
)


@dataclass(frozen=True, slots=True)
class LockWait:
    """``kind``: of the lock. ``table``: quoted, "" if the server does not show it. ``holders``: connections that hold
    it. ``hint``: why there are none."""

    kind: str
    table: str
    holders: tuple[int, ...]
    hint: str = ""

    @property
    def shown(self) -> str:
        """One phrase: the lock, the table, the connections."""
        of_table = f" of {self.table}" if self.table else ""
        if not self.holders:
            return f"a {self.kind}{of_table}{f' ({self.hint})' if self.hint else ''}"
        named = listed([str(holder) for holder in self.holders], _NAMED)
        word = "connection" if len(self.holders) == 1 else "connections"
        return f"a {self.kind}{of_table}, which {word} {named} of the target may hold"


def read_lock_wait(session: Session, connection: int, tables: Sequence[str]) -> LockWait | None:
    """What ``connection`` waits for; None: for no lock. ``tables``: quoted names of tables that it may use, by which
    its statement is read. Raises ``pymysql.MySQLError``."""
    found = ask(session, "SELECT STATE, INFO FROM information_schema.PROCESSLIST WHERE ID = %s", (connection,))
    if not found:
        return None
    state, statement = text_of(found[0][0]).lower(), text_of(found[0][1])
    is_mariadb = dialect_of(session).is_mariadb
    if "metadata lock" in state or "table lock" in state:
        named = next((table for table in tables if table in statement), "")
        return _metadata_wait(session, connection, named, is_mariadb=is_mariadb)
    locks = _read(session, (_INNODB_WAITS,) if is_mariadb else (_DATA_LOCK_WAITS, _INNODB_WAITS), connection)
    if locks is None:
        return None
    holders = tuple(dict.fromkeys(int(row[0]) for row in locks))
    return LockWait("row lock", text_of(locks[0][1]), holders) if holders else None


def connection_number(session: Session) -> int:
    """The number by which the server knows the connection."""
    return int(cast("Any", session).thread_id())


def _metadata_wait(session: Session, connection: int, table: str, *, is_mariadb: bool) -> LockWait:
    found = _read(session, (_LOCK_INFO,) if is_mariadb else (_METADATA_LOCKS,), connection)
    if found is None:
        hint = "MariaDB shows who holds it after INSTALL SONAME 'metadata_lock_info'" if is_mariadb else ""
        return LockWait("metadata lock", table, (), hint or "the account may not see who holds it")
    same = [row for row in found if not is_mariadb or not table or text_of(row[1]) == table]
    return LockWait(
        "metadata lock",
        table or (text_of(same[0][1]) if same else ""),
        tuple(dict.fromkeys(int(row[0]) for row in same)),
        "" if same else "its holder was not found",
    )


def _read(session: Session, statements: Sequence[str], connection: int) -> list[tuple[Any, ...]] | None:
    """The answer of the first statement that the server and the account allow; None: of none."""
    for statement in statements:
        try:
            return ask(session, statement, (connection,))
        except pymysql.MySQLError as error:
            if kind_of(errno_of(error)) not in (ErrorKind.PRIVILEGE, ErrorKind.STATEMENT):
                raise
    return None
