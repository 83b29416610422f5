"""Sessions that a stop signal cancels: a frozen server sends neither an answer nor an error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

import pymysql

from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, coded_errors, connect
from shardmerge.worker.core.stop_signal import StopSignal

ANSWER_SECONDS = 300.0
"""Timeout for an answer, and for the next bytes of one. Long: a COMMIT may wait for a slow disk, the first row until
the server has skipped many deleted ones."""


@contextmanager
def cancel_on(session: Session, stop: StopSignal) -> Generator[None]:
    """While in the block, ``stop`` ends the connection: a call that waits for an answer fails at once.

    The session is unusable afterwards; the server rolls back an open transaction.
    """
    mine = stop.child()
    over = threading.Event()
    sock: socket.socket | None = vars(session).get("_sock")

    def watch() -> None:
        mine.wait(threading.TIMEOUT_MAX)
        if not over.is_set() and sock is not None:
            with suppress(OSError):  # closed at the same time
                sock.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=watch, name="cut-off", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        mine.set()


@contextmanager
def cancellable(session: Session, stop: StopSignal) -> Generator[Session]:
    """``session``, which ``stop`` cancels; closed at the end of the block."""
    try:
        with cancel_on(session, stop):
            yield session
    finally:
        close_quietly(session)


@contextmanager
def cancellable_session(
    stop: StopSignal, endpoint: Endpoint, side: Side, *, name: str, read_timeout: float | None = ANSWER_SECONDS
) -> Generator[Session]:
    """A session for the block, which ``stop`` cancels; server errors of the block are raised as coded errors.

    ``name``, ``read_timeout``: see :func:`connect`. Raises what it raises.
    """
    with (
        coded_errors(endpoint, side, name),
        cancellable(connect(endpoint, side, name=name, read_timeout=read_timeout), stop) as session,
    ):
        yield session


def close_quietly(session: Session | None) -> None:
    """Close ``session``, unless it is None, without an error. It may be closed already, lost, or in the middle of an
    answer.

    The server rolls back an open transaction.
    """
    if session is not None:
        with suppress(pymysql.MySQLError):
            session.close()
