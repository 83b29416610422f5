"""Progress is exact for committed rows and never decreases, also after a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.snapshot.chunk_records import ChunkResult, HighWatermark, StoredChunk
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.progress import SnapshotProgress
from tests.unit.worker.snapshot.shards import PLAN, TABLE

_PLAN = replace(PLAN, table=replace(TABLE, row_estimate=1000, byte_estimate=50_000))
_MARK = HighWatermark(SourcePosition("f.1", 4))


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_fresh_snapshot_knows_the_servers_estimate() -> None:
    status = SnapshotProgress([_PLAN]).status()
    assert (status.total_rows, status.total_bytes, status.progress) == (1000, 50_000, "0.00 %")
    assert not status.plan_complete


def test_rate_and_eta_follow_what_was_loaded() -> None:
    clock = _Clock()
    progress = SnapshotProgress([_PLAN], (), clock)
    progress.planned(0, 4, complete=False)
    clock.now += 5
    progress.loaded(0, 0, 250, 2500, 1.0)
    status = progress.status()
    assert (status.finished_rows, status.finished_chunks, status.total_chunks) == (250, 1, 4)
    assert (status.rows_per_second, status.eta_seconds, status.progress) == (50.0, 16, "25.00 %")
    assert (status.finished_bytes, status.total_bytes) == (2500, 10_000)


@pytest.mark.parametrize("estimate", [600_000, 1_000_000, 1_500_000])
def test_eta_after_a_tenth_of_the_work_is_right_within_a_fifth(estimate: int) -> None:
    """The server's estimate of the rows is wrong; two tables; chunks of different sizes."""
    tables = (replace(TABLE, row_estimate=estimate), replace(TABLE, name="other", row_estimate=estimate // 2))
    clock = _Clock()
    progress = SnapshotProgress(
        [replace(PLAN, shard=shard, table=table) for shard, table in enumerate(tables)], (), clock
    )
    planned = (100, 50)
    for shard, count in enumerate(planned):
        progress.planned(shard, count, complete=True)
    # 10,000 rows in a chunk of either table on average, 1,000 rows/s.
    for number in range(15):
        clock.now += 10
        progress.loaded(0, 0, 8_000 + number % 3 * 2_000, 10, 1.0)
    left_seconds = (sum(planned) - 15) * 10
    assert abs(progress.status().eta_seconds - left_seconds) <= left_seconds / 5


def test_a_restart_continues_where_it_was() -> None:
    stored = [
        StoredChunk(0, Chunk(0, (), (b"5",)), ChunkResult(400, 4000, 1.0, _MARK)),
        StoredChunk(0, Chunk(1, (b"5",), ()), None),
    ]
    clock = _Clock()
    progress = SnapshotProgress([_PLAN], stored, clock)
    before = progress.status()
    assert (before.finished_rows, before.finished_chunks, before.total_chunks) == (400, 1, 2)
    assert before.plan_complete
    assert before.rows_per_second == 0, "what an earlier run loaded is no speed of this one"
    clock.now += 10
    progress.loaded(1, 0, 100, 1000, 1.0)
    done = progress.status()
    assert (done.finished_rows, done.total_rows, done.progress, done.eta_seconds) == (500, 500, "100.00 %", 0)


def test_an_estimate_that_was_too_low_never_shows_more_than_everything() -> None:
    progress = SnapshotProgress([_PLAN])
    progress.planned(0, 2, complete=True)
    progress.loaded(0, 0, 5000, 10, 1.0)
    status = progress.status()
    assert status.finished_rows <= status.total_rows
    assert status.progress != "100.00 %"


def test_what_readers_hold_is_reported_separately() -> None:
    progress = SnapshotProgress([_PLAN])
    progress.planned(0, 2, complete=True)
    progress.loaded(0, 0, 100, 10, 1.0)
    progress.reading(1, 0, 30, 3)
    status = progress.status()
    assert (status.finished_rows, status.reading_rows, status.finished_bytes) == (100, 30, 10)
    progress.idle(1)
    assert progress.status().reading_rows == 0


class _Snapshot:
    """Two tables, one of them badly estimated, as the meta schema and as one run after the other sees them."""

    def __init__(self) -> None:
        tables = (replace(TABLE, row_estimate=100), replace(TABLE, name="other", row_estimate=3))
        self.plans = [replace(PLAN, shard=shard, table=table) for shard, table in enumerate(tables)]
        self.stored: list[StoredChunk] = []
        self.progress = SnapshotProgress(self.plans)

    def plan(self, shard: int, count: int, complete: bool) -> None:
        mine = [item for item in self.stored if item.shard == shard]
        if mine and mine[-1].chunk.is_last:
            return
        for number in range(len(mine), len(mine) + count):
            last = complete and number == len(mine) + count - 1
            self.stored.append(StoredChunk(shard, Chunk(number, (), () if last else (b"1",)), None))
        self.progress.planned(shard, count, complete=complete)

    def load(self, which: int, rows: int) -> None:
        left = [at for at, item in enumerate(self.stored) if item.loaded is None]
        if left:
            at = left[which % len(left)]
            item = self.stored[at]
            self.stored[at] = replace(item, loaded=ChunkResult(rows, rows * 7, 1.0, _MARK))
            self.progress.loaded(which % 3, item.shard, rows, rows * 7, 1.0)

    def read(self, which: int, rows: int) -> None:
        if self.stored:
            self.progress.reading(which % 3, self.stored[which % len(self.stored)].shard, rows, rows * 7)

    def restart(self) -> None:
        self.progress = SnapshotProgress(self.plans, self.stored)

    def shown(self) -> list[float]:
        """The numbers that may only grow."""
        status = self.progress.status()
        assert status.finished_rows <= status.total_rows
        figures = [float(status.progress.split()[0]), status.finished_rows, status.finished_bytes, status.total_chunks]
        for table in status.tables:
            figures += [table.finished_rows, table.finished_chunks]
        return figures

    @property
    def is_done(self) -> bool:
        ended = {item.shard for item in self.stored if item.chunk.is_last}
        return len(ended) == 2 and all(item.loaded is not None for item in self.stored)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("plan"), st.integers(0, 1), st.integers(1, 5), st.booleans()),
        st.tuples(st.just("load"), st.integers(0, 20), st.integers(0, 60)),
        st.tuples(st.just("read"), st.integers(0, 20), st.integers(0, 60)),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


@given(_STEPS)
def test_nothing_ever_runs_backwards(steps: list[tuple[object, ...]]) -> None:
    snapshot = _Snapshot()
    before = snapshot.shown()
    for what, *arguments in steps:
        getattr(snapshot, str(what))(*arguments)
        now = snapshot.shown()
        assert all(new >= old for new, old in zip(now, before, strict=True)), (what, arguments, before, now)
        assert (now[0] == 100.0) == snapshot.is_done
        before = now
