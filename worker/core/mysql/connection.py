"""Connections to sources and targets: their session settings, and the server's description of itself."""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass, replace
from typing import Any

import pymysql
from pymysql.constants import CLIENT, CR, ER
from pymysql.converters import conversions, escape_string

from shardmerge.proto import errors, networks
from shardmerge.proto.config.rules.reserved_names import PINNED_VARIABLES
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.sql_lexer import quote_name
from shardmerge.worker.core import seen_servers
from shardmerge.worker.core.mysql.endpoint import PLAIN, Endpoint, Peer, Side
from shardmerge.worker.core.mysql.guarded_connection import SHORT_ANSWER, Guard, GuardedConnection
from shardmerge.worker.core.mysql.login import CACHING, PublicKeyLoginNeeded, Refused
from shardmerge.worker.core.mysql.server_errors import ErrorKind, coded_errors, errno_of, kind_of, reason_of, to_coded
from shardmerge.worker.core.mysql.target_dialect import TargetDialect, parse_dialect, parse_tidb_release, parse_version
from shardmerge.worker.core.mysql.tls import context_of
from shardmerge.worker.core.position import SourcePosition

Session = GuardedConnection

__all__ = [
    "CONNECT_SECONDS",
    "Endpoint",
    "ErrorKind",
    "ServerInfo",
    "Session",
    "Side",
    "ask",
    "coded_errors",
    "connect",
    "current_position",
    "dialect_of",
    "errno_of",
    "execute",
    "is_tidb",
    "kind_of",
    "position_statement",
    "quote_name",
    "quote_text",
    "rows",
    "server_info",
    "text_of",
    "to_coded",
]

CONNECT_SECONDS = 10
"""Timeout of each of three steps: to connect, to log in, to set up the session. It limits the whole step, even if
single bytes arrive in time."""

ASK_SECONDS = 300.0
"""Timeout of :func:`ask`."""

_ANSWER_BYTES = 2048
"""Largest answer to each statement of a packet that has several statements."""

_DIALECT = "shardmerge_dialect"
"""Attributes of a session."""

_SECURE_TRANSPORT_REQUIRED = 3159  # ER_SECURE_TRANSPORT_REQUIRED of MySQL
_KEEPALIVE_IDLE_SECONDS = 15
_KEEPALIVE_INTERVAL_SECONDS = 5
_KEEPALIVE_PROBES = 3
_UNACKNOWLEDGED_MILLISECONDS = 30_000

_NAME = re.compile(r"@{0,2}[A-Za-z_][A-Za-z0-9_.]*")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")

# Numbers, not DEFAULT: that would be the server's global value, which may be the very limit to override. Without
# sql_big_selects, max_join_size refuses large SELECTs.
_ALL_ROWS = "sql_select_limit = 18446744073709551615, sql_big_selects = 1"

_SOURCE_SESSION = (
    f"SET SESSION time_zone = '+00:00', sql_mode = '', {_ALL_ROWS}, net_write_timeout = 3600, net_read_timeout = 3600, "
    "wait_timeout = 28800"
)
TARGET_MODES = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
_TARGET_SESSION = (
    f"SET SESSION time_zone = '+00:00', sql_mode = '{TARGET_MODES}', "
    f"foreign_key_checks = 0, unique_checks = 1, sql_safe_updates = 0, {_ALL_ROWS}, wait_timeout = 28800"
)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server's description of itself. ``flavor``: "mysql" or "mariadb" (TiDB reports "mysql")."""

    flavor: str
    version: tuple[int, int, int]
    text: str
    server_id: int
    server_uuid: str  # "" on MariaDB, which has none
    log_bin: bool
    host: str  # the server's own name of its machine, independent of the address that the worker uses
    port: int  # the server's own port
    dialect: TargetDialect

    @property
    def is_mariadb(self) -> bool:
        return self.flavor == "mariadb"

    @property
    def identity(self) -> str:
        """Distinguishes the servers of one fail-over group: positions in files belong to one server."""
        return self.server_uuid or f"server-id {self.server_id}"


def quote_text(text: str) -> str:
    """A string literal (sessions of this module keep backslash escapes)."""
    return "'" + escape_string(text) + "'"


