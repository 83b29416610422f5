"""The dump connection: requests a source's binlog and splits the received bytes into events.

Formats: MySQL Internals Manual, "Client/Server Protocol" (packets, ERR, EOF) and "Replication Protocol"
(COM_BINLOG_DUMP); MySQL's sql/rpl_source.cc (COM_BINLOG_DUMP_GTID); MariaDB knowledge base, "Replication Protocol",
"COM_BINLOG_DUMP" and "Global Transaction ID" (slave_connect_state).
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol, cast

import pymysql
from pymysql.constants import CR

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.gtid_events import encode_set
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.mysql.connection import (
    CONNECT_SECONDS,
    Endpoint,
    ServerInfo,
    Session,
    Side,
    coded_errors,
    connect,
    execute,
    quote_text,
    server_info,
    to_coded,
)
from shardmerge.worker.core.mysql.guarded_connection import LARGEST_ROW
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.fetch.dump_start import FromFile, SourceState, Start, gtids_gone
from shardmerge.worker.relay.fetch.source_state import files_before, gtid_set_at, source_state
from shardmerge.worker.relay.log.files import FIRST_BYTE

HEARTBEAT_SECONDS = 1.0
"""Interval of the source's heartbeats while it sends nothing else."""

_SILENCE_SECONDS = 20.0
_BUFFER_BYTES = 1 << 20
_FULL_RECORD = 16 * 1024
"""Largest content of a TLS record (RFC 8446, 5.1): one read of a TLS socket returns at most so much."""

_LARGEST_PACKET = 0xFFFFFF
_COM_BINLOG_DUMP = 0x12
_COM_BINLOG_DUMP_GTID = 0x1E
_NON_BLOCK = 1  # BINLOG_DUMP_NON_BLOCK of both servers' mysql_com.h / sql_repl.cc
_READING_BINLOG_FAILED = 1236  # ER_MASTER_FATAL_ERROR_READING_BINLOG
_OK, _EOF, _ERR = 0x00, 0xFE, 0xFF
_ERR_BODY = struct.Struct("<H")
_LONGEST_REASON = 1024
_SQL_STATE_BYTES = 6  # '#' and five characters


class _Socket(Protocol):
    """The used methods of a socket, plain or TLS."""

    def recv_into(self, buffer: memoryview) -> int: ...
    def sendall(self, data: bytes) -> None: ...
    def settimeout(self, value: float | None) -> None: ...
    def shutdown(self, how: int) -> None: ...


class Received(NamedTuple):
    """Packets: the bytes from ``start`` to ``end`` of ``buffer``; the last one may be incomplete."""

    buffer: bytearray
    start: int
    end: int


