"""Implements a malicious server of MySQL's protocol, which requests from a client what it must not send.

Format: MySQL Internals Manual, "Connection Phase Packets", "Generic Response Packets", "LOCAL INFILE Request".
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

SALT = bytes(range(1, 21))
_SSL = 0x800
_CAPABILITIES = 0x000FF7DF & ~_SSL | 0x00200000  # all of MySQL 5.7's that a server may offer to a client
FULL = b"\xff\xff\xff"
OK = b"\0\0\0\2\0\0\0"
EOF = b"\xfe\0\0\2\0"

Behaviour = Callable[["Peer"], None]


class Peer:
    """One connection, seen from the server."""

    def __init__(self, sock: socket.socket, heard: list[bytes]) -> None:
        self.sock = sock
        self.heard = heard
        self.number = 0

    def send(self, payload: bytes) -> None:
        self.sock.sendall(len(payload).to_bytes(3, "little") + bytes([self.number]) + payload)
        self.number = (self.number + 1) % 256

    def raw(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read(self) -> bytes:
        """Return one packet of the client; ConnectionError when the client has gone."""
        head = self._exactly(4)
        self.number = (head[3] + 1) % 256
        data = self._exactly(int.from_bytes(head[:3], "little"))
        self.heard.append(data)
        return data

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return data

    def greet(self, method: str = "mysql_native_password", *, tls: bool = False, salt: bytes = SALT) -> None:
        """Send the greeting, then read any answer of the client."""
        flags = _CAPABILITIES | (_SSL if tls else 0)
        self.send(
            b"\x0a8.0.36-rogue\0" + struct.pack("<I", 7) + salt[:8] + b"\0" + struct.pack("<H", flags & 0xFFFF)
            + struct.pack("<BHHB", 45, 2, flags >> 16, len(salt) + 1) + bytes(10) + salt[8:] + b"\0"
            + method.encode() + b"\0"
        )  # fmt: skip

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Switch to TLS, after the client has requested it."""
        self.sock = context.wrap_socket(self.sock, server_side=True)

    def switch(self, method: str, data: bytes = SALT + b"\0") -> None:
        self.send(b"\xfe" + method.encode() + b"\0" + data)

    def rows(self, *rows: tuple[str, ...], names: int = 0) -> None:
        """Send a result of text columns; without rows it has no end yet."""
        columns = names or len(rows[0])
        self.send(bytes([columns]))
        for _ in range(columns):
            body = b"".join(bytes([len(text)]) + text for text in (b"def", b"", b"", b"", b"c", b""))
            self.send(body + struct.pack("<BHIBHBxx", 12, 45, 1024, 253, 0, 0))
        self.send(EOF)
        for row in rows:
            self.send(b"".join(bytes([len(text)]) + text.encode() for text in row))
        if rows:
            self.send(EOF)

    def let_in(self) -> None:
        """Accept the client with mysql_native_password and any password."""
        self.greet()
        self.read()
        self.send(OK)

    def obey(self, upto: bytes) -> bytes:
        """Send OK to every statement up to the one that contains ``upto``, which is returned unanswered."""
        while True:
            statement = self.read()
            if upto in statement:
                return statement
            self.send(OK)

    def drip(self, data: bytes, every: float = 0.05) -> None:
        """Send one byte after the other, until the client has gone."""
        for byte in data:
            self.sock.sendall(bytes([byte]))
            time.sleep(every)


class Rogue:
    """Listens at a free loopback port within its block; every connection is handled by ``behaviour``.

    ``heard``: the packets that clients have sent. ``sent``: bytes that endless streams have sent.
    """

    def __init__(self, behaviour: Behaviour, host: str = "127.0.0.1") -> None:
        self._behaviour = behaviour
        self.heard: list[bytes] = []
        self.connections = 0
        self._listening = socket.create_server((host, 0))
        self.host = host
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    @property
    def said(self) -> bytes:
        """Return all bytes that clients have sent."""
        return b"\n".join(self.heard)

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._meet, args=(sock,), daemon=True).start()

    def _meet(self, sock: socket.socket) -> None:
        peer = Peer(sock, self.heard)
        with suppress(OSError):
            self._behaviour(peer)
        with suppress(OSError):
            peer.sock.close()


def endless(peer: Peer, part: bytes) -> None:
    """Send the same bytes again and again, until the client has gone."""
    block = part * max(1, (1 << 16) // len(part))
    while True:
        peer.raw(block)


def numbered(peer: Peer, payload: bytes) -> None:
    """Send packets without end, with correct sequence numbers."""
    while True:
        first = peer.number
        data = b"".join(
            len(payload).to_bytes(3, "little") + bytes([(first + more) % 256]) + payload for more in range(256)
        )
        peer.raw(data)
