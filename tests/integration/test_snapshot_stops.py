"""Tests the end of a snapshot's readers and waits: the unit's stop, another source at this worker, a frozen server."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from shardmerge.proto import errors, relay_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.cancellable_session import ANSWER_SECONDS, cancel_on
from shardmerge.worker.core.mysql.connection import Side, connect, rows
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.serve.locate import GroupEnds
from shardmerge.worker.snapshot.reader.worker_link import GrpcWorkerClient
from shardmerge.worker.unit.contract import Outcome, Stopped
from shardmerge.worker.unit.run_context import RunningSnapshot
from tests.integration.snapshot_rig import RUN_SECRET, SOURCE, TASK, Rig, endpoint, subtask_config
from tests.support.database import Database
from tests.support.pair import started_pair
from tests.support.wait import until


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Database, Database]]:
    with started_pair(tmp_path_factory.mktemp("stops")) as pair:
        yield pair


@pytest.fixture
def source(servers: tuple[Database, Database]) -> Database:
    server = servers[0]
    server.execute(
        "CREATE OR REPLACE DATABASE shard",
        "CREATE TABLE shard.t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO shard.t VALUES (1, 1), (2, 2)",
    )
    return server


@pytest.fixture
def target(servers: tuple[Database, Database]) -> Database:
    server = servers[1]
    server.execute("DROP DATABASE IF EXISTS shard", "DROP DATABASE IF EXISTS dm_meta")
    return server


class _Handing:
    """A dispenser that always returns the same chunk."""

    def take(self, who: relay_pb2.TaskIdentity, os_pid: int) -> relay_pb2.TakeChunkResponse:
        return relay_pb2.TakeChunkResponse(chunk=relay_pb2.ChunkSpec(source_schema="shard", source_table="t"))

    def admit(self, who: relay_pb2.TaskIdentity, chunk: relay_pb2.ChunkSpec, position: SourcePosition) -> None:
        raise AssertionError(who)

    def report(self, report: relay_pb2.ChunkReport) -> bool:
        return False


def _frames(link: GrpcWorkerClient, at: RelayOffset) -> list[str]:
    return [str(frame.WhichOneof("frame")) for frame in link.subscribe(at, at)]


@pytest.mark.parametrize("wrong", ["source", "epoch", "relay", "secret"])
def test_a_late_reader_gets_nothing_of_another_source(
    source: Database, target: Database, tmp_path: Path, wrong: str
) -> None:
    """After a rebind the worker has the relay of another source, and maybe the same task with that source."""
    with Rig(source, target, tmp_path, subtask_config(target)) as rig:
        running = RunningSnapshot(
            TASK, "s9" if wrong == "relay" else SOURCE, 7, _Handing(), lambda _: False, StopSignal(), 1, rig.access()
        )
        rig.service.register_dispenser(running)
        right = relay_pb2.TaskIdentity(task=TASK, source=running.source, epoch=7, index=0, run_secret=RUN_SECRET)
        who = relay_pb2.TaskIdentity()
        who.CopyFrom(right)
        if wrong == "source":
            who.source = "s2"
        if wrong == "secret":
            who.run_secret = RUN_SECRET[:-1]
        if wrong == "epoch":
            who.epoch = 6
        stop = StopSignal()
        at = rig.relay.locate(rig.start, 300, stop)
        link = GrpcWorkerClient(rig.address, who, 1)
        try:
            assert _frames(link, at) == ["closed"]
            with pytest.raises(ShardmergeError) as caught:
                link.locate(rig.start)
            assert caught.value.spec is errors.replicate.FENCED
            if wrong != "relay":
                assert link.take().stop
                assert link.report(relay_pb2.ChunkReport())
        finally:
            link.close()
        if wrong != "relay":
            link = GrpcWorkerClient(rig.address, right, 1)
            try:
                assert _frames(link, at) == ["opened", "closed"]
                assert link.locate(rig.start).offset == at
                assert link.take().HasField("chunk")
                assert not link.report(relay_pb2.ChunkReport())
            finally:
                link.close()


def test_a_stop_ends_a_readers_wait_for_the_relay(source: Database, target: Database, tmp_path: Path) -> None:
    config = subtask_config(target, threads=1, position="watermark")
    with Rig(source, target, tmp_path, config, relay=False) as rig:
        unit, stop, outcome = rig.unit(), StopSignal(), list[Outcome]()
        waits = threading.Event()
        locate = rig.relay.locate

        def waiting(
            position: SourcePosition, seconds: float, ending: StopSignal, *, ends: GroupEnds | None = None
        ) -> RelayOffset:
            waits.set()
            return locate(position, seconds, ending, ends=ends)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rig.relay, "locate", waiting)
            run = threading.Thread(target=lambda: outcome.append(unit.run(stop)), daemon=True)
            run.start()
            assert waits.wait(300)
            stop.set()
            run.join(300)  # half of the reader's own timeout
        assert outcome == [Stopped()]


def test_a_stop_cuts_off_the_wait_for_a_frozen_server(source: Database) -> None:
    stop = StopSignal()
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE)
    failure: list[object] = []

    def ask() -> None:
        try:
            with cancel_on(session, stop):
                failure.append(rows(session, "SELECT SLEEP(3600)"))
        except pymysql.MySQLError as error:
            failure.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    until(lambda: any(thread.state == "User sleep" for thread in source.threads()), "the server is asked")
    source.signal(signal.SIGSTOP)
    try:
        stop.set()
        asking.join(300)
        assert [type(error) for error in failure] == [pymysql.OperationalError]
    finally:
        source.signal(signal.SIGCONT)


def test_a_session_that_is_not_stopped_is_left_alone(source: Database) -> None:
    stop = StopSignal()
    with connect(endpoint(source), Side.SOURCE, name=SOURCE) as session:
        with cancel_on(session, stop):
            assert rows(session, "SELECT 1") == [(1,)]
        stop.set()
        assert rows(session, "SELECT 2") == [(2,)]


@pytest.mark.turns
def test_a_stop_is_obeyed_while_the_source_is_frozen_under_the_planner(
    source: Database, target: Database, tmp_path: Path
) -> None:
    with Rig(source, target, tmp_path, subtask_config(target, threads=1)) as rig:
        unit, stop, outcome = rig.unit(), StopSignal(), list[Outcome]()
        holder = source.connect()
        try:
            with holder.cursor() as cursor:
                cursor.execute("LOCK TABLES shard.t WRITE")
            run = threading.Thread(target=lambda: outcome.append(unit.run(stop)), daemon=True)
            run.start()
            until(lambda: source.waits_for_a_table(), "the planner waits for the table")
            source.signal(signal.SIGSTOP)
            stop.set()
            run.join(ANSWER_SECONDS * 0.9)  # sooner than the timeout of an answer
            assert outcome == [Stopped()]
        finally:
            source.signal(signal.SIGCONT)
            holder.close()


@pytest.mark.parametrize("limit", ["rows_per_second", "bytes_per_second"])
def test_a_limit_delays_chunks_and_is_reported(source: Database, target: Database, tmp_path: Path, limit: str) -> None:
    """With a limit of one row or byte a second, the second chunk would begin after four minutes."""
    source.execute("INSERT INTO shard.t SELECT seq, seq FROM shard.seq_3_to_500", "ANALYZE TABLE shard.t")
    config = subtask_config(target, threads=2, chunk_rows=250, **{limit: 1})
    with Rig(source, target, tmp_path, config) as rig:
        unit, stop, outcome = rig.unit(), StopSignal(), list[Outcome]()
        running = threading.Thread(target=lambda: outcome.append(unit.run(stop)))
        running.start()
        until(lambda: unit.status().finished_chunks, "a chunk is loaded")
        until(lambda: unit.status().total_chunks > 1, "another is planned")
        # A chunk is counted a moment before it is offered to the readers.
        until(lambda: unit.activity().startswith("snapshot." + limit.replace("_", "-")), "it says what holds it back")
        assert unit.status().finished_chunks == 1
        stop.set()
        running.join(300)
        assert outcome == [Stopped()]
