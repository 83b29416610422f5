"""Failures of servers and of the client library, told apart by error number.

The numbers are from MySQL's "Server Error Message Reference" and "Client Error Message Reference",
MariaDB's "MariaDB Error Codes" and TiDB's "Error Codes and Troubleshooting".
"""

from __future__ import annotations

import enum
from collections.abc import Generator
from contextlib import contextmanager

import pymysql

from proto import errors
from proto.errors import ErrorSpec, ShardmergeError
from worker.endpoint import Endpoint, Side
from worker.guarded_connection import REFUSED_ANSWER


class Trouble(enum.Enum):
    """What kind of failure an error number is: all a retry decision needs."""

    LOST = enum.auto()  # the connection or the server is gone
    ACCESS = enum.auto()  # the user may not log in
    PRIVILEGE = enum.auto()  # logged in, but not allowed
    BUSY = enum.auto()  # too many connections, out of memory
    CONFLICT = enum.auto()  # lock wait, deadlock, write conflict, two dumps with one server-id: try again
    READ_ONLY = enum.auto()  # a fail-over is under way, or somebody made it read-only
    STORAGE = enum.auto()  # disk or table full
    SESSION = enum.auto()  # a variable or its value is refused
    STATEMENT = enum.auto()  # the statement itself is refused
    WRONG_SERVER = enum.auto()  # the answer violates the protocol, or requests something that is refused


_TROUBLES: tuple[tuple[Trouble, tuple[int, ...]], ...] = (
    # 0: PyMySQL's "already closed"; 2002–2055 client side; 1053, 1077–1080 shut-down; 1152–1190 network;
    # 1317, 1927, 1969, 3024, 3169, 4031 killed by hand or by a time limit; 3032 MySQL's offline_mode;
    # 9001–9005, 9012 TiDB's components.
    (Trouble.LOST, (0, 2002, 2003, 2005, 2006, 2012, 2013, 2014, 2026, 2027, 2055, 1053, 1077, 1079, 1080)),
    (Trouble.LOST, (1152, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1184, 1189, 1190)),
    (Trouble.LOST, (1317, 1927, 1969, 3024, 3032, 3169, 4031, 9001, 9002, 9003, 9004, 9005, 9012)),
    # 1698 wrong plugin; 1130 host; 1251, 1524, 2049, 2059, 2061 authentication method; 1820, 1862 password
    # expired; 3118, 4151 account locked; 3159 TLS required.
    (Trouble.ACCESS, (1045, 1130, 1251, 1524, 1698, 1820, 1862, 2049, 2059, 2061, 3118, 3159, 4151)),
    (Trouble.PRIVILEGE, (1044, 1095, 1142, 1143, 1227, 1370, 1410, 1419, 8121)),
    (Trouble.BUSY, (1037, 1038, 1040, 1041, 1129, 1135, 1203, 1226)),
    # 1020 snapshot conflict (MariaDB innodb_snapshot_isolation); 1412 table definition changed; 1637 too many
    # transactions; 3101 undone by MySQL's group replication; 4052 another replica with our server-id (MariaDB ends
    # the older dump); 8002, 8022, 8027, 8028, 9007 TiDB's "try the transaction again".
    (Trouble.CONFLICT, (1020, 1205, 1213, 1412, 1613, 1614, 1637, 3058, 3101, 3572, 4052)),
    (Trouble.CONFLICT, (8002, 8022, 8027, 8028, 9007)),
    (Trouble.READ_ONLY, (1290, 1792, 1836)),
    # 3, 20: the server's own file layer (mysys/my_error.h: EE_WRITE, EE_DISK_FULL).
    (Trouble.STORAGE, (3, 20, 1021, 1026, 1030, 1114)),
    (Trouble.WRONG_SERVER, (REFUSED_ANSWER,)),
    (Trouble.SESSION, (1115, 1193, 1228, 1229, 1231, 1232, 1238, 1273, 1298)),
)
_BY_NUMBER = {number: kind for kind, numbers in _TROUBLES for number in numbers}


def trouble(errno: int) -> Trouble:
    """The kind of an error number; unknown ones are STATEMENT, which nobody retries."""
    return _BY_NUMBER.get(errno, Trouble.STATEMENT)


def errno_of(error: pymysql.MySQLError) -> int:
    """The error number PyMySQL put first; 0 when it has none (a closed or garbled connection)."""
    args: tuple[object, ...] = error.args
    return args[0] if args and isinstance(args[0], int) else 0


_SOURCE_SPECS: dict[Trouble, ErrorSpec] = {
    Trouble.LOST: errors.relay.SOURCE_LOST,
    Trouble.ACCESS: errors.relay.ACCESS_DENIED,
    Trouble.PRIVILEGE: errors.relay.PRIVILEGE_MISSING,
    Trouble.BUSY: errors.relay.SOURCE_BUSY,
    Trouble.CONFLICT: errors.relay.SOURCE_CONFLICT,
    Trouble.READ_ONLY: errors.relay.SOURCE_REJECTED,
    Trouble.STORAGE: errors.relay.SOURCE_STORAGE,
    Trouble.SESSION: errors.relay.SOURCE_REJECTED,
    Trouble.STATEMENT: errors.relay.SOURCE_REJECTED,
    Trouble.WRONG_SERVER: errors.worker.ANSWER_REFUSED,
}
_TARGET_SPECS: dict[Trouble, ErrorSpec] = {
    Trouble.LOST: errors.replicate.TARGET_LOST,
    Trouble.ACCESS: errors.replicate.TARGET_ACCESS_DENIED,
    Trouble.PRIVILEGE: errors.replicate.TARGET_PRIVILEGE_MISSING,
    Trouble.BUSY: errors.replicate.TARGET_BUSY,
    Trouble.CONFLICT: errors.replicate.TARGET_CONFLICT,
    Trouble.READ_ONLY: errors.replicate.TARGET_READ_ONLY,
    Trouble.STORAGE: errors.replicate.TARGET_STORAGE,
    Trouble.SESSION: errors.replicate.TARGET_STATEMENT,
    Trouble.STATEMENT: errors.replicate.TARGET_STATEMENT,
    Trouble.WRONG_SERVER: errors.worker.ANSWER_REFUSED,
}


def coded(error: pymysql.MySQLError, endpoint: Endpoint, side: Side, name: str) -> ShardmergeError:
    """The catalogue's error for a server's or client library's error number.

    Made, not raised: ``raise coded(error, ...) from error``. Scope and retry follow from the number.
    """
    errno = errno_of(error)
    specs = _SOURCE_SPECS if side is Side.SOURCE else _TARGET_SPECS
    return specs[trouble(errno)](
        source=name,
        host=endpoint.host,
        port=endpoint.port,
        user=endpoint.user,
        reason=reason_of(error),
        errno=errno,
    )


@contextmanager
def coding(endpoint: Endpoint, side: Side, name: str) -> Generator[None]:
    """Server errors of the block leave as coded errors of this endpoint."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise coded(error, endpoint, side, name) from error


def reason_of(error: pymysql.MySQLError) -> str:
    args: tuple[object, ...] = error.args
    if len(args) > 1 and args[1]:
        return str(args[1])
    if args and isinstance(args[0], str):
        return args[0]
    return "the connection is closed"
