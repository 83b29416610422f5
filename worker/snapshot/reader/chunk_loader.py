"""Loads a chunk: multi-row INSERTs and the chunk's state in one target transaction.

Plain INSERT, never REPLACE or IGNORE: a key that exists already is another shard's row, and an error (I8).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

import pymysql
from pymysql.constants import ER

from shardmerge.proto import errors, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.rows.literal_text import literals_of
from shardmerge.worker.core.mysql.cancellable_session import ANSWER_SECONDS, close_quietly
from shardmerge.worker.core.mysql.connection import (
    Endpoint,
    ErrorKind,
    Session,
    Side,
    connect,
    errno_of,
    execute,
    kind_of,
    quote_name,
    rows,
    send,
    to_coded,
)
from shardmerge.worker.core.mysql.server_errors import reason_of
from shardmerge.worker.core.row_change import JoinedLiterals
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.snapshot.chunk_records import ChunkResult
from shardmerge.worker.snapshot.chunk_store import SnapshotStore
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.target.tables.target_table import find_missing, is_missing, missing_error

STATEMENT_BYTES = 1 << 20
"""INSERT statements are cut at about this size, or below the target's max_allowed_packet if that is smaller."""

_PACKET_MARGIN = 1024
_LOCK_WAIT_SECONDS = 10  # for the transaction of an older epoch, for example; then the chunk is retried
_SHOWN_COLUMNS = 4