def connect(
    endpoint: Endpoint,
    side: Side,
    *,
    name: str,
    raw: bool = False,
    autocommit: bool = True,
    read_timeout: float | None = None,
    together: bool = False,
) -> Session:
    """Connect and set up the session; ``name`` is the source's id, or "target", for messages.

    Both: UTC, no limit on a SELECT's rows. SOURCE: empty sql_mode, REPEATABLE READ, no limit on a statement's
    time. TARGET: strict, zero dates are allowed, unique keys are checked, foreign keys are not, READ COMMITTED; an
    UPDATE's affected rows are the rows *found* (CLIENT_FOUND_ROWS), so that writing the same checkpoint again
    still counts.
    ``raw``: every value arrives as the server's own bytes and text is not converted between charsets
    (``character_set_results = NULL``). ``read_timeout``: seconds to wait for any answer; None: for ever.
    ``together``: one packet may contain several statements.

    Raises the error of :func:`to_coded`, TLS_FILE, TLS_PEER_REFUSED, TLS_NOT_OFFERED, LOGIN_REFUSED,
    ADDRESS_NOT_ALLOWED.
    """
    client_flag = (CLIENT.FOUND_ROWS if side is Side.TARGET else 0) | (CLIENT.MULTI_STATEMENTS if together else 0)
    # Without decoders a value stays bytes; the encoders are for arguments.
    encoders: Any = {key: value for key, value in conversions.items() if not isinstance(key, int)}
    options: dict[str, Any] = {
        "host": endpoint.host,
        "port": endpoint.port,
        "user": endpoint.user,
        "password": endpoint.password.encode(),  # PyMySQL would send a text as latin1
        "charset": "utf8mb4",
        "use_unicode": not raw,
        "conv": encoders if raw else None,
        "client_flag": client_flag,
        "autocommit": autocommit,
        "program_name": "shardmerge",
        "read_timeout": CONNECT_SECONDS,
        "ssl": context_of(endpoint),
    }
    session = _log_in(endpoint, side, name, options)
    try:
        with session.within_deadline(CONNECT_SECONDS), session.short_answers():
            _prepare(session, endpoint, side, raw, autocommit)
        session.peer = Peer(endpoint, side, name)
        version = str(vars(session)["server_version"])
        seen_servers.OF_PROCESS.add(side.name.lower(), endpoint.host, endpoint.port, version)
        _set_read_timeout(session, read_timeout)
    except pymysql.MySQLError as error:
        _close(session)
        raise to_coded(error, endpoint, side, name) from error
    except ShardmergeError:
        session.close()
        raise
    return session


def endpoint_of(session: Session) -> Endpoint:
    """The endpoint to which :func:`connect` has connected the session."""
    assert session.peer is not None  # noqa: S101 - for the type checker: connect() has set it
    return session.peer.endpoint


def dialect_of(session: Session) -> TargetDialect:
    """The dialect of the server; it is queried once per session. Raises ``pymysql.MySQLError``."""
    dialect: TargetDialect | None = vars(session).get(_DIALECT)
    if dialect is None:
        [(version, comment)] = rows(session, "SELECT VERSION(), @@version_comment")
        dialect = parse_dialect(text_of(version), text_of(comment))
        if dialect.is_tidb:
            [(release,)] = rows(session, "SELECT TIDB_VERSION()")
            dialect = replace(dialect, version=parse_tidb_release(text_of(release)))
        vars(session)[_DIALECT] = dialect
    return dialect


def is_tidb(session: Session) -> bool:
    """Whether the session is one at a TiDB target; a source never is one."""
    known: TargetDialect | None = vars(session).get(_DIALECT)
    return known is not None and known.is_tidb


def _log_in(endpoint: Endpoint, side: Side, name: str, options: dict[str, Any]) -> Session:
    """A session that is logged in. Raises what :func:`connect` raises.

    An account enters MySQL's cache by a login that sends the password, and over TLS such a login sends it in clear
    text. If the endpoint allows public key retrieval and the server's certificate was not verified, an extra connection
    without TLS logs in with the server's public key and so fills the cache. The next login over TLS then does not send
    the password.
    """
    try:
        return _open_coded(endpoint, side, name, options)
    except PublicKeyLoginNeeded:
        pass
    failure: pymysql.MySQLError | None = None
    try:
        _open(endpoint, name, options, encrypts=False).close()
    except pymysql.MySQLError as error:
        failure = error  # an account that requires TLS fails too, but MySQL checks its password first
    try:
        return _open_coded(endpoint, side, name, options)
    except PublicKeyLoginNeeded:
        pass
    if failure is not None and errno_of(failure) != _SECURE_TRANSPORT_REQUIRED:
        raise to_coded(failure, endpoint, side, name) from failure
    if failure is not None:
        cause = "the server rejects a login of this account without TLS"
    else:
        cause = "a login with the server's public key did not put it there"
    reason = f"the account is not in the server's cache and {cause}"
    raise _login_refused(endpoint, name, Refused(CACHING, reason)) from failure


