"""Tests that a client without credentials but with access to local files gets no row or password, and ends no run; nor
does one with the secret of a run that has ended, or of another run.

The test has a cluster of its own: its accounts have unique passwords, and all files and answers of its processes are
searched for them.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from shardmerge.proto import (
    common_pb2,
    compare_pb2,
    compare_pb2_grpc,
    relay_pb2,
    relay_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)
from shardmerge.proto.rpc import client
from tests.support.canary import files_of, forms, processes_of
from tests.support.rpcs import OF_RUN, all_rpcs, filled
from tests.support.wait import until
from tests.support.world import Family, World

CANARY = "cAnAry7f3e91b2"
_LANES = 2
_TASK = f"replicate:\n  lanes: {_LANES}\n"
_GUESSES = ("", "secret", "x" * 43)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("stranger"))
    world.start_servers()
    for server in world.servers:
        server.give_account("dm", CANARY, "ALL ON *.*")
    try:
        yield world.start()
    finally:
        world.stop()


@pytest.fixture(scope="module")
def family(world: World) -> Family:
    family = world.family("stranger")
    family.create(200)
    world.cluster.start_task(family.task(extra=_TASK))
    world.cluster.wait_replicating(family.name)
    return family


class Stranger:
    """What a caller without any credential learns about a subtask, and the identities that it can construct from
    that."""

    def __init__(self, world: World, family: Family) -> None:
        source = world.sources[0][0]
        self.worker = world.cluster.worker_of(source)
        self.channel = client.channel(self.worker.address)
        status = worker_pb2_grpc.WorkerStub(self.channel).QueryStatus(worker_pb2.WorkerStatusRequest(task=family.name))
        [subtask] = status.subtasks
        self.source, self.task, self.epoch = source, family.name, subtask.epoch
        self.relay = relay_pb2_grpc.RelayStub(self.channel)
        self.desk = compare_pb2_grpc.CompareDeskStub(self.channel)

    def password(self, secret: str) -> str:
        """Return the password of the target that a lane with this secret gets, "" for none."""
        request = relay_pb2.CredentialsRequest(who=self.who(0, secret))
        return self.relay.Credentials(request, timeout=20).target.password

    def who(self, index: int, secret: str) -> relay_pb2.TaskIdentity:
        return relay_pb2.TaskIdentity(
            task=self.task, source=self.source, epoch=self.epoch, index=index, run_secret=secret
        )


@pytest.fixture
def stranger(world: World, family: Family) -> Iterator[Stranger]:
    made = Stranger(world, family)
    try:
        yield made
    finally:
        made.channel.close()


def _from_the_start(who: relay_pb2.TaskIdentity) -> relay_pb2.SubscribeRequest:
    request = relay_pb2.SubscribeRequest(who=who, barriers=True)
    getattr(request, "from").CopyFrom(common_pb2.RelayOffset(segment=1, byte=4))
    return request


def _subscribe(stranger: Stranger, who: relay_pb2.TaskIdentity) -> list[relay_pb2.RelayFrame]:
    return list(stranger.relay.Subscribe(_from_the_start(who), timeout=20))


def _is_alive(world: World, family: Family, stranger: Stranger) -> None:
    """Check that the same run continues, and applies new changes."""
    subtasks = world.cluster.subtasks(family.name)
    assert all(sub.stage == "Running" and not sub.errors for sub in subtasks.values()), subtasks
    again = Stranger(world, family)
    again.channel.close()
    assert again.epoch == stranger.epoch, "the run was ended, and another one began"
    with family.shard_tables()[0].connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"UPDATE {family.shard_tables()[0].name} SET amount = amount + 1")
        connection.commit()
    until(lambda: not family.verdict().differences, "the change arrives")


@pytest.mark.turns
@pytest.mark.parametrize("secret", _GUESSES, ids=["none", "short", "as-long"])
def test_a_stranger_reads_nothing_and_ends_nothing(
    world: World, family: Family, stranger: Stranger, secret: str
) -> None:
    for index in (0, _LANES, 99):
        who = stranger.who(index, secret)
        frames = _subscribe(stranger, who)
        assert [frame.WhichOneof("frame") for frame in frames] == ["closed"], "the relay log is given away"
        failed = common_pb2.ErrorDetail(code=1, name="forged", message="forged")
        assert stranger.relay.ReportLane(relay_pb2.LaneReport(who=who, failed=failed), timeout=20).stop
        ahead = common_pb2.RelayOffset(segment=9, byte=1 << 40)
        assert stranger.relay.ReportLane(relay_pb2.LaneReport(who=who, committed=ahead), timeout=20).stop
        assert stranger.relay.TakeChunk(relay_pb2.TakeChunkRequest(who=who), timeout=20).stop
        assert stranger.relay.ReportChunk(relay_pb2.ChunkReport(who=who, failed=failed), timeout=20).stop
        given = stranger.relay.Credentials(relay_pb2.CredentialsRequest(who=who), timeout=20)
        assert given == relay_pb2.CredentialsResponse(stop=True)
        with pytest.raises(grpc.RpcError):
            stranger.relay.Locate(relay_pb2.LocateRequest(who=who), timeout=20)
        with pytest.raises(grpc.RpcError):
            stranger.relay.Evaluate(relay_pb2.EvaluateRequest(who=who), timeout=20)
        with pytest.raises(grpc.RpcError):
            stranger.relay.EvaluateLarge(iter([relay_pb2.EvaluateRequest(who=who)]), timeout=20)
        work = stranger.desk.TakeWork(compare_pb2.TakeWorkRequest(who=who), timeout=20)
        assert work.kind == compare_pb2.CompareWork.KIND_STOP
        assert stranger.desk.ReportWork(compare_pb2.WorkReport(who=who, failed=failed), timeout=20).stop
    _is_alive(world, family, stranger)


def test_a_stranger_that_hangs_up_ends_no_lane(world: World, family: Family, stranger: Stranger) -> None:
    """A cancelled stream is how the worker notices a lane whose process has died."""
    stream = stranger.relay.Subscribe(_from_the_start(stranger.who(0, "")))
    next(iter(stream))
    stream.cancel()
    _is_alive(world, family, stranger)


def test_no_password_is_left_in_reach(world: World, family: Family, stranger: Stranger) -> None:
    """No password is in a file that others may read, in a command line, in data that Spark has pickled, or in an
    answer."""
    world.cluster.dmctl("compare", family.name)
    needles = forms(CANARY)
    found = [
        f"{path}: {needle!r}" for path in files_of(world.cluster) for needle in needles if needle in path.read_bytes()
    ]
    assert not found, found
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes_of(world.cluster)}
    assert not [pid for pid, line in lines.items() if any(needle in line for needle in needles)]
    answers = [
        world.cluster.dmctl("query-status", family.name).text,
        world.cluster.dmctl("config", "task", family.name).text,
        world.cluster.dmctl("list-member").text,
        str(worker_pb2_grpc.WorkerStub(stranger.channel).QueryStatus(worker_pb2.WorkerStatusRequest(task=family.name))),
    ]
    assert not [text for text in answers if CANARY in text]


def test_files_of_a_run_are_its_users_alone(world: World, family: Family) -> None:
    """The relay log contains every row of the source."""
    folders = [world.cluster.directory / f"{worker.name}-relay" for worker in world.cluster.workers]
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    assert any(path.is_file() for path in paths)
    open_to_others = [f"{path} {stat.filemode(path.stat().st_mode)}" for path in paths if path.stat().st_mode & 0o077]
    assert not open_to_others, open_to_others


# -- the secret of a run, in a wrong place


def _memory(pid: int) -> Iterator[bytes]:
    """Return what a process of the same user has in its memory."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, *_, name = [*line.split(maxsplit=5), ""][:6]
            if rights.startswith("rw") and not name.startswith("/"):
                begin, end = (int(each, 16) for each in place.split("-"))
                with suppress(OSError):
                    memory.seek(begin)
                    yield memory.read(end - begin)


