"""Tests interrupted snapshots on real servers: restarts, kills, zombies, lost connections."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardmerge.proto import errors, relay_pb2
from shardmerge.proto import failpoints as product_hooks
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.task_runner import TaskBody, TaskFailed, TaskOutcome
from shardmerge.worker.snapshot import chunk_planner
from shardmerge.worker.snapshot.reader.chunk_reader import ReaderSpec, read_chunks
from shardmerge.worker.snapshot.reader.worker_link import GrpcWorkerClient, Located
from shardmerge.worker.unit.contract import Failed, Finished, Stopped
from tests.integration.snapshot_rig import META, SOURCE, TASK, Rig, count_rows, held_at
from tests.integration.snapshot_tables import assert_merged, loaded_chunks, merging, prepared, servers, source, target
from tests.support.database import Database
from tests.support.hooks import Hooks
from tests.support.task_runners import Threads
from tests.support.wait import until

__all__ = ["servers", "source", "target"]


class _OneChunk:
    """A link that dispenses a chunk which is loaded already; nothing was written since. ``on_report``: called with each
    report."""

    def __init__(self, on_report: Callable[[relay_pb2.ChunkReport], None] = lambda _: None) -> None:
        self._on_report = on_report
        self.left = [relay_pb2.ChunkSpec(source_schema="shard_1", source_table="t_1", number=0, upper=[b"101"])]
        self.reports: list[relay_pb2.ChunkReport] = []

    def take(self) -> relay_pb2.TakeChunkResponse:
        if self.left:
            return relay_pb2.TakeChunkResponse(chunk=self.left.pop())
        return relay_pb2.TakeChunkResponse(finished=True)

    def report(self, report: relay_pb2.ChunkReport) -> bool:
        self.reports.append(report)
        self._on_report(report)
        return False

    def locate(self, position: SourcePosition) -> Located:
        return Located("relay", RelayOffset(1, position.pos))

    def admit(self, chunk: relay_pb2.ChunkSpec, position: SourcePosition) -> Located | None:
        return self.locate(position)

    def subscribe(self, start: RelayOffset, until: RelayOffset) -> Iterator[relay_pb2.RelayFrame]:
        raise AssertionError(start, until)

    def evaluate(self, request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateResponse:
        raise AssertionError(request)

    def close(self) -> None:
        pass


@contextmanager
def _locked(source: Database, table: str) -> Generator[Callable[[], None]]:
    """Another session holds ``table`` until the yielded function is called."""
    holder = source.connect()
    try:
        with holder.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {table} WRITE")

        def release() -> None:
            with holder.cursor() as cursor:
                cursor.execute("UNLOCK TABLES")

        yield release
    finally:
        holder.close()


def test_a_restart_loads_only_the_chunks_that_are_left(source: Database, target: Database, tmp_path: Path) -> None:
    shards = prepared(source)
    hooks = Hooks(tmp_path / "hooks")
    with Rig(source, target, tmp_path, merging(target, threads=2, chunk_rows=100)) as rig:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
            patch.setattr("shardmerge.proto.failpoints.hit", _held_from(hooks, "snapshot.before_commit", 7))
            stop = StopSignal()
            outcome: list[object] = []
            unit = rig.unit()
            run = threading.Thread(target=lambda: outcome.append(unit.run(stop)))
            run.start()
            hooks.reached("snapshot.before_commit")
            until(lambda: unit.status().finished_chunks >= 5, "five chunks are loaded")
            stop.set()
            hooks.release_all()
            run.join(300)
        assert outcome == [Stopped()]
        before = loaded_chunks(target)
        assert 5 <= len(before) < 60
        rows_before = count_rows(target, "merged.t")
        again = rig.unit()
        assert again.run(StopSignal()) == Finished()
        after = loaded_chunks(target)
        assert {key: after[key] for key in before} == before, "what was loaded was not loaded again"
        assert again.status().finished_chunks == len(after) == again.status().total_chunks
        assert rows_before < count_rows(target, "merged.t") == 6000
        # A restart right after the end has no work to do.
        assert rig.unit(_NoSpark()).run(StopSignal()) == Finished()
    assert_merged(source, target, shards)


def _held_from(hooks: Hooks, moment: str, number: int) -> Callable[[str], None]:
    """Return a shardmerge.proto.failpoints.hit that holds ``moment`` from its ``number``-th occurrence on: a test that
    counts from outside might be too late."""
    reach, arrivals = product_hooks.hit, itertools.count(1)

    def counting(at: str) -> None:
        if at == moment and next(arrivals) == number:
            hooks.hold(moment)
        reach(at)

    return counting


class _Moments:
    """The target's rows and chunk records of one moment, which take the place of later ones: to the task that is what a
    fail-over does to a replica that lagged."""

    _TABLES = (("merged.t", "kept.t"), (f"{META}.snapshot_chunk", "kept.chunks"))

    def __init__(self, target: Database) -> None:
        self._target = target
        target.execute("CREATE DATABASE kept")

    def keep(self) -> None:
        self._target.execute(*(f"CREATE TABLE {kept} LIKE {table}" for table, kept in self._TABLES))
        self._alone(*(f"INSERT INTO {kept} SELECT * FROM {table}" for table, kept in self._TABLES))

    def go_back(self) -> None:
        self._alone(
            *(
                text
                for table, kept in self._TABLES
                for text in (f"DELETE FROM {table}", f"INSERT INTO {table} SELECT * FROM {kept}")
            )
        )

    def _alone(self, *statements: str) -> None:
        """In one transaction, between those of the readers: each locks the record of its chunk first."""
        session = self._target.connect()
        with session, session.cursor() as cursor:
            cursor.execute("START TRANSACTION")
            cursor.execute(f"SELECT COUNT(*) FROM (SELECT number FROM {META}.snapshot_chunk FOR UPDATE) c")
            for statement in statements:
                cursor.execute(statement)
            cursor.execute("COMMIT")


@pytest.mark.parametrize("kept_at", [2, 5])
def test_a_target_that_lost_transactions_gets_every_chunk(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_at: int
) -> None:
    """Records of planned and loaded chunks are lost with their rows while further chunks are planned."""
    shards = prepared(source)
    monkeypatch.setattr(chunk_planner, "_BATCH_CHUNKS", 4)
    moments, arrivals, reach = _Moments(target), itertools.count(1), product_hooks.hit

    def hit(at: str) -> None:
        if at == "snapshot.planned":
            number = next(arrivals)
            if number == kept_at:
                moments.keep()
            elif number == kept_at + 3:
                until(lambda: len(loaded_chunks(target)) >= 4 * kept_at + 2, "chunks that will be lost are loaded")
                moments.go_back()
        reach(at)

    with Rig(source, target, tmp_path, merging(target, threads=2, chunk_rows=20)) as rig:
        with monkeypatch.context() as patch:
            patch.setattr("shardmerge.proto.failpoints.hit", hit)
            outcome = rig.unit().run(StopSignal())
        assert isinstance(outcome, Failed)
        assert outcome.error.spec in (errors.replicate.FENCED, errors.snapshot.CHUNK_FORGOTTEN), outcome
        assert count_rows(target, "merged.t") < 6000
        assert rig.unit().run(StopSignal()) == Finished()
    assert_merged(source, target, shards)


def test_a_copy_does_not_continue_around_a_chunk_without_a_record(
    source: Database, target: Database, tmp_path: Path
) -> None:
    prepared(source)
    with Rig(source, target, tmp_path, merging(target, threads=2, chunk_rows=100)) as rig:
        assert rig.unit().run(StopSignal()) == Finished()
        target.execute(f"DELETE FROM {META}.snapshot_chunk WHERE shard = 1 AND number = 3")
        outcome = rig.unit().run(StopSignal())
        assert isinstance(outcome, Failed)
        assert outcome.error.spec is errors.replicate.RECORDS_LOST
        assert "that of chunk 3 of `shard_1`.`t_2`" in outcome.error.message


class _NoSpark(Threads):
    def run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
        raise AssertionError("there is nothing left to read")


def _read_in_process(spec: ReaderSpec, hooks: str) -> None:
    os.environ["SHARDMERGE_HOOKS"] = hooks
    who = relay_pb2.TaskIdentity(task=TASK, source=SOURCE, epoch=spec.epoch, index=0, run_secret=spec.secret)
    read_chunks(spec, GrpcWorkerClient(spec.address, who, os.getpid()))


class _Elsewhere(Threads):
    """Runs reader 0 in a process that is killed while it is held before its first commit; then reports its loss."""

    def __init__(self, rig: Rig, hooks: Hooks, moment: str) -> None:
        super().__init__()
        self._rig, self._hooks, self._moment = rig, hooks, moment

    def run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
        self._hooks.hold(self._moment)
        spec = self._rig.spec()
        child = multiprocessing.get_context("spawn").Process(
            target=_read_in_process, args=(spec, str(self._hooks.directory))
        )
        child.start()
        [pid] = self._hooks.reached(self._moment)
        assert pid == child.pid
        os.kill(pid, signal.SIGKILL)
        child.join()
        self._hooks.release_all()
        lost = errors.worker.SPARK_TASK_LOST(job=name, reason="killed")
        return [TaskFailed(lost)] * count


@pytest.mark.parametrize("moment", ["snapshot.before_commit", "snapshot.after_commit"])
def test_a_reader_that_is_killed_leaves_no_half_chunk(
    source: Database, target: Database, tmp_path: Path, moment: str
) -> None:
    shards = prepared(source, 1000)
    hooks = Hooks(tmp_path / "hooks")
    with Rig(source, target, tmp_path, merging(target, threads=1, chunk_rows=100)) as rig:
        unit = rig.unit(_Elsewhere(rig, hooks, moment))
        outcome = unit.run(StopSignal())
        assert isinstance(outcome, Failed)
        assert outcome.error.spec is errors.worker.SPARK_TASK_LOST
        loaded = len(loaded_chunks(target))
        assert loaded == (1 if moment.endswith("after_commit") else 0)
        assert rig.run() == Finished()
    assert_merged(source, target, shards)


def test_a_zombie_of_an_older_epoch_commits_nothing(source: Database, target: Database, tmp_path: Path) -> None:
    shards = prepared(source, 1000)
    hooks = Hooks(tmp_path / "hooks")
    with Rig(source, target, tmp_path, merging(target, threads=1, chunk_rows=100)) as rig:
        with held_at("snapshot.before_commit", rig, hooks) as outcome:
            rig.take_over()
        [ended] = outcome
        assert isinstance(ended, Failed)
        assert ended.error.spec is errors.replicate.FENCED
        assert loaded_chunks(target) == {}
        assert count_rows(target, "merged.t") == 0
        assert rig.run() == Finished()
    assert_merged(source, target, shards)


def test_a_second_attempt_at_a_committed_chunk_loads_nothing(
    source: Database, target: Database, tmp_path: Path
) -> None:
    prepared(source, 300)
    with Rig(source, target, tmp_path, merging(target, threads=1, chunk_rows=100)) as rig:
        assert rig.run() == Finished()

        link = _OneChunk()
        read_chunks(rig.spec(), link)
        [report] = link.reports
        assert report.HasField("high")
        assert report.rows == 100
        assert count_rows(target, "merged.t") == 600


@pytest.mark.turns
def test_a_table_that_another_session_holds_is_named(source: Database, target: Database, tmp_path: Path) -> None:
    """20105. For half a minute no status named a reason, and then the copy began again."""
    shards = prepared(source, 300)
    conflict = errors.relay.SOURCE_CONFLICT.code
    with Rig(source, target, tmp_path, merging(target, threads=1, chunk_rows=100)) as rig:
        unit, outcome = rig.unit(), list[object]()
        with _locked(source, "shard_1.t_1") as release:
            run = threading.Thread(target=lambda: outcome.append(unit.run(StopSignal())))
            run.start()
            until(lambda: unit.status().retried.code == conflict, "the planner's error is shown")
            assert unit.activity().startswith(f"the copy of the history is retried after: [{conflict} ")
            release()
            run.join(300)
        assert outcome == [Finished()]
        assert not unit.status().HasField("retried")
        # As before the first chunk was loaded.
        target.execute(
            "DELETE FROM merged.t ORDER BY id LIMIT 100",
            f"UPDATE {META}.snapshot_chunk SET state = 0 WHERE number = 0 ORDER BY shard LIMIT 1",
        )
        with _locked(source, "shard_1.t_1") as release:
            link = _OneChunk(lambda report: release() if report.HasField("retried") else None)
            read_chunks(rig.spec(), link)
        retried, *_, last = link.reports
        assert retried.retried.code == conflict
        assert (last.rows, last.HasField("high")) == (100, True)
    assert_merged(source, target, shards)


def test_a_stop_is_obeyed_while_another_session_holds_the_table(
    source: Database, target: Database, tmp_path: Path
) -> None:
    shards = prepared(source, 300)
    with Rig(source, target, tmp_path, merging(target, threads=1, chunk_rows=100)) as rig:
        unit, stop, outcome = rig.unit(), StopSignal(), list[object]()
        with _locked(source, "shard_1.t_1"):
            run = threading.Thread(target=lambda: outcome.append(unit.run(stop)))
            run.start()
            until(lambda: source.waits_for_a_table(), "the planner waits for the table")
            stop.set()
            run.join(300)
            assert outcome == [Stopped()]
        assert rig.run() == Finished()
    assert_merged(source, target, shards)


def test_lost_connections_are_made_anew(source: Database, target: Database, tmp_path: Path) -> None:
    shards = prepared(source, 1500)
    hooks = Hooks(tmp_path / "hooks")
    with Rig(source, target, tmp_path, merging(target, threads=1, chunk_rows=100)) as rig:
        with held_at("snapshot.before_commit", rig, hooks) as outcome:
            target.kill_threads("root", "Sleep")
        assert outcome == [Finished()]
    assert_merged(source, target, shards)