def _open_coded(endpoint: Endpoint, side: Side, name: str, options: dict[str, Any]) -> Session:
    """A login with TLS if the server offers it. Raises PublicKeyLoginNeeded, and what :func:`connect` raises."""
    try:
        return _open(endpoint, name, options, encrypts=True)
    except pymysql.MySQLError as error:
        raise to_coded(error, endpoint, side, name) from error


def _open(endpoint: Endpoint, name: str, options: dict[str, Any], *, encrypts: bool) -> Session:
    """One login attempt. Raises PublicKeyLoginNeeded, ``pymysql.MySQLError`` and what :func:`connect` raises."""
    tls_given = endpoint.tls != PLAIN
    # An endpoint with TLS settings never connects without TLS, not even to get the server's public key.
    guard = Guard(endpoint.retrieves_key and not tls_given, encrypts, tls_given, CONNECT_SECONDS)
    session = Session(guard, **options)
    try:
        session.connect(_socket(endpoint, name))
    except Refused as error:
        raise _login_refused(endpoint, name, error) from error
    except pymysql.MySQLError as error:
        if errno_of(error) == CR.CR_SSL_CONNECTION_ERROR and not _offers_tls(session):
            raise errors.worker.TLS_NOT_OFFERED(host=endpoint.host, port=endpoint.port) from error
        raise
    return session


def _login_refused(endpoint: Endpoint, name: str, error: Refused) -> ShardmergeError:
    return errors.worker.LOGIN_REFUSED(
        source=name,
        host=endpoint.host,
        port=endpoint.port,
        user=endpoint.user,
        method=error.method,
        reason=error.reason,
    )


def _offers_tls(session: Session) -> bool:
    """Whether the server's handshake has the TLS capability (MySQL Internals Manual, "Protocol::HandshakeV10"); True
    without a handshake, because then it is unknown."""
    capabilities: int = vars(session).get("server_capabilities", CLIENT.SSL)
    return bool(capabilities & CLIENT.SSL)


def _close(session: Session) -> None:
    """Close a session that the server may have closed already."""
    if session.open:
        session.close()


def _socket(endpoint: Endpoint, name: str) -> socket.socket:
    """A connected socket that notices a dead peer within about half a minute. Raises ADDRESS_NOT_ALLOWED.

    PyMySQL's own socket has keep-alive with the system's two hours.
    """
    try:
        made = _connect_socket(endpoint, name)
    except (OSError, UnicodeError) as error:  # UnicodeError: the text is not a valid host name
        raise pymysql.OperationalError(CR.CR_CONN_HOST_ERROR, f"cannot connect: {error}") from error
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_MILLISECONDS),
    ):
        if hasattr(socket, option):  # these four are Linux's names
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _connect_socket(endpoint: Endpoint, name: str) -> socket.socket:
    """A socket to the first address of the host that answers, among the addresses that this process may connect to.

    The name is resolved once, so that the addresses that were checked are those of the connection. Raises OSError.
    """
    allowed = networks.of_process()
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    places = [one for one in found if allowed is None or allowed.allow(endpoint.host, str(one[4][0]))]
    if allowed is not None and not places:
        addresses = ", ".join(dict.fromkeys(str(one[4][0]) for one in found))
        raise errors.worker.ADDRESS_NOT_ALLOWED(
            source=name, host=endpoint.host, port=endpoint.port, found=f"{addresses} is in none of {allowed.text}"
        )
    deadline = time.monotonic() + CONNECT_SECONDS
    failure: OSError = OSError("the name has no address")
    for family, kind, protocol, _, place in places:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(left)
            made.connect(place)
        except OSError as error:
            failure = error
            made.close()
        else:
            return made
    raise failure


