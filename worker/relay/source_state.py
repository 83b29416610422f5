"""What a source says about its binlog and its GTIDs when the relay connects."""

from __future__ import annotations

import pymysql

from worker.connection import (
    Endpoint,
    ServerInfo,
    Session,
    Side,
    Trouble,
    ask,
    coding,
    errno_of,
    text_of,
    trouble,
)
from worker.position import SourcePosition
from worker.relay.files import FIRST_BYTE
from worker.relay.gtid import GtidSet
from worker.relay.source_end import binlog_end
from worker.relay.start import SourceState


def source_state(session: Session, info: ServerInfo, source: str, endpoint: Endpoint) -> SourceState:
    """Ask it. Raises NO_BINLOG and what worker.connection.coded makes of a failure."""
    with coding(endpoint, Side.SOURCE, source):
        gtids, executed, purged = _mariadb(session) if info.is_mariadb else _mysql(session)
    return SourceState(
        server=info.identity,
        host=endpoint.host,
        port=endpoint.port,
        gtids=gtids,
        executed=executed,
        purged=purged,
        end=binlog_end(session, info, source, endpoint),  # behind the sets: see SourceState.end
    )


def _mysql(session: Session) -> tuple[bool, str, str]:
    try:
        [(mode, executed, purged)] = ask(
            session, "SELECT @@GLOBAL.gtid_mode, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged"
        )
    except pymysql.MySQLError as error:
        if trouble(errno_of(error)) is Trouble.SESSION:  # no such variables: before 5.6
            return False, "", ""
        raise
    # In the modes between OFF and ON some transactions have no GTID.
    return text_of(mode).upper() == "ON", _one_line(executed), _one_line(purged)


def _one_line(value: object) -> str:
    return text_of(value).replace("\n", "")


def _mariadb(session: Session) -> tuple[bool, str, str]:
    [(written, applied)] = ask(session, "SELECT @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos")
    # What it applied as a replica that does not log its updates stands in the second alone.
    state = GtidSet(text_of(written))
    more = [part for part in text_of(applied).split(",") if part and state.never_had(GtidSet(part))]
    return True, ",".join(filter(None, (text_of(written), *more))), _purged_of_mariadb(session)


def _purged_of_mariadb(session: Session) -> str:
    """What was written before its oldest file; "" when the account may not list them (BINLOG MONITOR)."""
    try:
        files = ask(session, "SHOW BINARY LOGS")
    except pymysql.MySQLError as error:
        if trouble(errno_of(error)) is Trouble.PRIVILEGE:
            return ""
        raise
    return gtid_set_at(session, SourcePosition(text_of(files[0][0]), FIRST_BYTE)) or "" if files else ""


def gtid_set_at(session: Session, position: SourcePosition) -> str | None:
    """MariaDB: the GTID set at a place of its files; None when it is none. Raises ``pymysql.MySQLError``."""
    [(found,)] = ask(session, "SELECT BINLOG_GTID_POS(%s, %s)", (position.file, position.pos))
    return None if found is None else text_of(found)


def files_before(session: Session, file: str) -> list[str] | None:
    """The source's files that are older than ``file``, oldest first; None when the account may not list them.

    Raises ``pymysql.MySQLError``.
    """
    try:
        names = [text_of(row[0]) for row in ask(session, "SHOW BINARY LOGS")]
    except pymysql.MySQLError as error:
        if trouble(errno_of(error)) is Trouble.PRIVILEGE:
            return None
        raise
    order = SourcePosition(file, 0).file_order()
    return [name for name in names if SourcePosition(name, 0).file_order() < order]