def _secret_of(stranger: Stranger) -> str:
    """Return the secret of the subtask's run: its lanes have it, in what their tasks were made of. A call with it is
    valid while the run lasts."""
    pickled = re.compile(rb"\x8c\x2b([A-Za-z0-9_-]{43})")
    pids = stranger.worker.spark_task_pids()
    found = {match.decode() for pid in pids for part in _memory(pid) for match in pickled.findall(part)}
    [secret] = [each for each in found if stranger.password(each) == CANARY]
    return secret


def _replayed(stranger: Stranger, secret: str) -> dict[str, str]:
    """Return the answers to every call of a run's tasks: those that change something ask for much."""
    who = stranger.who(0, secret)
    values = {"task": who.task, "source": who.source, "epoch": who.epoch, "index": 0, "run_secret": secret}
    failed = common_pb2.ErrorDetail(code=1, name="forged", message="forged")
    asked: dict[str, Any] = {
        rpc.path: filled(rpc.descriptor.input_type, values) for rpc in all_rpcs() if rpc.service in OF_RUN
    }
    asked["/shardmerge.v1.Relay/Subscribe"] = _from_the_start(who)
    asked["/shardmerge.v1.Relay/ReportLane"] = relay_pb2.LaneReport(who=who, failed=failed)
    asked["/shardmerge.v1.Relay/ReportChunk"] = relay_pb2.ChunkReport(who=who, failed=failed)
    answers: dict[str, str] = {}
    for path, request in asked.items():
        call = cast("Any", stranger.channel).stream_stream(path)(iter([request.SerializeToString()]), timeout=20)
        try:
            answers[path] = repr(list(cast("Iterator[bytes]", call)))
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            answers[path] = f"{error.code().name}: {error.details()}"
    return answers


