"""Tests that a master and a worker refuse calls that are too many, too large, unfinished or invalid, and answer
others."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from shardmerge.proto import errors, secret
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.master_pb2_grpc import MasterStub
from shardmerge.proto.rpc.caller_proof import METADATA
from shardmerge.proto.rpc.client import channel, coded_from_rpc
from shardmerge.proto.rpc.limits import MASTER, WORKER, ServerLimits
from tests.support import identity
from tests.support.daemon import Daemon, Setting
from tests.support.etcd import Etcd
from tests.support.http2 import UnfinishedCall
from tests.support.wait import until

_REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
_WATCH = "/grpc.health.v1.Health/Watch"
_ANSWER_SECONDS = 20.0
"""Timeout of a call that takes milliseconds on a quiet machine; without limits it never got an answer."""
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Attacked:
    """A daemon under attack. ``large``: methods that accept its largest messages. ``empty``: two bytes that are an
    empty message in a list of the first of these methods."""

    daemon: Daemon
    service: str
    limits: ServerLimits
    large: tuple[str, ...]
    empty: bytes

    def path(self, method: str) -> str:
        return f"/shardmerge.v1.{self.service}/{method}"

    @property
    def query(self) -> str:
        return self.path("QueryStatus")

    @property
    def most_growth(self) -> int:
        """Return the bytes of memory that many large messages may take in parallel."""
        return 2 * self.limits.readings * self.limits.message_bytes + 50 * _MIB


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    server = Etcd(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Provide one cluster's key for both daemons: the worker may start before the master would make it."""
    state = tmp_path_factory.mktemp("state")
    secret.make_key(str(state / "shardmerge" / "secret.key"))
    return {"XDG_STATE_HOME": str(state)}


