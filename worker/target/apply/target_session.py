"""A lane's connection to the target: opened when needed; attempts that fail with a retryable error are repeated."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pymysql

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import Backoff
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, connect, errno_of, send, to_coded
from shardmerge.worker.core.mysql.lock_waits import connection_number
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.subtask_key import SubtaskKey

log = get_logger()

_ANSWER_SECONDS = 300.0
# A lane's process that hangs inside a transaction holds the lock that the next epoch needs: the target closes a
# silent connection after this time and rolls its transaction back.
_SILENCE_SECONDS = 30
_KEEP_ALIVE_SECONDS = 8.0
_BACKOFF = Backoff(0.05, 2.0)

_Answer = TypeVar("_Answer")

OnRetry = Callable[[int, ShardmergeError], None]
"""Called before an attempt is repeated, with its number (the first repetition is 2) and the error before it."""

OnConnect = Callable[[int], None]
"""Called with the number that a new connection has at the target."""


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """``retry_seconds``: how long after its first failure a transaction is repeated before the lane fails.

    ``safe_mode``: rows may exist already (targets pre-loaded by other means): keys are deleted before they are
    inserted, and missing rows are no error. ``stream``: the stream of the lane. ``quarantine``: rows that the target
    refuses are held; otherwise they end the lane.
    """

    task: str
    source: str
    meta_schema: str
    target: Endpoint
    safe_mode: bool
    stream: Stream = Stream.MAIN
    retry_seconds: float = 30.0
    quarantine: bool = False

    @property
    def who(self) -> SubtaskKey:
        return SubtaskKey(self.meta_schema, self.task, self.source)


class TargetSession:
    """Not shared between threads."""

    def __init__(self, settings: ApplySettings, on_retry: OnRetry, on_connect: OnConnect = lambda number: None) -> None:
        self._settings = settings
        self._on_retry = on_retry
        self._on_connect = on_connect
        self._session: Session | None = None
        self._used_at = 0.0

    def connected(self) -> Session:
        """The connection, made now if there is none. Raises ``pymysql.MySQLError``, or its coded error."""
        if self._session is None:
            self._session = connect(
                self._settings.target,
                Side.TARGET,
                name="target",
                autocommit=True,
                read_timeout=_ANSWER_SECONDS,
                together=True,
            )
            self._on_connect(connection_number(self._session))
            send(self._session, f"SET SESSION wait_timeout = {_SILENCE_SECONDS}".encode())
        self._used_at = time.monotonic()
        return self._session

    def retrying(self, attempt: Callable[[], _Answer]) -> _Answer:
        """Return the result of ``attempt``. After a retryable error it is repeated with a new connection. Raises the
        target's coded error."""
        failures, failed_at = 0, 0.0
        while True:
            try:
                return self._with_coded_errors(attempt)
            except ShardmergeError as error:
                # Measured from the first failure: a single attempt may wait longer than that for a lock.
                now = time.monotonic()
                failures, failed_at = failures + 1, failed_at if failures else now
                if not _is_retryable(error) or now - failed_at >= self._settings.retry_seconds:
                    raise
                self.close()
                self._on_retry(failures + 1, error)
            # At random: lanes whose transactions have met in a deadlock must not meet again.
            time.sleep(random.uniform(0.0, _BACKOFF.seconds(failures)))  # noqa: S311 - not a secret

    def _with_coded_errors(self, attempt: Callable[[], _Answer]) -> _Answer:
        try:
            return attempt()
        except pymysql.MySQLError as error:
            raise to_coded(error, self._settings.target, Side.TARGET, "target") from error

    def keep_alive(self, look: Callable[[], object]) -> None:
        """To be called while there is nothing to commit: ``look``, which reads from the target, keeps it from closing
        the connection."""
        if self._session is not None and time.monotonic() - self._used_at > _KEEP_ALIVE_SECONDS:
            self._used_at = time.monotonic()
            self.retrying(look)

    def close(self) -> None:
        if self._session is not None:
            try:
                self._session.close()
            except pymysql.MySQLError as error:
                log.debug("closing a target connection", errno=errno_of(error))
            self._session = None


def send_batch(session: Session, statements: Sequence[bytes]) -> tuple[list[int], pymysql.MySQLError | None]:
    """Send statements in one packet. Returns the affected rows of each, up to the first that fails, and its error.

    The server executes no statement after one that fails (MySQL Reference Manual, C API "Multiple Statement
    Execution").
    """
    answers: list[int] = []
    if not statements:
        return answers, None
    try:
        answers.append(send(session, b";".join(statements), statements=len(statements)))
        for _ in statements[1:]:
            answers.append(int(cast("Any", session).next_result()))
    except pymysql.MySQLError as error:
        return answers, error
    return answers, None


def _is_retryable(error: ShardmergeError) -> bool:
    # Not FENCED and collisions; but lost connections, deadlocks, a read-only or full target.
    # The same transaction would be too large again: the subtask goes on with smaller ones.
    return error.spec.retryable and error.spec is not errors.replicate.TARGET_TRANSACTION_TOO_LARGE
