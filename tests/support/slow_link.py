"""A TCP proxy between the program and a server, which delays what passes, or lets only so many bytes pass."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType

_PIECE = 16 << 10


class SlowLink:
    """Listens on a free loopback port and forwards to ``port``. A test sets the attributes at any time; they count for
    connections that exist, too.

    ``delay``: seconds by which every answer of the server arrives later. ``bytes_per_second``: of all answers together;
    0: no limit.
    """

    def __init__(self, port: int) -> None:
        self.delay = 0.0
        self.bytes_per_second = 0
        self._target = port
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._ended = threading.Event()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="slow-link", daemon=True).start()

    def clear(self) -> None:
        """Neither delay nor limit from now on."""
        self.delay, self.bytes_per_second = 0.0, 0
        with self._lock:
            self._free_at = 0.0

    def close(self) -> None:
        self._ended.set()
        # Closing alone does not end a thread that waits in accept() or recv().
        for each in (self._listener, *tuple(self._open)):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def __enter__(self) -> SlowLink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                if self._ended.is_set():
                    return
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.add(each)
            for source, sink, is_answer in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._forward, args=(source, sink, is_answer), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        try:
            while True:
                piece = source.recv(_PIECE)
                if not piece:
                    break
                if is_answer:
                    self._hold(len(piece))
                sink.sendall(piece)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                self._open.discard(each)
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _hold(self, size: int) -> None:
        if self.delay:
            self._ended.wait(self.delay)
        rate = self.bytes_per_second
        if rate:
            with self._lock:
                now = time.monotonic()
                self._free_at = max(self._free_at, now) + size / rate
                until = self._free_at
            self._ended.wait(until - now)
