"""A PyMySQL connection that is safe against a malicious server: it limits what is sent, the time and the memory.

PyMySQL does what a server requests: it sends the password in clear text, waits for a packet without an end, and keeps
all data that arrives. This class differs in three points. A login sends the password only to a server whose certificate
was verified (worker/core/mysql/login.py). All data until the session is ready must arrive before a deadline. Every
answer has a limit on its size. The content of rows is not checked further than PyMySQL checks it.

Format: MySQL Internals Manual, "Connection Phase Packets" and "Generic Response Packets".
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import pymysql
from pymysql.charset import charset_by_name
from pymysql.connections import Connection
from pymysql.constants import CLIENT, CR
from pymysql.cursors import Cursor
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

from shardmerge.worker.core.mysql.endpoint import Peer
from shardmerge.worker.core.mysql.login import CACHING, DIALOG, SHA256, Channel, Login, Malformed, Unknown

if TYPE_CHECKING:

    class _Base(Connection[Cursor]):
        """Members of PyMySQL's connection that the published stubs lack."""

        ssl: bool
        ctx: ssl.SSLContext
        salt: bytes
        server_capabilities: int
        client_flag: int
        _ssl_required: bool
        _sock: Any
        _rfile: Any
        _result: Any
        _read_timeout: float | None
        _current_timeout: float | None
        _next_seq_id: int
        _auth_plugin_name: str
        _connect_attrs: dict[str, str]

        def query(self, sql: Any, unbuffered: bool = False) -> int: ...
        def _force_close(self) -> None: ...
        def _execute_command(self, command: int, sql: str | bytes) -> None: ...
        def _read_query_result(self, unbuffered: bool = False) -> int: ...
        def _write_bytes(self, data: bytes) -> None: ...
        def write_packet(self, payload: bytes) -> None: ...

else:  # generic for the type checker only
    _Base = Connection

REFUSED_ANSWER = 100_001
"""Error number for an answer that violates the protocol. Servers' own error numbers have 16 bits."""

MOST_COLUMNS = 4096
"""Limit of both servers (MySQL Reference Manual, "Limits on Table Column Count and Row Size")."""

LARGEST_ROW = (1 << 30) + (1 << 25)
"""Bytes: the largest max_allowed_packet of both servers, plus the protocol's overhead."""

SHORT_ANSWER = 1 << 24
_LONG_ANSWER = LARGEST_ROW + (1 << 28)
_NO_END = 1 << 62
"""Largest answer in bytes. Unlimited for rows that are fetched one by one and not kept in memory."""

_HANDSHAKE_BYTES = 1 << 16
_PACKET_COST = 256
"""Bytes of memory that each packet needs besides its content, so that many small rows count as a large answer."""

_LONGEST_REASON = 1024
_SHORTEST_ERROR = 3
_FULL_PACKET = 0xFFFFFF
_LOGIN_ROUNDS = 8
_LOGIN_SWITCHES = 3
_OK, _MORE, _LOCAL_INFILE, _SWITCH, _ERR = 0x00, 0x01, 0xFB, 0xFE, 0xFF
_FAST_SUCCESS, _FULL_AUTHENTICATION = 3, 4
_PARSE_ERRORS = (
    AssertionError,
    AttributeError,
    IndexError,
    LookupError,
    OverflowError,
    TypeError,
    ValueError,
    struct.error,
)
"""What PyMySQL raises when the content of an answer does not match its declared lengths and types."""

_LOCAL_FILE_REASON = "the server requests a file of this machine (LOCAL INFILE)"


def raise_error_packet(packet: bytes) -> NoReturn:
    """Raise the error of an ERR packet: 0xFF, errno, '#' and SQL state, message."""
    pymysql.err.raise_mysql_exception(packet[:_LONGEST_REASON].ljust(_SHORTEST_ERROR, b"\0"))
    raise AssertionError  # it always raises


@dataclass(frozen=True, slots=True)
class Guard:
    """Options of a login. ``retrieves_key``: see :class:`shardmerge.worker.core.mysql.login.Login`. ``encrypts``: use
    TLS if the server offers it. ``requires_tls``: fail if the server offers no TLS. ``seconds``: timeout for the
    whole login."""

    retrieves_key: bool
    encrypts: bool
    requires_tls: bool
    seconds: float


