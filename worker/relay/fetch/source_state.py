"""Reads the state of a source's binlog and its GTIDs when the relay connects."""

from __future__ import annotations

import pymysql

from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.mysql.connection import (
    Endpoint,
    ErrorKind,
    ServerInfo,
    Session,
    Side,
    ask,
    coded_errors,
    errno_of,
    kind_of,
    text_of,
)
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.fetch.dump_start import SourceState
from shardmerge.worker.relay.fetch.end_watch import binlog_end
from shardmerge.worker.relay.log.files import FIRST_BYTE


def source_state(session: Session, info: ServerInfo, source: str, endpoint: Endpoint) -> SourceState:
    """Read the state. Raises NO_BINLOG and the errors of shardmerge.worker.core.mysql.server_errors.to_coded."""
    with coded_errors(endpoint, Side.SOURCE, source):
        gtids, executed, purged = _mariadb(session) if info.is_mariadb else _mysql(session)
    return SourceState(
        server=info.identity,
        host=endpoint.host,
        port=endpoint.port,
        gtids=gtids,
        executed=executed,
        purged=purged,
        end=binlog_end(session, info, source, endpoint),  # after the sets: see SourceState.end
    )


def _mysql(session: Session) -> tuple[bool, str, str]:
    try:
        [(mode, executed, purged)] = ask(
            session, "SELECT @@GLOBAL.gtid_mode, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged"
        )
    except pymysql.MySQLError as error:
        if kind_of(errno_of(error)) is ErrorKind.SESSION:  # no such variables: before 5.6
            return False, "", ""
        raise
    # In the modes between OFF and ON some transactions have no GTID.
    return text_of(mode).upper() == "ON", _one_line(executed), _one_line(purged)


def _one_line(value: object) -> str:
    return text_of(value).replace("\n", "")


def _mariadb(session: Session) -> tuple[bool, str, str]:
    [(written, applied)] = ask(session, "SELECT @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos")
    # Only the second contains the transactions that it applied as a replica without logging them.
    state = GtidSet(text_of(written))
    more = [part for part in text_of(applied).split(",") if part and state.never_had(GtidSet(part))]
    return True, ",".join(filter(None, (text_of(written), *more))), _purged_of_mariadb(session)


def _purged_of_mariadb(session: Session) -> str:
    """The GTIDs before its oldest file; "" when the account may not list the files (BINLOG MONITOR)."""
    try:
        files = ask(session, "SHOW BINARY LOGS")
    except pymysql.MySQLError as error:
        if kind_of(errno_of(error)) is ErrorKind.PRIVILEGE:
            return ""
        raise
    return gtid_set_at(session, SourcePosition(text_of(files[0][0]), FIRST_BYTE)) or "" if files else ""


def gtid_set_at(session: Session, position: SourcePosition) -> str | None:
    """MariaDB: the GTID set at a position in its files; None if it is invalid. Raises ``pymysql.MySQLError``."""
    [(found,)] = ask(session, "SELECT BINLOG_GTID_POS(%s, %s)", (position.file, position.pos))
    return None if found is None else text_of(found)


def files_before(session: Session, file: str) -> list[str] | None:
    """The source's files that are older than ``file``, oldest first; None when the account may not list them.

    Raises ``pymysql.MySQLError``.
    """
    try:
        names = [text_of(row[0]) for row in ask(session, "SHOW BINARY LOGS")]
    except pymysql.MySQLError as error:
        if kind_of(errno_of(error)) is ErrorKind.PRIVILEGE:
            return None
        raise
    order = SourcePosition(file, 0).file_order()
    return [name for name in names if SourcePosition(name, 0).file_order() < order]