class Dump:
    """One connection that dumps. One thread receives; any thread may call ``interrupt``."""

    def __init__(self, session: Session, info: ServerInfo, source: str, endpoint: Endpoint) -> None:
        self.info = info
        self._session = session
        self._source = source
        self._endpoint = endpoint
        self._socket = cast("_Socket", vars(session)["_sock"])
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start: int = 0
        self._end: int = 0
        self._parts: list[bytes] = []
        self._from = SourcePosition("", 0)
        self._state: SourceState | None = None

    @staticmethod
    def connect(source: str, endpoint: Endpoint) -> Dump:
        """Connect and read the server's description; raises the errors of
        shardmerge.worker.core.mysql.server_errors.to_coded."""
        # Without a limit a frozen server would block this thread, and the callers that wait for its end.
        session = connect(endpoint, Side.SOURCE, name=source, read_timeout=CONNECT_SECONDS)
        try:
            info = server_info(session)
        except pymysql.MySQLError as error:
            session.close()
            raise to_coded(error, endpoint, Side.SOURCE, source) from error
        return Dump(session, info, source, endpoint)

    def state(self) -> SourceState:
        """Before :meth:`begin`: the state of the source; see
        :func:`shardmerge.worker.relay.fetch.source_state.source_state`."""
        self._state = source_state(self._session, self.info, self._source, self._endpoint)
        return self._state

    def gtid_set_at(self, position: SourcePosition) -> str | None:
        """Before :meth:`begin`: the GTID set at a position; None for an invalid position, or on MySQL, which lacks such
        a function."""
        if not self.info.is_mariadb:
            return None
        with coded_errors(self._endpoint, Side.SOURCE, self._source):
            return gtid_set_at(self._session, position)

    def files_before(self, file: str) -> list[str] | None:
        """Before :meth:`begin`: the source's files before ``file``, oldest first; None without the privilege."""
        with coded_errors(self._endpoint, Side.SOURCE, self._source):
            return files_before(self._session, file)

    def begin(self, start: Start, server_id: int, replica_uuid: str, *, wait: bool = True) -> None:
        """Request everything from ``start`` on; a position is the start of an event. Without ``wait`` only the events
        that exist now: DUMP_ENDED is raised at their end.

        ``server_id`` must differ from every other replica's of this source: the source ends an older dump with
        the same one (that of a lost connection it has not yet noticed). MySQL identifies dumps by ``replica_uuid``.
        """
        nanoseconds = int(HEARTBEAT_SECONDS * 1e9)
        settings = [
            "SET @master_binlog_checksum = @@GLOBAL.binlog_checksum",
            f"SET @master_heartbeat_period = {nanoseconds}",
        ]
        if self.info.is_mariadb:
            # 4: knows MariaDB's GTID events, so that none is replaced by a dummy.
            settings.append("SET @mariadb_slave_capability = 4")
        else:
            settings += [
                "SET @source_binlog_checksum = @@GLOBAL.binlog_checksum",
                f"SET @source_heartbeat_period = {nanoseconds}",
                f"SET @slave_uuid = '{replica_uuid}', @replica_uuid = '{replica_uuid}'",
            ]
        place = start.position if isinstance(start, FromFile) else SourcePosition("", FIRST_BYTE, start.gtid_set)
        if not place.file and self.info.is_mariadb:
            # Strict mode would refuse descending numbers, which servers write if they are configured to.
            settings += [
                f"SET @slave_connect_state = {quote_text(place.gtid_set)}",
                "SET @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0",
            ]
        self._from = place
        with coded_errors(self._endpoint, Side.SOURCE, self._source):
            for statement in settings:
                execute(self._session, statement)
        flags = 0 if wait else _NON_BLOCK
        payload = struct.pack("<BIHI", _COM_BINLOG_DUMP, place.pos, flags, server_id) + place.file.encode()
        if not place.file and not self.info.is_mariadb:
            encoded = encode_set(GtidSet(place.gtid_set).parts())
            head = struct.pack("<BHII", _COM_BINLOG_DUMP_GTID, flags, server_id, 0)
            payload = head + struct.pack("<QI", FIRST_BYTE, len(encoded)) + encoded
        try:
            self._socket.settimeout(_SILENCE_SECONDS)
            for packet in _packets(payload):
                self._socket.sendall(packet)
        except OSError as error:
            raise self._lost(str(error)) from error

    def receive(self) -> None:
        """Wait until bytes arrive. Results of earlier calls of :meth:`received` and :meth:`event` become invalid."""
        if self._start:
            # Less than one packet is left: move it to the front.
            left = self._end - self._start
            self._view[:left] = self._view[self._start : self._end]
            self._start, self._end = 0, left
        if self._end == len(self._buffer):
            grown = bytearray(2 * len(self._buffer))
            grown[: self._end] = self._view
            self._buffer, self._view = grown, memoryview(grown)
        try:
            got: int = self._socket.recv_into(self._view[self._end :])
            self._end += got
            if got >= _FULL_RECORD:
                self._drain()
        except TimeoutError as error:
            raise self._lost(f"nothing came for {_SILENCE_SECONDS:.0f} s") from error
        except OSError as error:
            raise self._lost(str(error)) from error
        if got == 0:
            raise self._lost("the source closed the connection")

    def _drain(self) -> None:
        """Read further bytes that have arrived, without waiting: writing and publishing takes longer than a read."""
        self._socket.settimeout(0.0)
        try:
            while self._end < len(self._buffer):
                got: int = self._socket.recv_into(self._view[self._end :])
                if got == 0:
                    break  # the next receive reports it
                self._end += got
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        finally:
            self._socket.settimeout(_SILENCE_SECONDS)

    def received(self) -> Received:
        """The received packets that were not consumed yet, valid until the next :meth:`receive`."""
        # After a part of an event only :meth:`event` can continue.
        return Received(self._buffer, self._start, self._start if self._parts else self._end)

    def skip(self, upto: int) -> None:
        """Mark the packets before byte ``upto`` of the buffer as consumed."""
        self._start = upto

    def event(self) -> memoryview | None:
        """The next whole event, header and all, valid until the next :meth:`receive`; None when there is none.

        Raises SOURCE_LOG_GONE or the error of the server's ERR packet, DUMP_ENDED at its EOF, BAD_PACKET.
        """
        view = self._view
        while self._end - self._start >= 4:
            at = self._start + 4
            size = int.from_bytes(view[self._start : self._start + 3], "little")
            if at + size > self._end:
                return None
            self._start = at + size
            if size == _LARGEST_PACKET:  # the packet continues in the next one
                self._parts.append(bytes(view[at : at + size]))
                if len(self._parts) * _LARGEST_PACKET > LARGEST_ROW:
                    raise self._bad_packet("an event exceeds the largest possible size")
                continue
            packet = view[at : at + size]
            if self._parts:
                packet = memoryview(b"".join((*self._parts, packet)))
                self._parts.clear()
            if not packet or packet[0] != _OK:
                raise self._ended(bytes(packet))
            return packet[1:]
        return None

    def interrupt(self) -> None:
        """Make a waiting :meth:`receive` fail."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # closed already

    def close(self) -> None:
        """Close the connection; the server, which is sending, ends its side when it notices."""
        self._session.close()

    def _ended(self, packet: bytes) -> ShardmergeError:
        if len(packet) >= 3 and packet[0] == _ERR:
            (errno,) = _ERR_BODY.unpack_from(packet, 1)
            text = packet[3:]
            if text[:1] == b"#":
                text = text[_SQL_STATE_BYTES:]
            reason = text[:_LONGEST_REASON].decode("utf-8", "replace")
            if errno == _READING_BINLOG_FAILED:
                return self._gone(reason, errno)
            failure = pymysql.OperationalError(errno, reason)
            return to_coded(failure, self._endpoint, Side.SOURCE, self._source)
        if packet[:1] == bytes([_EOF]):
            return errors.relay.DUMP_ENDED(source=self._source, position=self._from, reason="end of stream")
        first = packet[0] if packet else -1
        return self._bad_packet(f"a packet begins with byte {first}")

    def _bad_packet(self, reason: str) -> ShardmergeError:
        return errors.relay.BAD_PACKET(source=self._source, position=self._from, reason=reason)

    def _gone(self, reason: str, errno: int) -> ShardmergeError:
        known = self._from.gtid_set
        missing = self._state.missing_after(known) if self._state is not None else ""
        if not self._from.file and self._state is not None:
            return gtids_gone(self._source, self._state, known, missing, f"{reason} (errno {errno})")
        if missing:
            reason += f"; the first missing GTID is {missing}"
        return errors.relay.SOURCE_LOG_GONE(
            source=self._source, file=self._from.file, pos=self._from.pos, reason=reason, errno=errno
        )

    def _lost(self, reason: str) -> ShardmergeError:
        failure = pymysql.OperationalError(CR.CR_SERVER_LOST, reason)
        return to_coded(failure, self._endpoint, Side.SOURCE, self._source)


def _packets(payload: bytes) -> Iterator[bytes]:
    """A command as packets of the protocol: a full packet is followed by another one, which may be empty."""
    for number, at in enumerate(range(0, len(payload) + 1, _LARGEST_PACKET)):
        part = payload[at : at + _LARGEST_PACKET]
        yield len(part).to_bytes(3, "little") + bytes([number & 0xFF]) + part
