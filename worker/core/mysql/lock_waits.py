"""Reads which lock a connection of a server waits for, and which connection holds it; or that it waits for disk space.

Row locks: INNODB_LOCK_WAITS (MariaDB, MySQL 5.7), performance_schema.data_lock_waits (MySQL 8), DATA_LOCK_WAITS (TiDB).
Metadata locks (LOCK TABLES, an open transaction before a DDL): performance_schema.metadata_locks (MySQL), the plugin
METADATA_LOCK_INFO (MariaDB); without the plugin the server does not show the holder.

MariaDB and MySQL 5.7 fill INNODB_LOCK_WAITS again only after 0.1 s without a query of it
(storage/innobase/trx/trx0i_s.cc, CACHE_MIN_IDLE_TIME): a caller that queries it more often reads one answer for ever.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pymysql

from shardmerge.proto import errors
from shardmerge.proto.listed_names import listed
from shardmerge.worker.core.mysql.connection import Session, ask, dialect_of, endpoint_of, quote_name, text_of
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of

_NAMED = 3
_STATEMENT_CHARACTERS = 200
_OWN_CHARACTERS = 4000
_DDL = re.compile(r"\s*(?:ALTER|CREATE|DROP|RENAME|TRUNCATE)\s", re.IGNORECASE)

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
    "LEFT JOIN performance_schema.threads b ON b.THREAD_ID = w.BLOCKING_THREAD_ID "
    "JOIN performance_schema.data_locks l ON l.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID "
    "WHERE r.PROCESSLIST_ID = %s"
)
_TIDB_WAITS, _TIDB_CLUSTER_WAITS = (
    "SELECT h.SESSION_ID, w.KEY_INFO FROM information_schema.DATA_LOCK_WAITS w "
    f"JOIN information_schema.{transactions} r ON r.ID = w.TRX_ID "
    f"JOIN information_schema.{transactions} h ON h.ID = w.CURRENT_HOLDING_TRX_ID WHERE r.SESSION_ID = %s"
    for transactions in ("TIDB_TRX", "CLUSTER_TIDB_TRX")
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
_SPACE_LOGGED = (
    "SELECT 1 FROM performance_schema.error_log WHERE ERROR_CODE = 'MY-000035' AND LOGGED > NOW(6) - INTERVAL (SELECT "
    "TIME + 5 FROM information_schema.PROCESSLIST WHERE ID = %s) SECOND LIMIT 1"
)
"""At MySQL a session that waits for space has the state of its commit, and the wait is logged when it begins."""
_NO_SPACE = 28  # ENOSPC


NO_SESSION = 0
"""The number of a holder that is no connection: a prepared XA transaction whose session has ended."""


@dataclass(frozen=True, slots=True)
class LockWait:
    """``kind``: of the lock. ``table``: quoted, "" if the server does not show it. ``holders``: connections that hold
    it, or NO_SESSION. ``hint``: why there are none."""

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
        numbers = [str(holder) for holder in self.holders if holder != NO_SESSION]
        word = "connection" if len(numbers) == 1 else "connections"
        named = [f"{word} {listed(numbers, _NAMED)}"] if numbers else []
        prepared = ["a prepared XA transaction"] if NO_SESSION in self.holders else []
        return f"a {self.kind}{of_table}, which {' or '.join((*named, *prepared))} of the target may hold"


def wait_phrase(session: Session, connection: int, tables: Sequence[str]) -> str:
    """What ``connection`` waits for, in one phrase: a lock, or free space on the server's disk; "" for neither.
    ``tables``: see :func:`read_lock_wait`. Raises ``pymysql.MySQLError``."""
    wait = read_lock_wait(session, connection, tables)
    if wait is None:
        return _space_wait(session, connection)
    holders = (_space_wait(session, holder) for holder in wait.holders if holder != NO_SESSION)
    return "; ".join(filter(None, (wait.shown, next(filter(None, holders), ""))))


def _space_wait(session: Session, connection: int) -> str:
    """A server waits with a COMMIT whose binlog finds no space, and answers nothing."""
    found = ask(session, "SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = %s", (connection,))
    state = text_of(found[0][0]) if found else ""
    is_logged = state.lower() == "waiting for handler commit" and _read(session, (_SPACE_LOGGED,), connection)
    if not is_logged and "free space" not in state.lower() and "disk space" not in state.lower():
        return ""
    endpoint = endpoint_of(session)
    error = errors.replicate.TARGET_STORAGE(host=endpoint.host, port=endpoint.port, reason=state, errno=_NO_SPACE)
    return f"free disk space: {error}"


def read_lock_wait(session: Session, connection: int, tables: Sequence[str]) -> LockWait | None:
    """What ``connection`` waits for; None: for no lock. ``tables``: quoted names of tables that it may use, by which
    its statement is read. Raises ``pymysql.MySQLError``."""
    found = ask(session, "SELECT STATE, INFO FROM information_schema.PROCESSLIST WHERE ID = %s", (connection,))
    if not found:
        return None
    state, statement = text_of(found[0][0]).lower(), text_of(found[0][1])
    dialect = dialect_of(session)
    if dialect.is_tidb:
        return _tidb_wait(session, connection)
    is_mariadb = dialect.is_mariadb
    if "metadata lock" in state or "table lock" in state:
        named = next((table for table in tables if table in statement), "")
        return _metadata_wait(session, connection, named, is_mariadb=is_mariadb)
    locks = _read(session, (_INNODB_WAITS,) if is_mariadb else (_DATA_LOCK_WAITS, _INNODB_WAITS), connection)
    if locks is None:
        return None
    holders = tuple(dict.fromkeys(int(row[0] or NO_SESSION) for row in locks))
    return LockWait("row lock", text_of(locks[0][1]), holders) if holders else None


@dataclass(frozen=True, slots=True)
class RunningStatement:
    """A statement in progress, cut, and for how long it has run. ``progress``: 0 to 1, over all of its stages; None:
    the server does not show it."""

    connection: int
    seconds: float
    statement: str
    progress: float | None = None

    @property
    def is_ddl(self) -> bool:
        return _DDL.match(self.statement) is not None

    def names_any(self, tables: Sequence[str]) -> bool:
        """Whether it names one of ``tables`` (quoted)."""
        return any(table in self.statement for table in tables)


def own_statements(session: Session, tables: Sequence[str], least_seconds: int) -> tuple[RunningStatement, ...]:
    """The statements of the session's account that name one of ``tables`` (quoted), or are DDLs, and have run for
    ``least_seconds``, the longest first. Every account sees its own. Raises ``pymysql.MySQLError``."""
    stages = "STAGE, MAX_STAGE, PROGRESS" if dialect_of(session).is_mariadb else "0, 0, 0"
    found = _read(
        session,
        (
            f"SELECT ID, TIME, LEFT(INFO, {_OWN_CHARACTERS}), {stages} FROM information_schema.PROCESSLIST "
            "WHERE USER = SUBSTRING_INDEX(USER(), '@', 1) AND ID <> CONNECTION_ID() AND INFO IS NOT NULL "
            "AND TIME >= %s ORDER BY TIME DESC, ID",
        ),
        least_seconds,
    )
    running = (
        RunningStatement(int(row[0]), float(row[1] or 0), text_of(row[2]), _progress(*map(float, row[3:])))
        for row in found or ()
    )
    return tuple(one for one in running if one.is_ddl or one.names_any(tables))


def _progress(stage: float, stages: float, percent: float) -> float | None:
    """``stage``: the present one of ``stages``, from 1; 0: unknown. ``percent``: of this stage. The stages count as
    equally long (https://mariadb.com/kb/en/progress-reporting/)."""
    return min(1.0, (stage - 1 + percent / 100) / stages) if 1 <= stage <= stages else None


def row_locks_visible(session: Session) -> bool:
    """Whether the account may see who holds row locks. Raises ``pymysql.MySQLError``."""
    dialect = dialect_of(session)
    if dialect.is_tidb:
        return _read(session, (_TIDB_WAITS,), 0) is not None
    statements = (_INNODB_WAITS,) if dialect.is_mariadb else (_DATA_LOCK_WAITS, _INNODB_WAITS)
    return _read(session, statements, 0) is not None


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A connection of the server, and since when it does what it does. ``command``: "Sleep" while it is idle.
    ``statement``: what it runs now, cut; "" for none."""

    connection: int
    user: str
    host: str
    command: str
    seconds: float
    statement: str


def read_holders(session: Session, connections: Sequence[int]) -> tuple[LockHolder, ...]:
    """Those of ``connections`` that the account may see. Raises ``pymysql.MySQLError``."""
    if not connections:
        return ()
    numbers = ", ".join(str(int(number)) for number in connections)
    found = _read(
        session,
        (
            f"SELECT ID, USER, HOST, COMMAND, TIME, LEFT(INFO, {_STATEMENT_CHARACTERS}) "
            f"FROM information_schema.PROCESSLIST WHERE ID IN ({numbers}) AND ID <> %s",
        ),
        0,
    )
    if found is None:
        # MySQL refuses the statement (3854) while any session's statement has certain characters.
        wanted = frozenset(connections)
        found = [
            (row[0], row[1], row[2], row[4], row[5], row[7])
            for row in ask(session, "SHOW PROCESSLIST")
            if int(row[0]) in wanted
        ]
    return tuple(
        LockHolder(int(row[0]), text_of(row[1]), text_of(row[2]), text_of(row[3]), float(row[4] or 0), text_of(row[5]))
        for row in found
    )


def connection_number(session: Session) -> int:
    """The number by which the server knows the connection."""
    return int(cast("Any", session).thread_id())


def _tidb_wait(session: Session, connection: int) -> LockWait | None:
    locks = _read(session, (_TIDB_WAITS,), connection)
    if locks is None:
        return None
    if not locks and ask(session, "SELECT 1 FROM information_schema.DATA_LOCK_WAITS LIMIT 1"):
        # Sessions of other TiDB servers; a server that does not answer makes this slow.
        locks = _read(session, (_TIDB_CLUSTER_WAITS,), connection)
    if not locks:
        return None
    try:
        key = cast("dict[str, object]", json.loads(text_of(locks[0][1]) or "{}"))
    except ValueError:
        key = {}
    schema, table = (str(key.get(name, "")) for name in ("db_name", "table_name"))
    holders = tuple(dict.fromkeys(int(row[0]) for row in locks))
    return LockWait("row lock", f"{quote_name(schema)}.{quote_name(table)}" if schema and table else "", holders)


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
