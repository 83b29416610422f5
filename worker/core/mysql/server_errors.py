"""Classifies failures of servers and of the client library by error number.

The numbers are from MySQL's "Server Error Message Reference" and "Client Error Message Reference",
MariaDB's "MariaDB Error Codes" and TiDB's "Error Codes and Troubleshooting".
"""

from __future__ import annotations

import enum
from collections.abc import Generator
from contextlib import contextmanager

import pymysql

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.mysql.endpoint import Endpoint, Peer, Side
from shardmerge.worker.core.mysql.guarded_connection import REFUSED_ANSWER


class ErrorKind(enum.Enum):
    """The kind of failure of an error number, which determines whether it is retried."""

    LOST = enum.auto()  # the connection or the server is gone
    ACCESS = enum.auto()  # the user may not log in
    PRIVILEGE = enum.auto()  # logged in, but not allowed
    BUSY = enum.auto()  # too many connections, out of memory
    CONFLICT = enum.auto()  # lock wait, deadlock, write conflict, two dumps with one server-id: try again
    READ_ONLY = enum.auto()  # a fail-over is in progress, or an administrator made it read-only
    STORAGE = enum.auto()  # disk or table full
    TOO_LARGE = enum.auto()  # the transaction: a smaller one may pass
    SESSION = enum.auto()  # a variable or its value is refused
    STATEMENT = enum.auto()  # the statement itself is refused
    WRONG_SERVER = enum.auto()  # the answer violates the protocol, or requests something that is refused


_TROUBLES: tuple[tuple[ErrorKind, tuple[int, ...]], ...] = (
    # 0: PyMySQL's "already closed"; 2002–2055 client side; 1053, 1077–1080 shut-down; 1152–1190 network;
    # 1317, 1927, 1969, 3024, 3169, 4031 killed by hand or by a time limit; 3032 MySQL's offline_mode;
    # 8146 and 9000–9013 TiDB's components.
    (ErrorKind.LOST, (0, 2002, 2003, 2005, 2006, 2012, 2013, 2014, 2026, 2027, 2055, 1053, 1077, 1079, 1080)),
    (ErrorKind.LOST, (1152, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1184, 1189, 1190)),
    (ErrorKind.LOST, (1317, 1927, 1969, 3024, 3032, 3169, 4031)),
    (ErrorKind.LOST, (8146, 9001, 9002, 9003, 9004, 9005, 9008, 9010, 9011, 9012, 9013)),
    # 1698 wrong plugin; 1130 host; 1251, 1524, 2049, 2059, 2061 authentication method; 1820, 1862 password
    # expired; 3118, 4151 account locked; 3159 TLS required.
    (ErrorKind.ACCESS, (1045, 1130, 1251, 1524, 1698, 1820, 1862, 2049, 2059, 2061, 3118, 3159, 4151)),
    (ErrorKind.PRIVILEGE, (1044, 1095, 1142, 1143, 1227, 1370, 1410, 1419, 8121)),
    # 8176 the memory of a whole TiDB server; 8252–8254 a limit of a TiDB resource group.
    (ErrorKind.BUSY, (1037, 1038, 1040, 1041, 1129, 1135, 1203, 1226, 8176, 8252, 8253, 8254)),
    # 1020 snapshot conflict (MariaDB innodb_snapshot_isolation); 1412 table definition changed; 1637 too many
    # transactions; 3101 undone by MySQL's group replication; 4052 another replica with our server-id (MariaDB ends
    # the older dump).
    (ErrorKind.CONFLICT, (1020, 1205, 1213, 1412, 1613, 1614, 1637, 3058, 3101, 3572, 4052)),
    # TiDB: 8002, 8005, 9007 write conflict; 8022, 8024 the commit failed, or the transaction is gone; 8027, 8028, 8113
    # the schema changed meanwhile, 8020, 8245 changes now, 8206 a DDL takes longer than its statement waits; 8055, 9006
    # the transaction is too old, 8229 its lock has expired.
    (ErrorKind.CONFLICT, (8002, 8005, 8020, 8022, 8024, 8027, 8028, 8055, 8113, 8206, 8229, 8245, 9006, 9007)),
    # 8001, 8004, 8175 of TiDB: the memory of one transaction.
    (ErrorKind.TOO_LARGE, (8001, 8004, 8175)),
    (ErrorKind.READ_ONLY, (1290, 1792, 1836)),
    # 3, 20: the server's own file layer (mysys/my_error.h: EE_WRITE, EE_DISK_FULL).
    (ErrorKind.STORAGE, (3, 20, 1021, 1026, 1030, 1114)),
    (ErrorKind.WRONG_SERVER, (REFUSED_ANSWER,)),
    (ErrorKind.SESSION, (1115, 1193, 1228, 1229, 1231, 1232, 1238, 1273, 1298)),
)
_BY_NUMBER = {number: kind for kind, numbers in _TROUBLES for number in numbers}


