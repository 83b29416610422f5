"""Makes a gRPC call that ends in the middle of its message, byte by byte: RFC 9113 (HTTP/2), RFC 7541 (HPACK)."""

from __future__ import annotations

import base64
import socket
import struct
from collections.abc import Sequence

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS, _GOAWAY, _WINDOW = 0, 1, 3, 4, 7, 8
_END_HEADERS, _ACK = 4, 1
_STREAM = 1


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _header(name: bytes, value: bytes) -> bytes:
    """Return a literal header that is not indexed."""
    return b"\0" + _length(name) + name + _length(value) + value


def _length(text: bytes) -> bytes:
    """Return the length as an integer with a prefix of 7 bits (RFC 7541, 5.1)."""
    if len(text) < 127:
        return bytes([len(text)])
    rest, found = len(text) - 127, bytearray([127])
    while rest >= 128:
        found.append(rest % 128 + 128)
        rest //= 128
    return bytes([*found, rest])


class UnfinishedCall:
    """One connection with one call of ``method``. It announces ``announced`` bytes, sends as many as the server accepts
    at once, and keeps one back. Close it after use."""

    def __init__(self, address: str, method: str, announced: int, metadata: Sequence[tuple[str, bytes]]) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._left = announced - 1
        self.sent = 0
        self.ended = False
        self._stream_window: int = 65_535
        self._connection_window: int = 65_535
        self._read = b""
        headers = b"".join(
            _header(name, value)
            for name, value in (
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", method.encode()),
                (b":authority", b"x"),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
                *((name.encode(), base64.b64encode(value)) for name, value in metadata),
            )
        )
        self._socket.sendall(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, b"")
            + _frame(_HEADERS, _END_HEADERS, _STREAM, headers)
            + _frame(_DATA, 0, _STREAM, b"\0" + struct.pack(">I", announced))
        )
        self._stream_window -= 5
        self._connection_window -= 5

    def push(self, seconds: float) -> None:
        """Send all bytes that the server allows, until it has allowed no more for ``seconds``."""
        self._socket.settimeout(seconds)
        try:
            while self._left and not self.ended:
                size = min(self._left, self._stream_window, self._connection_window, 16_384)
                if size > 0:
                    self._socket.sendall(_frame(_DATA, 0, _STREAM, b"x" * size))
                    self._left -= size
                    self.sent += size
                    self._stream_window -= size
                    self._connection_window -= size
                else:
                    self._hear()
        except TimeoutError:
            return
        except OSError:
            self.ended = True

    def _hear(self) -> None:
        while len(self._read) < 9 or len(self._read) < 9 + self._size():
            more = self._socket.recv(65_536)
            if not more:
                raise ConnectionError
            self._read += more
        kind, flags, stream = struct.unpack(">BBI", self._read[3:9])
        payload, self._read = self._read[9 : 9 + self._size()], self._read[9 + self._size() :]
        if kind == _WINDOW:
            grown = int.from_bytes(payload, "big")
            if stream:
                self._stream_window += grown
            else:
                self._connection_window += grown
        elif kind == _SETTINGS and not flags & _ACK:
            self._socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                if name == 4:
                    self._stream_window += value - 65_535
        elif kind in (_RST, _GOAWAY) or (kind == _HEADERS and stream == _STREAM):
            self.ended = True

    def _size(self) -> int:
        return int.from_bytes(self._read[:3], "big")

    def close(self) -> None:
        self._socket.close()
