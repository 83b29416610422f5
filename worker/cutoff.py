"""Sessions that a stop cuts off: a server may be frozen, and then no answer and no error comes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

import pymysql

from worker.connection import Endpoint, Session, Side, coding, connect
from worker.unit import StopSignal

ANSWER_SECONDS = 300.0
"""How long an answer, or the next bytes of one, may take. Long: a COMMIT may wait for a slow disk, the first row for
many deleted ones to be passed over."""


@contextmanager
def cut_off(session: Session, stop: StopSignal) -> Generator[None]:
    """While in the block, ``stop`` ends the connection: whoever waits for its answer gets a lost connection at once.

    The session is of no more use then; the server rolls back what was open.
    """
    mine = stop.child()
    over = threading.Event()
    sock: socket.socket | None = vars(session).get("_sock")

    def watch() -> None:
        mine.wait(threading.TIMEOUT_MAX)
        if not over.is_set() and sock is not None:
            with suppress(OSError):  # closed in the same moment
                sock.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=watch, name="cut-off", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        mine.set()


@contextmanager
def until_stopped(session: Session, stop: StopSignal) -> Generator[Session]:
    """``session``, which ``stop`` cuts off; let go of at the end of the block."""
    try:
        with cut_off(session, stop):
            yield session
    finally:
        let_go(session)


@contextmanager
def session_until(
    stop: StopSignal, endpoint: Endpoint, side: Side, *, name: str, read_timeout: float | None = ANSWER_SECONDS
) -> Generator[Session]:
    """A session for the block, which ``stop`` cuts off; the block's server errors leave as coded errors.

    ``name``, ``read_timeout``: of :func:`connect`. Raises what it raises.
    """
    with (
        coding(endpoint, side, name),
        until_stopped(connect(endpoint, side, name=name, read_timeout=read_timeout), stop) as session,
    ):
        yield session


def let_go(session: Session | None) -> None:
    """Close a session, if there is one, that may be closed already, lost, or in the middle of an answer.

    The server rolls back what was open.
    """
    if session is not None:
        with suppress(pymysql.MySQLError):
            session.close()
