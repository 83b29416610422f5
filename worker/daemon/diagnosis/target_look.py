"""Asks the target of a subtask once: how long a round trip takes, and who holds the locks that its lanes wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

import pymysql

from shardmerge.proto import config_pb2
from shardmerge.proto import diagnose_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.mysql.connection import (
    Endpoint,
    Session,
    Side,
    ask,
    coded_errors,
    connect,
    dialect_of,
    text_of,
)
from shardmerge.worker.core.mysql.lock_waits import (
    NO_SESSION,
    LockWait,
    own_statements,
    read_holders,
    read_lock_wait,
    row_locks_visible,
)
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of
from shardmerge.worker.daemon.diagnosis.statement_scans import read_scans
from shardmerge.worker.daemon.diagnosis.statement_text import without_values
from shardmerge.worker.verify.precheck.source.grants import Grants

log = get_logger()

_ANSWER_SECONDS = 5.0
_TURN_SECONDS = 1.0
_LOOK_SECONDS = 5.0
"""No further lane is looked at after this time: each needs several answers."""

_MOST_LANES, _MOST_STATEMENTS = 16, 16
_LEAST_SECONDS = 1
_STATEMENT_CHARACTERS = 200
_AGAIN_SECONDS = 0.2
"""MariaDB and MySQL 5.7 answer a query of their lock waits from a copy for 0.1 s."""

_HIDDEN_LOCKS = (
    "who holds row locks (the account lacks the privilege PROCESS, or, at MySQL 8, SELECT on performance_schema)"
)
_HIDDEN_HOLDERS = "the sessions of other accounts (the account lacks the privilege PROCESS)"
_SCAN_LOOKS = 5
"""A statement that has just begun has read little: the sessions are looked at so often, some time apart."""

_SCAN_SECONDS = 0.1


class TargetLooker:
    """One per worker: it looks at one target at a time, because a target that does not answer keeps a thread for as
    long as the attempt to connect takes. Thread-safe."""

    def __init__(self) -> None:
        self._turn = threading.Lock()

    def begin(self, target: config_pb2.Endpoint, lanes: Mapping[int, int], tables: Sequence[str]) -> Looking | None:
        """Begin to look; None: another look is in progress. ``lanes``: the connections of lanes that may wait, by lane,
        those that have waited longest first. ``tables``: quoted names of the target tables."""
        if not self._turn.acquire(timeout=_TURN_SECONDS):
            return None
        return Looking(Endpoint.from_proto(target), lanes, tables, self._turn.release)


class Looking:
    """A look in progress, in a thread of its own. :meth:`result` may be called at any time."""

    def __init__(
        self, endpoint: Endpoint, lanes: Mapping[int, int], tables: Sequence[str], on_end: Callable[[], None]
    ) -> None:
        self._endpoint, self._lanes, self._tables, self._on_end = endpoint, lanes, tables, on_end
        self._lock = threading.Lock()
        self._found = pb.TargetLook()
        self._over = threading.Event()
        self._grants: tuple[str, ...] = ()
        threading.Thread(target=self._run, name="target-look", daemon=True).start()

    def result(self, seconds: float) -> pb.TargetLook:
        """What is known after at most ``seconds``; not ``answered`` if the target needs longer."""
        self._over.wait(seconds)
        with self._lock:
            found = pb.TargetLook()
            found.CopyFrom(self._found)
            return found

    def _run(self) -> None:
        try:
            endpoint = self._endpoint
            with (
                closing(connect(endpoint, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)) as session,
                coded_errors(endpoint, Side.TARGET, "target"),
            ):
                self._look(session)
            with self._lock:
                self._found.answered = True
        except ShardmergeError as error:
            with self._lock:
                self._found.error.CopyFrom(error_to_proto(error))
        except Exception as error:  # the look is an addition: the answer without it is right, too
            log.exception("a look at the target failed", kind=type(error).__name__)
        finally:
            self._on_end()
            self._over.set()

    def _look(self, session: Session) -> None:
        round_trip = min(_seconds(lambda: ask(session, "SELECT 1")) for _ in range(2))
        with self._lock:
            self._found.round_trip = round_trip
        lanes = frozenset(self._lanes.values())
        statements = [
            each for each in own_statements(session, self._tables, _LEAST_SECONDS) if each.connection not in lanes
        ]
        if not self._lanes and not statements:
            return
        are_visible = row_locks_visible(session)
        with self._lock:
            self._found.hidden = "" if are_visible else _HIDDEN_LOCKS
        self._grants = _grants(session)
        self._find_scans(session, [*lanes, *(each.connection for each in statements if not each.is_ddl)])
        until = time.monotonic() + _LOOK_SECONDS
        looked = 0
        for lane, connection in self._lanes.items():
            if looked == _MOST_LANES or (looked and time.monotonic() >= until):
                break
            self._look_at(session, connection, pb.TargetWait(lane=lane))
            looked += 1
        for each in statements[:_MOST_STATEMENTS]:
            if time.monotonic() >= until:
                break
            text = without_values(each.statement)[:_STATEMENT_CHARACTERS]
            about = pb.TargetWait(statement=text, connection=each.connection, seconds=each.seconds)
            waits = self._look_at(session, each.connection, about)
            if not waits and each.is_ddl and each.names_any(self._tables):
                running = pb.TargetStatement(
                    connection=each.connection, seconds=each.seconds, statement=text, progress=each.progress
                )
                with self._lock:
                    self._found.running.append(running)
        left = len(self._lanes) - looked
        with self._lock:
            if self._found.hidden:
                self._found.grants.extend(self._grants)
            if left and not self._found.hidden:
                self._found.hidden = f"what {left} more lane(s) wait for: those that wait longest are looked at first"

    def _find_scans(self, session: Session, connections: Sequence[int]) -> None:
        for look in range(_SCAN_LOOKS):
            if look:
                time.sleep(_SCAN_SECONDS)
            scans = read_scans(session, connections, self._tables)
            if scans:
                break
        else:
            return
        with self._lock:
            for scan in scans:
                self._found.scans.add(
                    connection=scan.connection,
                    table=scan.table,
                    read_rows=scan.read,
                    most_keys=scan.most_keys,
                    changed_rows=scan.changed,
                    statement=without_values(scan.statement)[:_STATEMENT_CHARACTERS],
                )

    def _look_at(self, session: Session, connection: int, about: pb.TargetWait) -> bool:
        """Whether the connection waits for a lock. ``about``: whose wait it is."""
        found, is_complete = self._wait_of(session, connection)
        if found is not None and not is_complete:
            # A holder may have ended meanwhile; then it no longer blocks the statement.
            time.sleep(_AGAIN_SECONDS)
            found, _ = self._wait_of(session, connection)
        if found is None:
            return False
        found.MergeFrom(about)
        is_hidden = any(not holder.visible and holder.connection != NO_SESSION for holder in found.holders)
        with self._lock:
            self._found.waits.append(found)
            if is_hidden and not self._found.hidden:
                self._found.hidden = _HIDDEN_HOLDERS
        return True

    def _wait_of(self, session: Session, connection: int) -> tuple[pb.TargetWait | None, bool]:
        """What the connection waits for, None: for no lock; and whether the account sees all of its holders."""
        wait = read_lock_wait(session, connection, self._tables)
        return (None, True) if wait is None else _message(session, wait)


def _grants(session: Session) -> tuple[str, ...]:
    """The statements that let the account see what the look may not."""
    dialect = dialect_of(session)
    account = Grants(text_of(ask(session, "SELECT CURRENT_USER()")[0][0]), ())
    of_schema = (
        () if dialect.is_mariadb or dialect.is_tidb else (account.statement(("SELECT",), "performance_schema.*"),)
    )
    return (account.statement(("PROCESS",), "*.*"), *of_schema)


def _message(session: Session, wait: LockWait) -> tuple[pb.TargetWait, bool]:
    """The wait, and whether the account sees all of its holders."""
    found = pb.TargetWait(kind=wait.kind, table=wait.table, hint=wait.hint)
    sessions = [number for number in wait.holders if number != NO_SESSION]
    try:
        seen = {holder.connection: holder for holder in read_holders(session, sessions)}
    except pymysql.MySQLError as error:
        if kind_of(errno_of(error)) is not ErrorKind.PRIVILEGE:
            raise
        seen = {}
    for number in wait.holders:
        holder = seen.get(number)
        if holder is None:
            found.holders.add(connection=number)
            continue
        found.holders.add(
            connection=number,
            visible=True,
            user=holder.user,
            host=holder.host,
            command=holder.command,
            seconds=max(0.0, holder.seconds),
            statement=without_values(holder.statement),
        )
    return found, len(seen) == len(wait.holders)


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
