"""Decompresses parts of events up to a limit, which bounds the memory that one event of a source takes.

A few hundred kilobytes may decompress to a gigabyte. The size that an event states is compared with the limit first;
then large parts are decompressed in pieces into one buffer, and never more than stated. The limit holds for events of
MariaDB (log_bin_compress) and for the events in a TRANSACTION_PAYLOAD of MySQL.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from shardmerge.proto import errors
from shardmerge.proto.config import defaults

AT_ONCE = 1 << 20
"""Up to this size one call decompresses everything, which is the fastest."""

_INPUT_BYTES = 1 << 16
_MIB = 1 << 20


class _Process:
    most = defaults.MAX_INFLATED_EVENT_MIB * _MIB


def use(most: int) -> None:
    """Let events of this process have at most so many bytes when they are decompressed. Global to the process, because
    events are read far from where its configuration is."""
    _Process.most = most


def of_process() -> int:
    """The limit set by :func:`use`, in bytes."""
    return _Process.most


def check_size(size: int, source: str, position: int) -> None:
    """Raises decode.INFLATED_EVENT_TOO_LARGE for an event of more bytes than the limit."""
    if size > _Process.most:
        raise errors.decode.INFLATED_EVENT_TOO_LARGE(
            source=source, position=position, size=size, limit=_Process.most // _MIB
        )


def inflate(data: bytes | memoryview, source: str, position: int, head: bytes = b"") -> bytes:
    """``head``, followed by MariaDB's compressed part of an event (sql/log_event.cc, binlog_buf_uncompress).

    One byte 1aaa_0lll (a: algorithm, 0 is zlib; l: bytes of the length), the length big-endian, zlib data. Raises
    MALFORMED_EVENT and INFLATED_EVENT_TOO_LARGE of proto/errors/decode.py.
    """
    if not data or data[0] & 0xF8 != 0x80 or not 1 <= data[0] & 7 <= 4 or len(data) < 1 + (data[0] & 7):
        raise _malformed(source, position, "it has an unknown header")
    start = 1 + (data[0] & 7)
    length = int.from_bytes(data[1:start], "big")
    check_size(length, source, position)
    worker = zlib.decompressobj()
    try:
        if length <= AT_ONCE:
            plain = worker.decompress(data[start:], length + 1)
        else:
            plain = joined(head, _pieces(worker, memoryview(data)[start:], length))
            head, length = b"", length + len(head)
    except zlib.error as error:
        raise _malformed(source, position, str(error)) from None
    if len(plain) != length or not worker.eof:
        raise _malformed(source, position, "it does not contain the bytes that its header states")
    return head + plain if head else plain


def _malformed(source: str, position: int, reason: str) -> errors.ShardmergeError:
    return errors.decode.MALFORMED_EVENT(source=source, position=position, reason=f"compressed part: {reason}")


def joined(head: bytes, pieces: Iterable[bytes]) -> bytes:
    """All of them, without a second copy at the end."""
    made = io.BytesIO()
    made.write(head)
    for piece in pieces:
        made.write(piece)
    return made.getvalue()  # CPython hands its buffer over


def _pieces(worker: Any, data: memoryview, length: int) -> Iterator[bytes]:
    """What ``data`` decompresses to, up to a little more than ``length`` bytes."""
    for at in range(0, len(data), _INPUT_BYTES):
        rest: bytes | memoryview = data[at : at + _INPUT_BYTES]
        while not worker.eof and length >= 0:
            piece = worker.decompress(rest, AT_ONCE)
            length -= len(piece)
            yield piece
            rest = worker.unconsumed_tail
            if not rest and len(piece) < AT_ONCE:
                break