@pytest.fixture(scope="module")
def master(etcd: Etcd, environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("master")
    daemon = _with_reflection("master", "m1", directory, {"etcd": [etcd.endpoint]}, environment).start()
    until(lambda: _answers(daemon), "it answers")
    yield daemon
    daemon.stop()


@pytest.fixture(scope="module")
def worker(etcd: Etcd, environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Provide a worker without a source."""
    directory = tmp_path_factory.mktemp("worker")
    settings = {"etcd": [etcd.endpoint], "relay-dir": str(directory / "relay")}
    daemon = _with_reflection("worker", "w1", directory, settings, environment).start()
    yield daemon
    daemon.stop()


def _with_reflection(
    kind: str, name: str, directory: Path, settings: Mapping[str, Setting], environment: Mapping[str, str]
) -> Daemon:
    daemon = Daemon(kind, name, directory, {**settings, "grpc-reflection": 1}, environment)
    daemon.write_config()
    daemon.config.write_text(daemon.config.read_text().replace("grpc-reflection: 1", "grpc-reflection: true"))
    return daemon


def _answers(master: Daemon) -> bool:
    with _own_channel(master) as opened:
        return MasterStub(opened).QueryStatus(pb.QueryStatusRequest(), timeout=_ANSWER_SECONDS).result


@pytest.fixture(params=["master", "worker"])
def attacked(request: pytest.FixtureRequest) -> Attacked:
    daemon: Daemon = request.getfixturevalue(request.param)
    if request.param == "master":
        return Attacked(
            daemon, "Master", MASTER, ("OperateSource", "StartTask", "UpdateTask", "CheckTask"), b"\x12\x00"
        )
    return Attacked(daemon, "Worker", WORKER, ("CheckKeys", "CheckSubTask", "CheckSwitch", "ExplainRules"), b"\x1a\x00")


def _own_channel(daemon: Daemon) -> Any:
    """Return a connection that no other channel of this process shares."""
    return identity.own_channel(daemon.address)


def _ask(attacked: Attacked) -> float:
    """Return the seconds that a real call takes, on a connection of its own."""
    began = time.monotonic()
    with _own_channel(attacked.daemon) as opened:
        # An empty request is valid: QueryStatus requires no field.
        assert isinstance(opened.unary_unary(attacked.query)(b"", timeout=_ANSWER_SECONDS), bytes)
    return time.monotonic() - began


def _memory(daemon: Daemon) -> int:
    return psutil.Process(daemon.pid).memory_info().rss


def _refused(call: Any) -> ShardmergeError:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return coded_from_rpc(caught.value, "the master")


@contextmanager
def _open_calls(
    daemon: Daemon, method: str, calls: int, connections: int, request: bytes | None
) -> Generator[list[Any]]:
    """Open ``calls`` streams on ``connections`` connections: each has sent ``request``, or nothing yet."""
    ended = threading.Event()

    def requests() -> Iterator[bytes]:
        if request is not None:
            yield request
        ended.wait()

    with ExitStack() as undo:
        channels = [undo.enter_context(_own_channel(daemon)) for _ in range(connections)]
        undo.callback(ended.set)
        proofs = [((METADATA, identity.proved(channels[0], method, request or b"")),) for _ in range(calls)]
        opened = [
            channels[number % connections].stream_stream(method)(requests(), metadata=proofs[number])
            for number in range(calls)
        ]
        for call in opened:
            # A call whose answers are not read does not notice its end.
            threading.Thread(target=_read_all, args=(call,), daemon=True).start()
        yield opened


def _read_all(call: Any) -> None:
    with suppress(grpc.RpcError):
        for _ in call:
            pass


def _outcomes(calls: list[Any]) -> Counter[str]:
    return Counter(call.code().name if call.done() else "open" for call in calls)


@pytest.mark.turns
@pytest.mark.parametrize("connections", [1, 70])
def test_streams_of_reflection_leave_others_alone(attacked: Attacked, connections: int) -> None:
    asked = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    with _open_calls(attacked.daemon, _REFLECTION, 70, connections, asked) as calls:
        most = attacked.limits.of(_REFLECTION).calls
        until(lambda: _outcomes(calls)["open"] <= most, "those beyond the limit are refused")
        assert max(_ask(attacked) for _ in range(3)) < _ANSWER_SECONDS
        refused = next(call for call in calls if call.done() and call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert coded_from_rpc(refused, "the daemon").spec is errors.master.CALL_TOO_MANY


@pytest.mark.parametrize("connections", [1, 300])
def test_watches_of_health_leave_others_alone(attacked: Attacked, connections: int) -> None:
    asked = health_pb2.HealthCheckRequest().SerializeToString()
    with _open_calls(attacked.daemon, _WATCH, 300, connections, asked) as calls:
        assert max(_ask(attacked) for _ in range(3)) < _ANSWER_SECONDS
        most = attacked.limits.of(_WATCH).calls
        until(lambda: _outcomes(calls)["open"] <= most, "those beyond the limit are refused")
        assert max(_ask(attacked) for _ in range(3)) < _ANSWER_SECONDS


@pytest.mark.parametrize("connections", [1, 200])
def test_requests_that_never_come_leave_others_alone(attacked: Attacked, connections: int) -> None:
    with _open_calls(attacked.daemon, attacked.query, 200, connections, None) as calls:
        most = attacked.limits.of(attacked.query).calls
        until(lambda: _outcomes(calls)["open"] <= most, "those beyond the limit are refused")
        assert max(_ask(attacked) for _ in range(3)) < _ANSWER_SECONDS


def test_unfinished_large_messages_take_a_bounded_memory(attacked: Attacked) -> None:
    """Each caller sends its message except the last bytes."""
    before, size = _memory(attacked.daemon), attacked.limits.message_bytes
    calls: list[UnfinishedCall] = []
    threads: list[threading.Thread] = []
    try:
        for number in range(60):
            method = attacked.path(attacked.large[number % len(attacked.large)])
            calls.append(
                UnfinishedCall(
                    attacked.daemon.address, method, size, identity.proof(attacked.daemon.address, method, b"")
                )
            )
            threads.append(threading.Thread(target=calls[-1].push, args=(3.0,)))
            threads[-1].start()
        assert max(_ask(attacked) for _ in range(3)) < _ANSWER_SECONDS
        for thread in threads:
            thread.join()
        assert any(call.sent > size // 2 for call in calls), "large parts of messages were taken"
        assert _memory(attacked.daemon) - before < attacked.most_growth
        assert max(_ask(attacked) for _ in range(3)) < _ANSWER_SECONDS
    finally:
        for call in calls:
            call.close()


@pytest.mark.turns
def test_large_messages_that_are_wrong_take_a_bounded_memory(attacked: Attacked) -> None:
    before = _memory(attacked.daemon)
    wrong = b"\x0a" * (attacked.limits.message_bytes - _MIB)
    with _open_calls(attacked.daemon, attacked.path(attacked.large[1]), 40, 40, wrong) as calls:
        assert max(_ask(attacked) for _ in range(3)) < _ANSWER_SECONDS
        until(lambda: not _outcomes(calls)["open"], "all are refused", 300)
    assert _memory(attacked.daemon) - before < attacked.most_growth


def test_messages_of_200_mb_are_refused_unread(attacked: Attacked) -> None:
    before = _memory(attacked.daemon)
    huge = b"x" * (200 * _MIB)
    with channel(attacked.daemon.address) as opened:
        method = attacked.path(attacked.large[0])
        for _ in range(3):
            error = _refused(lambda: cast("Any", opened).unary_unary(method)(huge, timeout=300))
            assert error.spec is errors.master.PEER_REFUSED
            assert "larger than max" in error.message
    assert _memory(attacked.daemon) - before < 50 * _MIB
    assert _ask(attacked) < _ANSWER_SECONDS


def test_a_message_of_millions_of_empty_fields_is_not_parsed(attacked: Attacked) -> None:
    before = _memory(attacked.daemon)
    fields = attacked.empty * (attacked.limits.message_bytes // 2 - 1)
    with _own_channel(attacked.daemon) as opened:
        call: Any = opened.unary_unary(attacked.path(attacked.large[0]))
        error = _refused(lambda: call(fields, timeout=300))
    assert error.spec is errors.master.MESSAGE_TOO_LARGE
    assert _memory(attacked.daemon) - before < 100 * _MIB


def test_undecodable_messages_cause_one_log_line(attacked: Attacked) -> None:
    # The log's limit is per method, and the calls without a message of other tests are of QueryStatus.
    daemon, method = attacked.daemon, attacked.path("OperateSchema")
    size = daemon.log.stat().st_size
    with _own_channel(daemon) as opened:
        for number in range(200):
            error = _refused(lambda: opened.unary_unary(method)(b"\xff" * 9, timeout=300))
            assert error.spec is errors.master.MESSAGE_UNREADABLE, number
    logged = daemon.log.read_bytes()[size:].decode()
    assert "Traceback" not in logged
    lines = [line for line in logged.splitlines() if "OperateSchema" in line]
    assert 1 <= len(lines) <= 4, "one in ten seconds"


def test_a_call_without_a_message_is_refused(attacked: Attacked) -> None:
    with _own_channel(attacked.daemon) as opened:
        error = _refused(
            lambda: opened.stream_unary(attacked.query)(
                iter(()), timeout=300, metadata=identity.proof(attacked.daemon.address, attacked.query, b"")
            )
        )
    assert error.spec is errors.master.MESSAGE_UNREADABLE


def test_a_field_that_breaks_its_rule_is_named_and_escaped(master: Daemon) -> None:
    with channel(master.address) as opened:
        stub = MasterStub(opened)
        asked = pb.HandleBinlogRequest(op=pb.HandleBinlogRequest.OP_SKIP, task="t", binlog_pos="../../etc:4")
        error = _refused(lambda: stub.HandleBinlog(asked, timeout=300))
        assert error.spec is errors.master.FIELD_REFUSED
        assert "binlog_pos" in error.message
        asked = pb.HandleBinlogRequest(op=pb.HandleBinlogRequest.OP_SKIP, task="a\nforged line " + "x" * 500)
        error = _refused(lambda: stub.HandleBinlog(asked, timeout=300))
    assert error.spec is errors.master.FIELD_REFUSED
    assert r"a\x0aforged" in error.message and "\n" not in error.message
    assert len(error.message) < 400


def test_services_are_described_only_where_it_is_asked_for(
    etcd: Etcd, environment: Mapping[str, str], master: Daemon
) -> None:
    # In parallel with the other master: masters of one cluster share the cluster's key.
    daemon = Daemon("master", "m2", master.config.parent, {"etcd": [etcd.endpoint]}, environment)
    daemon.start()
    try:
        with _own_channel(daemon) as opened:
            asked = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
            with pytest.raises(grpc.RpcError) as caught:
                next(opened.stream_stream(_REFLECTION)(iter([asked]), timeout=300))
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    finally:
        daemon.stop()