def kind_of(errno: int) -> ErrorKind:
    """The kind of an error number; unknown ones are STATEMENT, which is never retried."""
    return _BY_NUMBER.get(errno, ErrorKind.STATEMENT)


def errno_of(error: pymysql.MySQLError) -> int:
    """The error number of an error of PyMySQL; 0 when it has none (a closed or garbled connection)."""
    args: tuple[object, ...] = error.args
    return args[0] if args and isinstance(args[0], int) else 0


_SOURCE_SPECS: dict[ErrorKind, ErrorSpec] = {
    ErrorKind.LOST: errors.relay.SOURCE_LOST,
    ErrorKind.ACCESS: errors.relay.ACCESS_DENIED,
    ErrorKind.PRIVILEGE: errors.relay.PRIVILEGE_MISSING,
    ErrorKind.BUSY: errors.relay.SOURCE_BUSY,
    ErrorKind.CONFLICT: errors.relay.SOURCE_CONFLICT,
    ErrorKind.READ_ONLY: errors.relay.SOURCE_REJECTED,
    ErrorKind.STORAGE: errors.relay.SOURCE_STORAGE,
    ErrorKind.TOO_LARGE: errors.relay.SOURCE_BUSY,
    ErrorKind.SESSION: errors.relay.SOURCE_REJECTED,
    ErrorKind.STATEMENT: errors.relay.SOURCE_REJECTED,
    ErrorKind.WRONG_SERVER: errors.worker.ANSWER_REFUSED,
}
_TARGET_SPECS: dict[ErrorKind, ErrorSpec] = {
    ErrorKind.LOST: errors.replicate.TARGET_LOST,
    ErrorKind.ACCESS: errors.replicate.TARGET_ACCESS_DENIED,
    ErrorKind.PRIVILEGE: errors.replicate.TARGET_PRIVILEGE_MISSING,
    ErrorKind.BUSY: errors.replicate.TARGET_BUSY,
    ErrorKind.CONFLICT: errors.replicate.TARGET_CONFLICT,
    ErrorKind.READ_ONLY: errors.replicate.TARGET_READ_ONLY,
    ErrorKind.STORAGE: errors.replicate.TARGET_STORAGE,
    ErrorKind.TOO_LARGE: errors.replicate.TARGET_TRANSACTION_TOO_LARGE,
    ErrorKind.SESSION: errors.replicate.TARGET_STATEMENT,
    ErrorKind.STATEMENT: errors.replicate.TARGET_STATEMENT,
    ErrorKind.WRONG_SERVER: errors.worker.ANSWER_REFUSED,
}


def to_coded(error: pymysql.MySQLError, endpoint: Endpoint, side: Side, name: str) -> ShardmergeError:
    """The catalogue's error for a server's or client library's error number.

    Returned, not raised: ``raise to_coded(error, ...) from error``. Scope and retry follow from the number. An error of
    the target has no source: the subtask adds its own (see :meth:`ShardmergeError.completed`). ``endpoint``, ``side``,
    ``name``: of the server, unless the error itself knows the one whose session has raised it.
    """
    errno = errno_of(error)
    peer: Peer | None = vars(error).get("peer")
    if peer is not None:
        endpoint, side, name = peer.endpoint, peer.side, peer.name
    specs = _SOURCE_SPECS if side is Side.SOURCE else _TARGET_SPECS
    where = {"source": name} if side is Side.SOURCE else {}
    return specs[kind_of(errno)](
        **where,
        host=endpoint.host,
        port=endpoint.port,
        user=endpoint.user,
        reason=reason_of(error),
        errno=errno,
    )


@contextmanager
def coded_errors(endpoint: Endpoint, side: Side, name: str) -> Generator[None]:
    """Server errors of the block are raised as coded errors of this endpoint."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise to_coded(error, endpoint, side, name) from error


def reason_of(error: pymysql.MySQLError) -> str:
    args: tuple[object, ...] = error.args
    if len(args) > 1 and args[1]:
        return str(args[1])
    if args and isinstance(args[0], str):
        return args[0]
    return "the connection is closed"