class GuardedConnection(_Base):
    """A connection with the limits of its guard. While it connects it raises what PyMySQL raises, and Refused and
    PublicKeyLoginNeeded of shardmerge.worker.core.mysql.login."""

    def __init__(self, guard: Guard, **options: Any) -> None:
        self._guard = guard
        self._connecting = False
        self._deadline: float | None = None
        self._left = _HANDSHAKE_BYTES
        self._columns_left = MOST_COLUMNS
        self._answer_bytes = _LONG_ANSWER
        self.peer: Peer | None = None
        super().__init__(**options, defer_connect=True)
        self.ssl = guard.encrypts
        self._ssl_required = guard.requires_tls
        # MySQL rejects a client that announces TLS if the server does not offer it.
        self.client_flag &= ~(CLIENT.SSL | CLIENT.LOCAL_FILES)

    def connect(self, sock: socket.socket | None = None) -> None:
        """Log in over ``sock``, within the guard's seconds."""
        self._connecting = True
        self._left = _HANDSHAKE_BYTES
        try:
            with self.within_deadline(self._guard.seconds), self.short_answers(_HANDSHAKE_BYTES), self._parse_errors():
                super().connect(sock)
        finally:
            self._connecting = False

    @contextmanager
    def within_deadline(self, seconds: float) -> Generator[None]:
        """All answers within the block must arrive within ``seconds`` in total, even if single bytes arrive in time."""
        before, deadline = self._deadline, time.monotonic() + seconds
        self._deadline = deadline if before is None else min(before, deadline)
        try:
            yield
        finally:
            self._deadline = before

    @contextmanager
    def short_answers(self, most: int = SHORT_ANSWER) -> Generator[None]:
        """Each answer within the block may have at most ``most`` bytes."""
        before, self._answer_bytes = self._answer_bytes, most
        try:
            yield
        finally:
            self._answer_bytes = before

    def query(self, sql: Any, unbuffered: bool = False) -> int:
        """As PyMySQL does; an error knows the server that it is of."""
        try:
            return super().query(sql, unbuffered)
        except pymysql.MySQLError as error:
            vars(error)["peer"] = self.peer
            raise

    # --- overrides of private methods: PyMySQL has no public hooks for authentication and for limits of answers

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self._left = self._answer_bytes
        super()._execute_command(command, sql)

    def _read_query_result(self, unbuffered: bool = False) -> int:
        if unbuffered:
            self._left = _NO_END
        self._columns_left = MOST_COLUMNS
        try:
            return super()._read_query_result(unbuffered=unbuffered)
        except RuntimeError:
            raise self.refuse(_LOCAL_FILE_REASON) from None
        except _PARSE_ERRORS as error:
            raise self.refuse(f"the answer cannot be parsed ({type(error).__name__})") from error

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        """Read one packet as PyMySQL does, with limits for the bytes and the columns of an answer.

        Every row takes this path, so an ordinary packet is handled here, and all others in :meth:`_read_checked`.
        """
        if self._deadline is not None or self._current_timeout != self._read_timeout:
            return self._read_checked(packet_type, b"")
        try:
            header: bytes = self._rfile.read(4)
            word = int.from_bytes(header, "little")
            size = word & _FULL_PACKET
            left = self._left - size - _PACKET_COST
            if word >> 24 != self._next_seq_id or left < 0 or not 0 < size < _FULL_PACKET or len(header) < 4:
                return self._read_checked(packet_type, header)
            data: bytes = self._rfile.read(size)
        except OSError as error:
            raise self._connection_lost(f" ({error})") from error
        if len(data) < size:
            raise self._connection_lost("")
        self._left = left
        self._next_seq_id = (self._next_seq_id + 1) % 256
        if data[0] == _ERR or packet_type is not MysqlPacket:
            return self._parse_packet(packet_type, data)
        return packet_type(data, self.encoding)

    def _read_checked(self, packet_type: Any, header: bytes) -> Any:
        """Read a packet that is the first one, consists of several parts, is malformed, or has a deadline. ``header``:
        the bytes of it that were read already."""
        if self._current_timeout != self._read_timeout and self._deadline is None:
            self._sock.settimeout(self._read_timeout)
            self._current_timeout = self._read_timeout
        parts: list[bytes] = []
        while True:
            header += self._read_bytes(4 - len(header))
            size = int.from_bytes(header[:3], "little")
            self._left -= size + _PACKET_COST
            if self._left < 0 or len(parts) * _FULL_PACKET > LARGEST_ROW:
                raise self.refuse("the answer is larger than the limit for this query")
            self._check_number(header[3])
            parts.append(self._read_bytes(size))
            if size < _FULL_PACKET:
                break
            header = b""
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if not data:
            raise self.refuse("an empty packet")
        if data[0] == _LOCAL_INFILE and self._connecting:
            raise self.refuse(_LOCAL_FILE_REASON)  # no statement is sent before the login is complete
        return self._parse_packet(packet_type, data)

    def _parse_packet(self, packet_type: Any, data: bytes) -> Any:
        """The packet as an object. Raises the error of an ERR packet."""
        if data[0] == _ERR:
            if len(data) < _SHORTEST_ERROR:
                raise self.refuse("an error packet without an error number")
            if self._result is not None and self._result.unbuffered_active is True:
                self._result.unbuffered_active = False
            raise_error_packet(data)
        if packet_type is FieldDescriptorPacket:
            self._columns_left -= 1
            if self._columns_left < 0:
                raise self.refuse(f"the answer has more than {MOST_COLUMNS} columns")
        return packet_type(data, self.encoding)

    def _connection_lost(self, why: str) -> pymysql.OperationalError:
        self._force_close()
        return pymysql.OperationalError(CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query{why}")

    def _check_number(self, number: int) -> None:
        if number != self._next_seq_id:
            if number == 0:  # MariaDB sends such a packet when it shuts down
                self._force_close()
                raise pymysql.OperationalError(CR.CR_SERVER_LOST, "Lost connection to MySQL server during query")
            raise self.refuse(f"a packet has sequence number {number}, expected {self._next_seq_id}")
        self._next_seq_id = (number + 1) % 256

    def _read_bytes(self, num_bytes: int) -> bytes:
        try:
            data: bytes = (
                self._rfile.read(num_bytes) if self._deadline is None else self._read_until_deadline(num_bytes)
            )
        except OSError as error:
            raise self._connection_lost(f" ({error})") from error
        if len(data) < num_bytes:
            raise self._connection_lost("")
        return data

    def _read_until_deadline(self, size: int) -> bytes:
        """Read ``size`` bytes; all of them must arrive before the deadline."""
        parts: list[bytes] = []
        missing = size
        while missing:
            self._apply_deadline()
            part: bytes = self._rfile.read1(missing)
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _write_bytes(self, data: bytes) -> None:
        if self._deadline is None:
            super()._write_bytes(data)
            return
        self._apply_deadline()
        try:
            self._sock.sendall(data)
        except OSError as error:
            self._force_close()
            reason = f"MySQL server has gone away ({error!r})"
            raise pymysql.OperationalError(CR.CR_SERVER_GONE_ERROR, reason) from error

    def _apply_deadline(self) -> None:
        """Limit the socket's timeout to the deadline. Raises TimeoutError when the deadline has passed."""
        assert self._deadline is not None  # noqa: S101 - for the type checker: callers have checked it
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._current_timeout = -1.0  # not a valid timeout, so that the next read after the deadline sets it again
        self._sock.settimeout(left if self._read_timeout is None else min(left, self._read_timeout))

    def refuse(self, reason: str) -> pymysql.OperationalError:
        """The error for an answer that violates the protocol. Closes the connection."""
        self._force_close()
        return pymysql.OperationalError(REFUSED_ANSWER, f"{self.host}:{self.port}: {reason}")

    @contextmanager
    def _parse_errors(self) -> Generator[None]:
        """Convert the errors of a login. PyMySQL parses the greeting without checks of its lengths."""
        try:
            yield
        except Malformed as error:
            raise self.refuse(str(error)) from error
        except Unknown as error:
            self._force_close()
            reason = "authentication method {}: {}".format(*error.args)
            raise pymysql.OperationalError(CR.CR_AUTH_PLUGIN_CANNOT_LOAD, reason) from error
        except _PARSE_ERRORS as error:
            raise self.refuse(f"the greeting cannot be parsed ({type(error).__name__})") from error

    # --- the login

    def _request_authentication(self) -> None:
        capabilities: int = self.server_capabilities
        if not capabilities & CLIENT.PROTOCOL_41 or not capabilities & CLIENT.SECURE_CONNECTION:
            raise self.refuse("the server uses a protocol older than version 4.1")
        self.client_flag |= CLIENT.MULTI_RESULTS
        user = str(self.user).encode(self.encoding)
        encrypts = bool(self.ssl and capabilities & CLIENT.SSL)
        if self._ssl_required and not encrypts:
            raise pymysql.OperationalError(CR.CR_SSL_CONNECTION_ERROR, "the server offers no TLS")
        flags = self.client_flag | (CLIENT.SSL if encrypts else 0)
        head = struct.pack("<iIB23s", flags, _FULL_PACKET, _charset(self.charset), b"")
        if encrypts:
            self.write_packet(head)
            self._apply_deadline()
            self._sock = self.ctx.wrap_socket(self._sock, server_hostname=self.host)
            self._rfile = self._sock.makefile("rb")
        login = Login(self.password, self._channel(encrypts), self._guard.retrieves_key)
        method, answer = login.opening(self._auth_plugin_name, self.salt)
        body = head + user + b"\0"
        body += bytes([len(answer)]) + answer  # the first answer of every method is shorter than 251 bytes
        if capabilities & CLIENT.PLUGIN_AUTH:
            body += method.encode() + b"\0"
        if capabilities & CLIENT.CONNECT_ATTRS:
            attributes = b"".join(_with_length(text) for pair in self._connect_attrs.items() for text in pair)
            body += _length(len(attributes)) + attributes
        self.write_packet(body)
        self._log_in(login, method)

    def _channel(self, encrypts: bool) -> Channel:
        if not encrypts:
            return Channel.PLAIN
        return Channel.VERIFIED if self.ctx.verify_mode is ssl.CERT_REQUIRED else Channel.ENCRYPTED

    def _log_in(self, login: Login, method: str) -> None:
        """Answer until the server accepts the login. Raises shardmerge.worker.core.mysql.login's Refused and
        PublicKeyLoginNeeded."""
        salt: bytes = self.salt
        switches = 0
        expects_key = False
        for _ in range(_LOGIN_ROUNDS):
            data: bytes = self._read_packet().get_all_data()
            first = data[0]
            if first == _OK and len(data) >= 7:
                return
            if first == _SWITCH:
                switches += 1
                if switches > _LOGIN_SWITCHES:
                    break
                # A switch request without a name means the method of MySQL before 4.1.
                name, _, salt = data[1:].partition(b"\0")
                method = name.decode("ascii", "replace")[:64] or "mysql_old_password"
                self.write_packet(login.answer(method, salt))
                salt = salt[:20]
                expects_key = method == SHA256 and login.requests_public_key
            elif expects_key and first == _MORE:
                expects_key = False
                self.write_packet(login.with_public_key(data[1:], salt))
            elif method == CACHING and data == bytes([_MORE, _FULL_AUTHENTICATION]):
                self.write_packet(login.full_authentication())
                expects_key = login.requests_public_key
            elif method == CACHING and data == bytes([_MORE, _FAST_SUCCESS]):
                continue
            elif method == DIALOG:
                self.write_packet(login.reply(data[1:] if first == _MORE else data))
            else:
                raise self.refuse("the reply to the login neither accepts nor rejects it")
        raise self.refuse("the server requests authentication too many times")


def _charset(name: str) -> int:
    found: Any = charset_by_name(name)
    return int(found.id)


def _with_length(text: str) -> bytes:
    data = text.encode()
    return _length(len(data)) + data


def _length(size: int) -> bytes:
    """A length-encoded integer below 65536."""
    return bytes([size]) if size < 251 else b"\xfc" + struct.pack("<H", size)
