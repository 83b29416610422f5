"""Computes a snapshot's progress, per table and in total. Thread-safe.

Only committed chunks count as finished. The shares depend only on those, on the plan and on the estimates of the
subtask's first start. The meta schema holds all of them, so a restart shows the same progress as before, and no share
ever decreases, however wrong an estimate turns out to be. What readers are reading now is reported separately.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.snapshot.chunk_records import StoredChunk

_MOST_WHILE_PLANNING = 0.99
_MOST_WHILE_LOADING = 0.9999
"""The highest share that is shown while a table is not completely planned or loaded, if its estimate was too low."""

_RATE_SECONDS = 30.0
"""The rate is measured over this many seconds."""


@dataclass(slots=True)
class _TableCount:
    plan: TablePlan
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    chunks: int = 0
    planned: int = 0
    plan_complete: bool = False

    @property
    def weight(self) -> int:
        """The table's weight in the total; it never changes."""
        return max(1, self.plan.table.row_estimate)

    def share(self) -> float:
        """The loaded share; 1.0 only when everything is loaded. It never falls when a chunk is planned or loaded."""
        if self.plan_complete and self.chunks == self.planned:
            return 1.0
        by_rows = min(self.rows / self.weight, _MOST_WHILE_PLANNING)
        # The number of chunks is known once all are planned; before that, each planned chunk would lower the share.
        by_chunks = min(self.chunks / self.planned, _MOST_WHILE_LOADING) if self.plan_complete else 0.0
        return max(by_rows, by_chunks)

    def left_rows(self) -> float:
        """An estimate of the rows that are not loaded. Once all chunks are planned it follows their number, because
        the server's estimate of a table's rows is often wrong by a third."""
        if self.plan_complete:
            return (self.planned - self.chunks) * (
                self.rows / self.chunks if self.chunks else self.weight / self.planned
            )
        return max(self.total_rows() - self.rows, 0)

    def total_rows(self) -> int:
        """An estimate until the table is loaded, then the exact number. It agrees with the share."""
        share = self.share()
        return round(self.rows / share) if self.rows and share else self.plan.table.row_estimate


class SnapshotProgress:
    """Counts of one run; they start with what earlier runs have loaded. ``clock``: seconds, monotonic."""

    def __init__(
        self,
        plans: Iterable[TablePlan],
        stored: Iterable[StoredChunk] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._tables = {plan.shard: _TableCount(plan) for plan in plans}
        self._under_way: dict[int, tuple[int, int, int]] = {}
        self._samples: deque[tuple[float, int]] = deque()
        self._loaded_at: float | None = None
        for item in stored:
            self._plan(item.shard, 1, complete=item.chunk.is_last)
            if item.loaded is not None:
                self._load(item.shard, item.loaded.rows, item.loaded.bytes, item.loaded.seconds)
        self._sample()

    def _plan(self, shard: int, count: int, *, complete: bool) -> None:
        table = self._tables[shard]
        table.planned += count
        table.plan_complete = table.plan_complete or complete

    def _load(self, shard: int, rows: int, size: int, seconds: float) -> None:
        table = self._tables[shard]
        table.rows += rows
        table.bytes += size
        table.seconds += seconds
        table.chunks += 1

    def planned(self, shard: int, count: int, *, complete: bool) -> None:
        """Count ``count`` more planned chunks of a table; ``complete``: the last one is among them."""
        with self._lock:
            self._plan(shard, count, complete=complete)

    def reading(self, reader: int, shard: int, rows: int, size: int) -> None:
        """Record how many rows and bytes of its current chunk a reader has read."""
        with self._lock:
            self._under_way[reader] = (shard, rows, size)

    def idle(self, reader: int) -> None:
        """Discard what a reader was reading: it begins again."""
        with self._lock:
            self._under_way.pop(reader, None)

    def loaded(self, reader: int, shard: int, rows: int, size: int, seconds: float) -> None:
        """Count a chunk that a reader has committed after ``seconds`` of work."""
        with self._lock:
            self._under_way.pop(reader, None)
            self._load(shard, rows, size, seconds)
            self._loaded_at = self._clock()
            self._sample()

    def seconds_since_chunk(self) -> float | None:
        """Since a chunk was committed last; None: not in this run."""
        with self._lock:
            return None if self._loaded_at is None else self._clock() - self._loaded_at

    def are_loaded(self, shards: Iterable[int]) -> bool:
        """Whether all chunks of these tables are loaded."""
        with self._lock:
            tables = [self._tables[shard] for shard in shards if shard in self._tables]
            return all(table.plan_complete and table.chunks == table.planned for table in tables)

    def _sample(self) -> None:
        now = self._clock()
        self._samples.append((now, sum(table.rows for table in self._tables.values())))
        while len(self._samples) > 2 and self._samples[1][0] < now - _RATE_SECONDS:
            self._samples.popleft()

    def status(self) -> pb.LoadStatus:
        """The progress of all tables now."""
        with self._lock:
            return self._status()

    def _status(self) -> pb.LoadStatus:
        status = pb.LoadStatus(plan_complete=all(table.plan_complete for table in self._tables.values()))
        share = left_rows = 0.0
        for table in self._tables.values():
            rows, size, total = table.rows, table.bytes, table.total_rows()
            share += table.share() * table.weight
            left_rows += table.left_rows()
            status.tables.append(
                pb.TableProgress(
                    source_table=table.plan.table.full_name,
                    target_table=table.plan.target_name,
                    finished_rows=rows,
                    total_rows=total,
                    finished_chunks=table.chunks,
                    total_chunks=table.planned,
                    finished_bytes=size,
                    seconds=table.seconds,
                )
            )
            status.finished_rows += rows
            status.total_rows += total
            status.finished_bytes += size
            # Bytes are those of the statements sent; the remaining rows are assumed to be as wide.
            status.total_bytes += size * total // rows if rows else table.plan.table.byte_estimate
            status.finished_chunks += table.chunks
            status.total_chunks += table.planned
        done = status.plan_complete and status.finished_chunks == status.total_chunks
        share = 1.0 if done else min(share / sum(table.weight for table in self._tables.values()), _MOST_WHILE_LOADING)
        status.progress = f"{share * 100:.2f} %"
        status.reading_rows = sum(rows for _, rows, _ in self._under_way.values())
        status.rows_per_second = self._rate(status.finished_rows + status.reading_rows)
        if not done and status.rows_per_second > 0:
            status.eta_seconds = int(left_rows / status.rows_per_second) + 1
        return status

    def _rate(self, rows: int) -> float:
        since, before = self._samples[0]
        elapsed = self._clock() - since
        return max(0.0, (rows - before) / elapsed) if elapsed > 0 else 0.0