class ChunkLoader:
    """One reader's connection to the target; it loads chunk after chunk. Close it, or use ``with``."""

    def __init__(self, endpoint: Endpoint, store: SnapshotStore) -> None:
        self.endpoint = endpoint
        self.store = store
        self._session: Session | None = None
        self._packet = 0

    def session(self) -> Session:
        """The connection, opened if there is none. Raises what connect() raises."""
        if self._session is None:
            session = connect(self.endpoint, Side.TARGET, name="target", autocommit=False, read_timeout=ANSWER_SECONDS)
            self._session = session
            try:
                execute(session, f"SET SESSION innodb_lock_wait_timeout = {_LOCK_WAIT_SECONDS}")
                [(packet,)] = rows(session, "SELECT @@max_allowed_packet")
            except pymysql.MySQLError as error:
                raise self.coded(error) from error
            self._packet = int(packet)
        return self._session

    def coded(self, error: pymysql.MySQLError) -> ShardmergeError:
        return to_coded(error, self.endpoint, Side.TARGET, "target")

    def transaction(self, plan: TablePlan, chunk: Chunk) -> ChunkTransaction:
        """A transaction for one chunk; enter it with ``with``."""
        session = self.session()
        limit = min(STATEMENT_BYTES, self._packet - _PACKET_MARGIN)
        return ChunkTransaction(self, session, plan, chunk, limit, self._packet - _PACKET_MARGIN)

    def close(self) -> None:
        """Close the connection; the server rolls back what was not committed."""
        session, self._session = self._session, None
        close_quietly(session)

    def __enter__(self) -> ChunkLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ChunkTransaction:
    """One chunk's transaction at the target; leaving the ``with`` block without commit rolls back.

    ``done``: the chunk's result if an earlier attempt has committed it; then there is nothing to load.
    ``write_seconds``: of its statements at the target so far.
    Methods raise catalogue errors; the connection is closed when it may be unusable.
    """

    def __init__(
        self, loader: ChunkLoader, session: Session, plan: TablePlan, chunk: Chunk, limit: int, packet: int
    ) -> None:
        self._loader, self._session = loader, session
        self._plan, self._chunk = plan, chunk
        self._limit, self._packet = limit, packet
        columns = ",".join(quote_name(item.target_name) for item in plan.columns)
        target = plan.target_name
        self._head = f"INSERT INTO {target} ({columns}) VALUES (".encode()
        self._rows: list[JoinedLiterals] = []
        self._size = len(self._head)
        self._open = False
        self.count = 0
        self.bytes = 0
        self.write_seconds = 0.0
        self.done: ChunkResult | None = None

    def __enter__(self) -> ChunkTransaction:
        try:
            self._session.begin()
            self._open = True
            self.done = self._loader.store.lock_chunk(self._session, self._plan, self._chunk.number)
        except pymysql.MySQLError as error:
            self._loader.close()
            raise self._loader.coded(error) from error
        except ShardmergeError:
            self._rollback()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rollback()

    def _rollback(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            self._session.rollback()
        except pymysql.MySQLError:
            self._loader.close()  # the server rolls back what a lost connection left

    def add(self, batch: Sequence[JoinedLiterals]) -> None:
        """Add rows; a statement is sent as soon as it is full."""
        room = self._limit
        for row in batch:
            size = len(row) + 3
            if self._size + size > room and self._rows:
                self._flush()
            self._rows.append(row)
            self._size += size
        if self._size >= room:
            self._flush()

    def commit(self, loaded: ChunkResult) -> None:
        """Send the remaining rows, record the chunk as loaded, commit. Raises FENCED and the catalogue's target
        errors."""
        self._flush()
        failpoints.hit("snapshot.before_commit")
        began = time.monotonic()
        try:
            self._loader.store.mark_loaded(self._session, self._plan, self._chunk.number, loaded)
            self._session.commit()
            self._open = False
        except pymysql.MySQLError as error:
            self._loader.close()
            raise self._loader.coded(error) from error
        self.write_seconds += time.monotonic() - began
        failpoints.hit("snapshot.after_commit")

    def flush(self) -> None:
        """Send the remaining rows, so that ``count`` and ``bytes`` are final."""
        self._flush()

    def _flush(self) -> None:
        sent = self._rows
        if not sent:
            return
        statement = self._head + b"),(".join(sent) + b")"
        if len(statement) > self._packet:
            raise errors.snapshot.ROW_TOO_LARGE(
                source=self._plan.source,
                schema=self._plan.table.schema,
                table=self._plan.table.name,
                key=self._key_text(sent[0]),
                bytes=len(statement),
                limit=self._packet,
            )
        began = time.monotonic()
        try:
            taken = send(self._session, statement)
        except pymysql.MySQLError as error:
            raise self._refused(error, sent) from error
        self.write_seconds += time.monotonic() - began
        if taken != len(sent):
            raise errors.snapshot.COUNT_MISMATCH(
                source=self._plan.source,
                number=self._chunk.number,
                schema=self._plan.table.schema,
                table=self._plan.table.name,
                target_schema=self._plan.target_schema,
                target_table=self._plan.target_table,
                taken=taken,
                sent=len(sent),
            )
        self.count += len(sent)
        self.bytes += len(statement)
        self._rows, self._size = [], len(self._head)

    def _refused(self, error: pymysql.MySQLError, sent: Sequence[JoinedLiterals]) -> ShardmergeError:
        """The coded error of a refused INSERT."""
        plan = self._plan
        if errno_of(error) == ER.DUP_ENTRY:
            return errors.replicate.COLLISION(
                source=plan.source,
                schema=plan.table.schema,
                table=plan.table.name,
                position=f"chunk {self._chunk.number}",
                target_schema=plan.target_schema,
                target_table=plan.target_table,
                key=self._colliding_key(sent),
                other=f" ({reason_of(error)})",
            )
        if is_missing(error):
            self._rollback()
            try:
                if find_missing(self._loader.session(), (plan,)) is not None:
                    return missing_error(plan, self._loader.store.task, f"while chunk {self._chunk.number} was loaded")
            except pymysql.MySQLError as failure:
                return self._loader.coded(failure)
        if kind_of(errno_of(error)) is ErrorKind.STATEMENT:
            return errors.replicate.TARGET_REJECTED(
                target_schema=plan.target_schema,
                target_table=plan.target_table,
                source=plan.source,
                reason=reason_of(error),
                errno=errno_of(error),
            )
        self._loader.close()
        return self._loader.coded(error)

    def _colliding_key(self, sent: Sequence[JoinedLiterals]) -> str:
        """The key of the row that collides. The refused rows are sent one by one; the transaction is rolled back."""
        for row in sent:
            try:
                send(self._session, self._head + row + b")")
            except pymysql.MySQLError as error:
                if errno_of(error) == ER.DUP_ENTRY:
                    return self._key_text(row)
                break
        return "(the row could not be identified)"

    def _key_text(self, row: JoinedLiterals) -> str:
        literals = literals_of(row)
        key = tuple(literals[index] for index in self._plan.key) or literals[:_SHOWN_COLUMNS]
        return ", ".join(value.decode("utf-8", "replace") for value in key)
