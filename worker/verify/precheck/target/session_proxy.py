"""Detects a proxy that executes statements of one session on several connections of the target."""

from __future__ import annotations

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, ask, endpoint_of

_HANDSHAKE_BITS = 0xFFFFFFFF
"""The handshake has the lowest 32 bits of a connection's number (MySQL Internals Manual, "Protocol::HandshakeV10")."""


def session_proxied(session: Session) -> ShardmergeError | None:
    """SESSION_PROXIED when the server of a statement is not in the connection that has logged in; None when it is.

    A proxy that ends the protocol numbers its own connections. Some answer `SELECT CONNECTION_ID()` by themselves, so
    the number is part of an expression. Raises ``pymysql.MySQLError``.
    """
    login = int(vars(session)["server_thread_id"][0])
    [(number,)] = ask(session, f"SELECT CONNECTION_ID() & {_HANDSHAKE_BITS}")
    if int(number) == login & _HANDSHAKE_BITS:
        return None
    endpoint = endpoint_of(session)
    return errors.check.SESSION_PROXIED(host=endpoint.host, port=endpoint.port, login=login, statement=int(number))
