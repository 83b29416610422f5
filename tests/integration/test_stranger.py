"""Tests that a client without credentials but with access to local files gets no row or password, and ends no run.

The test has a cluster of its own: its accounts have unique passwords, and all files and answers of its processes are
searched for them.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterator
from pathlib import Path

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
    needles = _forms(CANARY)
    found = [f"{path}: {needle!r}" for path in _files(world) for needle in needles if needle in path.read_bytes()]
    assert not found, found
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in _processes(world)}
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


def _forms(secret: str) -> list[bytes]:
    """Return the password as text, and in UTF-16, hex and base64."""
    plain = secret.encode()
    return [plain, secret.encode("utf-16-le"), plain.hex().encode(), base64.b64encode(plain)[:-4]]


def _files(world: World) -> Iterator[Path]:
    """Return the files that the cluster's processes have written; not those that the test gave dmctl, nor those of
    servers."""
    for path in world.cluster.directory.rglob("*"):
        if path.is_file() and path.suffix not in (".yaml", ".yml"):
            yield path
    for pid in _processes(world):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            target = Path(os.readlink(link)) if link.is_symlink() else link
            if target.is_file() and world.cluster.directory not in target.parents and str(target).startswith("/tmp/"):
                yield target


def _processes(world: World) -> list[int]:
    """Return the ids of the daemons, their JVMs and Spark's Python processes."""
    return [process.pid for daemon in world.cluster.daemons for process in daemon.session()]