def _set_read_timeout(session: Session, seconds: float | None) -> None:
    # PyMySQL has one read timeout for the handshake and for all later reads.
    vars(session)["_read_timeout"] = seconds


def _prepare(session: Session, endpoint: Endpoint, side: Side, raw: bool, autocommit: bool) -> None:
    """The configuration's variables first, then those that correctness needs."""
    for variable, value in endpoint.session:
        if variable.lower() not in PINNED_VARIABLES:
            _set_variable(session, variable, value, endpoint)
    version = str(vars(session)["server_version"])
    mariadb, tidb = "mariadb" in version.lower(), "tidb" in version.lower()
    # PyMySQL trusts the handshake, in which MySQL has autocommit also where its default is off.
    settings = [f"autocommit = {int(autocommit)}"]
    if not tidb:
        # Otherwise a COMMIT may begin the next transaction, or end the connection.
        settings.append("completion_type = 0")
    if not mariadb and not tidb and parse_version(version) >= (8, 0, 30):
        # The rows of the binlog have a generated primary key also where the server hides it.
        settings.append("show_gipk_in_create_table_and_information_schema = 1")
    execute(session, ", ".join((_SOURCE_SESSION if side is Side.SOURCE else _TARGET_SESSION, *settings)))
    if side is Side.TARGET:
        _prepare_target(session)
    else:
        # A site-wide limit on a statement's time must not cut a chunk's SELECT.
        execute(session, f"SET SESSION {'max_statement_time' if mariadb else 'max_execution_time'} = 0")
        if not mariadb and parse_version(version) >= (8, 0, 0):
            # Otherwise information_schema's table sizes, by which chunks are planned, are up to a day old.
            execute(session, "SET SESSION information_schema_stats_expiry = 0")
    level = "REPEATABLE READ" if side is Side.SOURCE else "READ COMMITTED"
    execute(session, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    if raw:
        execute(session, "SET SESSION character_set_results = NULL")


def _prepare_target(session: Session) -> None:
    """Read the target's dialect and set what it needs."""
    dialect = dialect_of(session)
    for statement in dialect.session_statements:
        execute(session, statement)
    if not dialect.is_tidb:
        _explicit_timestamps(session)
    if dialect.optional_settings:
        names = ", ".join(quote_text(variable) for variable, _ in dialect.optional_settings)
        found = rows(session, f"SHOW SESSION VARIABLES WHERE Variable_name IN ({names})")
        known = {text_of(name).lower() for name, _ in found}
        settings = (f"{variable} = {value}" for variable, value in dialect.optional_settings if variable in known)
        execute(session, f"SET SESSION {', '.join(settings)}")


def _explicit_timestamps(session: Session) -> None:
    """Otherwise a CREATE TABLE gives a TIMESTAMP that is NOT NULL and has no default those of the current time."""
    if text_of(rows(session, "SELECT @@explicit_defaults_for_timestamp")[0][0]) == "1":
        return
    try:
        execute(session, "SET SESSION explicit_defaults_for_timestamp = 1")
    except pymysql.MySQLError as error:
        # MariaDB before 10.8.2 cannot set it, and MySQL needs a privilege (docs/reference/limits.md).
        if errno_of(error) not in (ER.INCORRECT_GLOBAL_LOCAL_VAR, ER.SPECIFIC_ACCESS_DENIED_ERROR):
            raise


def _set_variable(session: Session, variable: str, value: str, endpoint: Endpoint) -> None:
    if not _NAME.fullmatch(variable):
        raise errors.relay.SESSION_VARIABLE(
            host=endpoint.host,
            port=endpoint.port,
            variable=variable,
            value=value,
            reason="not a variable's name",
            errno=0,
        )
    literal = value if _NUMBER.fullmatch(value) else quote_text(value)
    try:
        execute(session, f"SET SESSION {variable} = {literal}")
    except pymysql.MySQLError as error:
        if kind_of(errno_of(error)) is not ErrorKind.SESSION:
            raise
        raise errors.relay.SESSION_VARIABLE(
            host=endpoint.host,
            port=endpoint.port,
            variable=variable,
            value=value,
            reason=reason_of(error),
            errno=errno_of(error),
        ) from error


def execute(session: Session, statement: str, args: tuple[object, ...] | None = None) -> int:
    """Run a statement without a result; the affected rows. Raises ``pymysql.MySQLError``."""
    with session.short_answers(), session.cursor() as cursor:
        return cursor.execute(statement, args)


def send(session: Session, statement: bytes, *, statements: int = 1) -> int:
    """Run a statement given as bytes, because its literals have the bytes of their columns, in several charsets.
    Returns the affected rows. ``statements``: their number. Raises ``pymysql.MySQLError``."""
    untyped: Any = session  # the published stubs have no bytes here
    with session.short_answers(SHORT_ANSWER + statements * _ANSWER_BYTES):
        return int(untyped.query(statement))


def rows(session: Session, statement: str, args: tuple[object, ...] | None = None) -> list[tuple[Any, ...]]:
    """Run a query; all rows. Raises ``pymysql.MySQLError``."""
    with session.cursor() as cursor:
        cursor.execute(statement, args)
        return list(cursor.fetchall())


def ask(session: Session, statement: str, args: tuple[object, ...] | None = None) -> list[tuple[Any, ...]]:
    """Like :func:`rows`, for a query with a short answer: limits its size and its time (:data:`ASK_SECONDS`)."""
    with session.within_deadline(ASK_SECONDS), session.short_answers():
        return rows(session, statement, args)


def text_of(value: Any) -> str:
    """A value of :func:`rows` as text, whether the session is raw or not; NULL is ""."""
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def server_info(session: Session) -> ServerInfo:
    """Query the server's description of itself. Raises ``pymysql.MySQLError``."""
    # TiDB has no binlog, and no such variable.
    log_bin = "'OFF'" if is_tidb(session) else "@@GLOBAL.log_bin"
    [(version, comment, server_id, log_bin, host, port)] = ask(
        session, f"SELECT VERSION(), @@version_comment, @@GLOBAL.server_id, {log_bin}, @@hostname, @@port"
    )
    text = text_of(version)
    known: TargetDialect | None = vars(session).get(_DIALECT)
    dialect = parse_dialect(text, text_of(comment)) if known is None else known
    flavor = "mariadb" if dialect.is_mariadb else "mysql"
    uuid = ""
    if flavor == "mysql":
        found = ask(session, "SHOW GLOBAL VARIABLES LIKE 'server_uuid'")
        uuid = text_of(found[0][1]) if found else ""
    return ServerInfo(
        flavor=flavor,
        version=parse_version(text),
        text=text,
        server_id=int(server_id),
        server_uuid=uuid,
        log_bin=text_of(log_bin).upper() in ("1", "ON"),
        host=text_of(host),
        port=int(port),
        dialect=dialect,
    )


def position_statement(info: ServerInfo) -> str:
    """The statement that shows the end of the binlog: MySQL renamed it in 8.2 and dropped the old name in 8.4."""
    if not info.is_mariadb and info.version >= (8, 2, 0):
        return "SHOW BINARY LOG STATUS"
    return "SHOW MASTER STATUS"


def current_position(session: Session, info: ServerInfo, *, gtid: bool = False) -> SourcePosition:
    """The current end of the source's binlog.

    MySQL reports its GTID set with it. MariaDB does not: with ``gtid`` its ``gtid_binlog_pos`` is read
    between two equal answers (so that both belong together), else the set is "".

    Raises errors.relay.NO_BINLOG when the server writes no binlog, else ``pymysql.MySQLError``.
    """
    position = _end_of_binlog(session, info)
    if not (gtid and info.is_mariadb):
        return position
    for _ in range(_PAIR_ATTEMPTS):
        [(gtid_set,)] = ask(session, "SELECT @@GLOBAL.gtid_binlog_pos")
        again = _end_of_binlog(session, info)
        if again == position:
            return replace(position, gtid_set=text_of(gtid_set))
        position = again
    return position


_PAIR_ATTEMPTS = 5


def _end_of_binlog(session: Session, info: ServerInfo) -> SourcePosition:
    found = ask(session, position_statement(info))
    if not found:
        raise errors.relay.NO_BINLOG(server=info.text)
    row = found[0]
    # File, Position, Binlog_Do_DB, Binlog_Ignore_DB and, on MySQL, Executed_Gtid_Set (with line breaks).
    gtid_set = "" if info.is_mariadb else text_of(row[4]).replace("\n", "")
    return SourcePosition(text_of(row[0]), int(row[1]), gtid_set, info.identity)