def _records(world: World) -> list[tuple[object, ...]]:
    tables = world.target.query(
        "SELECT CONCAT('dm_meta.', table_name) FROM information_schema.tables WHERE table_schema = 'dm_meta'"
    )
    return [row for (table,) in tables for row in world.target.query(f"CHECKSUM TABLE {table}")]


@pytest.mark.turns
@pytest.mark.parametrize("then", ["it has ended", "another run", "another task"])
def test_the_secret_of_a_run_opens_nothing_else(world: World, family: Family, stranger: Stranger, then: str) -> None:
    mine = world.family(f"replayed_{then.split()[1]}")
    mine.create(20)
    world.cluster.start_task(mine.task(extra=_TASK))
    world.cluster.wait_replicating(mine.name)
    replaying = Stranger(world, mine)
    secret = _secret_of(replaying)
    epoch = replaying.epoch
    assert replaying.password("x" * 43) == "", "the call is valid by its secret only"
    if then == "another task":
        assert _replayed(stranger, secret) == _replayed(stranger, "x" * 43)
        assert stranger.password(secret) == ""
        _is_alive(world, family, stranger)
    elif then == "another run":
        world.cluster.dmctl("pause-task", mine.name)
        world.cluster.wait_paused(mine.name)
        assert _replayed(replaying, secret) == _replayed(replaying, "x" * 43)
        world.cluster.dmctl("resume-task", mine.name)
        world.cluster.wait_replicating(mine.name)
        now = Stranger(world, mine)
        assert now.epoch > epoch
        assert _replayed(replaying, secret) == _replayed(replaying, "x" * 43)
        # Even if the caller knows the number of the new run.
        assert _replayed(now, secret) == _replayed(now, "x" * 43)
        assert now.password(secret) == ""
        _is_alive(world, mine, now)
        now.channel.close()
    else:
        world.cluster.dmctl("stop-task", mine.name)
        until(lambda: not world.cluster.subtasks(mine.name), "the task has ended")
        before = _records(world)
        assert _replayed(replaying, secret) == _replayed(replaying, "x" * 43)
        assert replaying.password(secret) == ""
        assert _records(world) == before
    replaying.channel.close()
