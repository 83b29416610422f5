"""A comparing task's connections: what it reads at the source and at the target, and where it stands meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from proto import errors, hooks
from proto.errors import ShardmergeError
from worker.binlog.decoder import BlockDecoder
from worker.compare.judge import Row
from worker.compare.tables import ComparedTable, Reads
from worker.connection import Endpoint, ServerInfo, Session, Side, coding, connect, execute, server_info
from worker.cutoff import ANSWER_SECONDS, let_go
from worker.plan import TablePlan
from worker.position import RelayOffset, SourcePosition
from worker.rows import Literals
from worker.snapshot.changes import changes_between, only
from worker.snapshot.fixup import key_of
from worker.snapshot.link import GrpcLink, Located
from worker.snapshot.rawquery import RawRow, raw_rows
from worker.snapshot.source import open_source
from worker.snapshot.watermarks import high_watermark, low_watermark

LANES_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_TARGET_SILENCE_SECONDS = 60
_LOCK_WAIT_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Who:
    """``meta_schema``: where the lanes' checkpoints are."""

    task: str
    source: str
    meta_schema: str


class SourceSide:
    """One connection to the source. Methods raise catalogue errors; then :meth:`close` it."""

    def __init__(self, endpoint: Endpoint, source_id: str) -> None:
        self._endpoint, self._source_id = endpoint, source_id
        self._session: Session | None = None
        self._info: ServerInfo | None = None

    def rows(self, statement: bytes) -> Iterator[RawRow]:
        session, _ = self._opened()
        with self._coding():
            for batch in raw_rows(session, statement):
                yield from batch

    def low(self) -> SourcePosition:
        session, info = self._opened()
        with self._coding():
            return low_watermark(session, info, self._source_id)

    def high(self) -> SourcePosition:
        session, info = self._opened()
        with self._coding():
            return high_watermark(session, info)

    def close(self) -> None:
        session, self._session = self._session, None
        let_go(session)

    def _opened(self) -> tuple[Session, ServerInfo]:
        if self._session is None or self._info is None:
            self._session = open_source(self._endpoint, self._source_id)
            with self._coding():
                self._info = server_info(self._session)
        return self._session, self._info

    def _coding(self) -> AbstractContextManager[None]:
        return coding(self._endpoint, Side.SOURCE, self._source_id)


class TargetSide:
    """Two connections to the target: one reads rows as bytes, the other the lanes' records."""

    def __init__(self, endpoint: Endpoint, who: Who) -> None:
        self._endpoint, self._who = endpoint, who
        self._raw: Session | None = None
        self._plain: Session | None = None

    def rows(self, statement: bytes) -> Iterator[RawRow]:
        if self._raw is None:
            self._raw = connect(self._endpoint, Side.TARGET, name="target", raw=True, read_timeout=ANSWER_SECONDS)
        with self.coding():
            for batch in raw_rows(self._raw, statement):
                yield from batch

    def plain(self) -> Session:
        """The connection for records and repairs; the target gives up on it soon when it falls silent."""
        if self._plain is None:
            self._plain = connect(self._endpoint, Side.TARGET, name="target", read_timeout=ANSWER_SECONDS)
            with self.coding():
                execute(
                    self._plain,
                    f"SET SESSION wait_timeout = {_TARGET_SILENCE_SECONDS}, "
                    f"innodb_lock_wait_timeout = {_LOCK_WAIT_SECONDS}",
                )
        return self._plain

    def close(self) -> None:
        raw, plain = self._raw, self._plain
        self._raw = self._plain = None
        let_go(raw)
        let_go(plain)

    def coding(self) -> AbstractContextManager[None]:
        return coding(self._endpoint, Side.TARGET, "target")


class Places:
    """The worker's relay log, asked through its services: where positions lie, and which keys events touch.

    ``lanes``: how far every lane has committed (None: unknown); raises when the comparison is to end.
    """

    def __init__(self, link: GrpcLink, who: Who, lanes: Callable[[], Located | None]) -> None:
        self._link, self._who, self._lanes = link, who, lanes

    def locate(self, position: SourcePosition) -> Located:
        return self._link.locate(position)

    def await_lanes(self, place: Located, position: SourcePosition) -> None:
        """Until every lane has committed what lies before ``place``. Raises LANES_BEHIND, RELAY_CHANGED."""
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
                    task=self._who.task, source=self._who.source, position=position, seconds=int(LANES_SECONDS)
                )
            hooks.reach("compare.lanes_behind")
            time.sleep(_LOOK_SECONDS)

    def touched(self, plan: TablePlan, start: RelayOffset, end: Located) -> set[Literals]:
        """The target's keys that events of the shard table name, from ``start`` up to ``end``."""
        if end.offset <= start:
            return set()
        decoder = BlockDecoder(only(plan), source=plan.source)
        changes = changes_between(self._link, decoder, start, end, changed=self.changed, ended=self._ended)
        return {key_of(plan, image) for change in changes for image in (change.before, change.after) if image}

    def changed(self) -> ShardmergeError:
        return errors.compare.RELAY_CHANGED(task=self._who.task, source=self._who.source)

    def _ended(self) -> ShardmergeError:
        return errors.compare.STREAM_ENDED(task=self._who.task, source=self._who.source)


def read_rows(
    rows: Iterable[RawRow], table: ComparedTable, reads: Reads, *, at_source: bool
) -> dict[Literals, list[Row]]:
    """The rows of Reads.source_rows or target_rows, by the target's key."""
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
