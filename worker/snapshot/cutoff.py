"""Ending a wait for a server's answer: a server may be frozen, and then no answer and no error comes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

from worker.connection import Session
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
