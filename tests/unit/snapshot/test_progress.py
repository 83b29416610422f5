"""Progress: honest numbers, also after a restart."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.snapshot.shards import PLAN, TABLE
from worker.position import SourcePosition
from worker.snapshot.chunks import Chunk
from worker.snapshot.progress import Progress
from worker.snapshot.records import Loaded, Mark, StoredChunk

_PLAN = replace(PLAN, table=replace(TABLE, row_estimate=1000, byte_estimate=50_000))
_MARK = Mark(SourcePosition("f.1", 4))


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_fresh_snapshot_knows_the_servers_estimate() -> None:
    status = Progress([_PLAN]).status()
    assert (status.total_rows, status.total_bytes, status.progress) == (1000, 50_000, "0.00 %")
    assert not status.plan_complete


def test_rate_and_eta_follow_what_was_loaded() -> None:
    clock = _Clock()
    progress = Progress([_PLAN], (), clock)
    progress.planned(0, 4, complete=False)
    clock.now += 5
    progress.loaded(0, 0, 250, 2500, 1.0)
    status = progress.status()
    assert (status.finished_rows, status.finished_chunks, status.total_chunks) == (250, 1, 4)
    assert (status.rows_per_second, status.eta_seconds, status.progress) == (50.0, 16, "25.00 %")
    assert (status.finished_bytes, status.total_bytes) == (2500, 10_000)


def test_a_restart_goes_on_where_it_was() -> None:
    stored = [
        StoredChunk(0, Chunk(0, (), (b"5",)), Loaded(400, 4000, 1.0, _MARK)),
        StoredChunk(0, Chunk(1, (b"5",), ()), None),
    ]
    clock = _Clock()
    progress = Progress([_PLAN], stored, clock)
    before = progress.status()
    assert (before.finished_rows, before.finished_chunks, before.total_chunks) == (400, 1, 2)
    assert before.plan_complete
    assert before.rows_per_second == 0, "what an earlier run loaded is no speed of this one"
    clock.now += 10
    progress.loaded(1, 0, 100, 1000, 1.0)
    done = progress.status()
    assert (done.finished_rows, done.total_rows, done.progress, done.eta_seconds) == (500, 500, "100.00 %", 0)


def test_an_estimate_that_was_too_low_never_shows_more_than_everything() -> None:
    progress = Progress([_PLAN])
    progress.planned(0, 2, complete=True)
    progress.loaded(0, 0, 5000, 10, 1.0)
    status = progress.status()
    assert status.finished_rows <= status.total_rows
    assert status.progress != "100.00 %"
