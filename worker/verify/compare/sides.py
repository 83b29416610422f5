"""A comparing task's connections to the source, to the target and to the worker's relay log."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from shardmerge.proto import errors, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.core.mysql.cancellable_session import ANSWER_SECONDS, close_quietly
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, coded_errors, connect, execute
from shardmerge.worker.core.mysql.consistent_read import consistent_read
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.row_change import Literals, RowChange
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.snapshot.reader.fixup import key_of
from shardmerge.worker.snapshot.reader.relay_changes import changes_between, only_table
from shardmerge.worker.snapshot.reader.worker_link import GrpcWorkerClient, Located
from shardmerge.worker.snapshot.source.chunk_source import SourceConnection
from shardmerge.worker.snapshot.source.raw_query import RawRow, raw_rows
from shardmerge.worker.snapshot.source.watermarks import high_watermark, low_watermark
from shardmerge.worker.target.records.checkpoint import Checkpoint, read_all
from shardmerge.worker.verify.compare.compared_tables import ComparedTable, TableQueries
from shardmerge.worker.verify.compare.judge import Row

LANES_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_NO_TABLE = "no_table"
_OPENINGS = 20
_TARGET_SILENCE_SECONDS = 60
_LOCK_WAIT_SECONDS = 20


class SourceSide(SourceConnection):
    """One connection to the source."""

    def __init__(self, endpoint: Endpoint, source_id: str) -> None:
        super().__init__(endpoint, source_id)
        self._in_snapshot = False

    def rows(self, *statements: bytes) -> Iterator[RawRow]:
        """The rows of all statements, one after the other."""
        for statement in statements:
            session, _ = self.opened()
            with self._coded_errors():
                for batch in raw_rows(session, statement):
                    yield from batch

    def low(self) -> SourcePosition:
        session, info = self.opened()
        with self._coded_errors():
            return low_watermark(session, info, self._source_id)

    def high(self) -> SourcePosition:
        session, info = self.opened()
        with self._coded_errors():
            return high_watermark(session, info)

    @contextmanager
    def snapshot(
        self, is_unchanged: Callable[[SourcePosition, SourcePosition], bool]
    ) -> Generator[SourcePosition | None]:
        """A consistent snapshot, and a position at which the tables are as it sees them; None: they change too often to
        find one. ``is_unchanged``: whether they do not change between two positions. After an error close this side."""
        session, info = self.opened()
        position: SourcePosition | None = None
        for _ in range(_OPENINGS):
            low = self.low()
            with self._coded_errors():
                execute(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
                high = high_watermark(session, info)
            if is_unchanged(low, high):
                position = high
                break
            # In a snapshot MariaDB reports the snapshot's position as the lower one.
            self._run("COMMIT")
        if position is not None:
            self._run(f"SAVEPOINT {_NO_TABLE}")
        self._in_snapshot = position is not None
        yield position
        self._in_snapshot = False
        self._run("COMMIT")

    def release_table(self) -> None:
        """Let statements that change the structure of a table proceed, which has been read in :meth:`snapshot`."""
        if self._in_snapshot:
            self._run(f"ROLLBACK TO SAVEPOINT {_NO_TABLE}")

    def _run(self, statement: str) -> None:
        session, _ = self.opened()
        with self._coded_errors():
            execute(session, statement)

    def close(self) -> None:
        self._in_snapshot = False
        super().close()


class TargetSide:
    """Two connections to the target: one reads rows as bytes, the other reads records and writes repairs."""

    def __init__(self, endpoint: Endpoint, subtask: SubtaskKey) -> None:
        self._endpoint, self._subtask = endpoint, subtask
        self.meta_schema = subtask.schema
        self._raw: Session | None = None
        self._plain: Session | None = None

    def rows(self, *statements: bytes) -> Iterator[RawRow]:
        """The rows of all statements, one after the other."""
        for statement in statements:
            session = self._opened()
            with self.coded_errors():
                for batch in raw_rows(session, statement):
                    yield from batch

    @contextmanager
    def snapshot(self) -> Generator[tuple[Checkpoint, ...]]:
        """The lanes' checkpoints; within the block :meth:`rows` sees exactly what they have committed. After an error
        close this side."""
        session, subtask = self._opened(), self._subtask
        with self.coded_errors(), consistent_read(session):
            yield read_all(session, subtask)

    def _opened(self) -> Session:
        if self._raw is None:
            self._raw = connect(self._endpoint, Side.TARGET, name="target", raw=True, read_timeout=ANSWER_SECONDS)
        return self._raw

    def plain(self) -> Session:
        """The connection for records and repairs; the target closes it soon when it is idle."""
        if self._plain is None:
            self._plain = connect(self._endpoint, Side.TARGET, name="target", read_timeout=ANSWER_SECONDS)
            with self.coded_errors():
                execute(
                    self._plain,
                    f"SET SESSION wait_timeout = {_TARGET_SILENCE_SECONDS}, "
                    f"innodb_lock_wait_timeout = {_LOCK_WAIT_SECONDS}",
                )
        return self._plain

    def close(self) -> None:
        raw, self._raw = self._raw, None
        close_quietly(raw)
        self.close_plain()

    def close_plain(self) -> None:
        plain, self._plain = self._plain, None
        close_quietly(plain)

    def coded_errors(self) -> AbstractContextManager[None]:
        return coded_errors(self._endpoint, Side.TARGET, "target")


class RelayPlaces:
    """Locates positions in the worker's relay log and finds the keys that events touch, through its services.

    ``lanes``: how far every lane has committed (None: unknown); raises when the comparison has to end.
    """

    def __init__(self, link: GrpcWorkerClient, subtask: SubtaskKey, lanes: Callable[[], Located | None]) -> None:
        self._link, self._subtask, self._lanes = link, subtask, lanes

    def locate(self, position: SourcePosition) -> Located:
        return self._link.locate(position)

    def of_lane(self, lane: Checkpoint, relay_id: str) -> RelayOffset:
        """Where the lane is in the relay log ``relay_id``. One that has committed nothing since the log was replaced
        has recorded its place in the former log. Raises RELAY_CHANGED and what :meth:`locate` raises."""
        if lane.relay_id == relay_id:
            return lane.offset
        if lane.skip_events:  # inside a group; its next commit has a place in this log
            raise self.changed()
        found = self.locate(lane.position)
        if found.relay_id != relay_id:
            raise self.changed()
        return found.offset

    def await_lanes(self, place: Located, position: SourcePosition) -> None:
        """Wait until every lane has committed everything before ``place``. Raises LANES_BEHIND, RELAY_CHANGED."""
        deadline = time.monotonic() + LANES_SECONDS
        while True:
            now = self._lanes()
            if now is not None:
                if now.relay_id != place.relay_id:
                    raise self.changed()
                if now.offset >= place.offset:
                    return
            if time.monotonic() > deadline:
                raise errors.compare.LANES_BEHIND(
                    task=self._subtask.task, source=self._subtask.source, position=position, seconds=int(LANES_SECONDS)
                )
            failpoints.hit("compare.lanes_behind")
            time.sleep(_LOOK_SECONDS)

    def touched(self, plan: TablePlan, start: RelayOffset, end: Located) -> set[Literals]:
        """The target's keys that events of the shard table name, from ``start`` up to ``end``."""
        if end.offset <= start:
            return set()
        decoder = BlockDecoder(only_table(plan), source=plan.source)
        changes = changes_between(self._link, decoder, start, end, changed=self.changed, ended=self._ended)
        return {key_of(plan, image) for change in changes for image in (change.before, change.after) if image}

    def is_any_touched(self, plans: Sequence[TablePlan], start: RelayOffset, end: Located) -> bool:
        """Whether an event changes a row of one of the shard tables, from ``start`` up to ``end``."""
        # To its end: the caller's next call needs the stream to be over.
        return sum(1 for _ in self.changes(plans, start, end)) > 0

    def changes(self, plans: Sequence[TablePlan], start: RelayOffset, end: Located) -> Iterator[RowChange]:
        """The changes of the shard tables' rows, from ``start`` up to ``end``; read it to its end."""
        if end.offset <= start:
            return
        by_name = {(plan.table.schema, plan.table.name): plan for plan in plans}
        decoder = BlockDecoder(lambda schema, name: by_name.get((schema, name)), source=plans[0].source)
        yield from changes_between(self._link, decoder, start, end, changed=self.changed, ended=self._ended)

    def changed(self) -> ShardmergeError:
        return errors.compare.RELAY_CHANGED(task=self._subtask.task, source=self._subtask.source)

    def _ended(self) -> ShardmergeError:
        return errors.compare.STREAM_ENDED(task=self._subtask.task, source=self._subtask.source)


def read_rows(
    rows: Iterable[RawRow], table: ComparedTable, reads: TableQueries, *, at_source: bool
) -> dict[Literals, list[Row]]:
    """The rows of TableQueries.source_rows or target_rows, by the target's key."""
    found: dict[Literals, list[Row]] = {}
    width, count = reads.keys.width, len(table.columns)
    for raw in rows:
        key = reads.keys.at_source(raw[:width]) if at_source else reads.keys.at_target(raw[:width])
        values = tuple(raw[width : width + count])
        rest = iter(raw[width + count :])
        shown = tuple(
            next(rest) if column.is_long or column.is_binary else value
            for column, value in zip(table.columns, values, strict=True)
        )
        found.setdefault(key.target, []).append(Row(values, shown))
    return found
