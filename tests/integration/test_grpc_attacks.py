"""A master under calls that are many, large, unfinished or no messages: it refuses them, and answers others."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from proto import errors
from proto import master_pb2 as pb
from proto.errors import ShardmergeError
from proto.master_pb2_grpc import MasterStub
from proto.rpc import channel, coded_from_rpc
from proto.rpc_limits import MASTER
from tests.support.daemon import Daemon
from tests.support.etcd import Etcd
from tests.support.http2 import UnfinishedCall
from tests.support.wait import until

_QUERY = "/shardmerge.v1.Master/QueryStatus"
_REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
_WATCH = "/grpc.health.v1.Health/Watch"
_ANSWER_SECONDS = 20.0
"""For a call that takes milliseconds on a quiet machine; without limits it never got an answer."""
_MIB = 1 << 20
_UNFINISHED = [f"/shardmerge.v1.Master/{name}" for name in ("StartTask", "UpdateTask", "CheckTask", "OperateSource")]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    server = Etcd(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def master(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("master")
    settings = {"etcd": [etcd.endpoint], "grpc-reflection": 1}
    daemon = Daemon("master", "m1", directory, settings, {})
    daemon.write_config()
    daemon.config.write_text(daemon.config.read_text().replace("grpc-reflection: 1", "grpc-reflection: true"))
    daemon.start()
    until(lambda: _ask(daemon), "it answers")
    yield daemon
    daemon.stop()


def _own_channel(daemon: Daemon) -> Any:
    """A connection that no other channel of this process shares."""
    return grpc.insecure_channel(daemon.address, options=[("grpc.use_local_subchannel_pool", 1)])


def _ask(daemon: Daemon) -> float:
    """Seconds that a real call takes, on a connection of its own."""
    began = time.monotonic()
    with _own_channel(daemon) as opened:
        assert MasterStub(opened).QueryStatus(pb.QueryStatusRequest(), timeout=_ANSWER_SECONDS).result
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
    """``calls`` streams on ``connections`` connections, all open: each has sent ``request``, or nothing yet."""
    ended = threading.Event()

    def requests() -> Iterator[bytes]:
        if request is not None:
            yield request
        ended.wait()

    with ExitStack() as undo:
        channels = [undo.enter_context(_own_channel(daemon)) for _ in range(connections)]
        undo.callback(ended.set)
        opened = [channels[number % connections].stream_stream(method)(requests()) for number in range(calls)]
        for call in opened:
            # A call whose answers nobody reads does not notice its end.
            threading.Thread(target=_read_all, args=(call,), daemon=True).start()
        yield opened


def _read_all(call: Any) -> None:
    with suppress(grpc.RpcError):
        for _ in call:
            pass


def _outcomes(calls: list[Any]) -> Counter[str]:
    return Counter(call.code().name if call.done() else "open" for call in calls)


@pytest.mark.parametrize("connections", [1, 70])
def test_streams_of_reflection_leave_others_alone(master: Daemon, connections: int) -> None:
    asked = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    with _open_calls(master, _REFLECTION, 70, connections, asked) as calls:
        until(lambda: _outcomes(calls)["open"] <= MASTER.of(_REFLECTION).calls, "those beyond the limit are refused")
        assert max(_ask(master) for _ in range(3)) < _ANSWER_SECONDS
        refused = next(call for call in calls if call.done() and call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert coded_from_rpc(refused, "the master").spec is errors.master.CALL_TOO_MANY


@pytest.mark.parametrize("connections", [1, 300])
def test_watches_of_health_leave_others_alone(master: Daemon, connections: int) -> None:
    asked = health_pb2.HealthCheckRequest().SerializeToString()
    with _open_calls(master, _WATCH, 300, connections, asked) as calls:
        assert max(_ask(master) for _ in range(3)) < _ANSWER_SECONDS
        until(lambda: _outcomes(calls)["open"] <= MASTER.of(_WATCH).calls, "those beyond the limit are refused")
        assert max(_ask(master) for _ in range(3)) < _ANSWER_SECONDS


@pytest.mark.parametrize("connections", [1, 200])
def test_requests_that_never_come_leave_others_alone(master: Daemon, connections: int) -> None:
    with _open_calls(master, _QUERY, 200, connections, None) as calls:
        until(lambda: _outcomes(calls)["open"] <= MASTER.of(_QUERY).calls, "those beyond the limit are refused")
        assert max(_ask(master) for _ in range(3)) < _ANSWER_SECONDS


def test_unfinished_large_messages_take_a_bounded_memory(master: Daemon) -> None:
    """Whoever sends all of its messages but their last bytes."""
    before = _memory(master)
    calls: list[UnfinishedCall] = []
    threads: list[threading.Thread] = []
    try:
        for number in range(60):
            method = _UNFINISHED[number % len(_UNFINISHED)]
            calls.append(UnfinishedCall(master.address, method, MASTER.message_bytes))
            threads.append(threading.Thread(target=calls[-1].push, args=(3.0,)))
            threads[-1].start()
        assert max(_ask(master) for _ in range(3)) < _ANSWER_SECONDS
        for thread in threads:
            thread.join()
        assert any(call.sent > MASTER.message_bytes // 2 for call in calls), "large parts of messages were taken"
        assert _memory(master) - before < 2 * MASTER.readings * MASTER.message_bytes + 50 * _MIB
        assert max(_ask(master) for _ in range(3)) < _ANSWER_SECONDS
    finally:
        for call in calls:
            call.close()


def test_large_messages_that_are_wrong_take_a_bounded_memory(master: Daemon) -> None:
    before = _memory(master)
    with _open_calls(master, "/shardmerge.v1.Master/StartTask", 40, 40, b"\x0a" * (7 * _MIB)) as calls:
        assert max(_ask(master) for _ in range(3)) < _ANSWER_SECONDS
        until(lambda: not _outcomes(calls)["open"], "all are refused", 300)
    assert _memory(master) - before < 2 * MASTER.readings * MASTER.message_bytes + 50 * _MIB


def test_messages_of_200_mb_are_refused_unread(master: Daemon) -> None:
    before = _memory(master)
    huge = pb.StartTaskRequest(file=pb.ConfigFile(content="x" * (200 * _MIB)))
    with channel(master.address) as opened:
        for _ in range(3):
            error = _refused(lambda: MasterStub(opened).StartTask(huge, timeout=300))
            assert error.spec is errors.master.PEER_REFUSED
            assert "larger than max" in error.message
    assert _memory(master) - before < 50 * _MIB
    assert _ask(master) < _ANSWER_SECONDS


def test_a_message_of_millions_of_empty_fields_is_not_parsed(master: Daemon) -> None:
    before = _memory(master)
    with _own_channel(master) as opened:
        call = opened.unary_unary("/shardmerge.v1.Master/OperateSource")
        error = _refused(lambda: call(b"\x12\x00" * (4 * _MIB - 1), timeout=300))
    assert error.spec is errors.master.MESSAGE_TOO_LARGE
    assert _memory(master) - before < 100 * _MIB


def test_what_is_no_message_is_told_in_one_line(master: Daemon) -> None:
    size = master.log.stat().st_size
    with _own_channel(master) as opened:
        for number in range(200):
            error = _refused(lambda: opened.unary_unary("/shardmerge.v1.Master/ListMember")(b"\xff" * 9, timeout=300))
            assert error.spec is errors.master.MESSAGE_UNREADABLE, number
    told = master.log.read_text()[size:]
    assert "Traceback" not in told
    lines = [line for line in told.splitlines() if "ListMember" in line]
    assert 1 <= len(lines) <= 4, "one in ten seconds"


def test_a_call_without_a_message_is_refused(master: Daemon) -> None:
    with _own_channel(master) as opened:
        error = _refused(lambda: opened.stream_unary(_QUERY)(iter(()), timeout=300))
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


def test_services_are_described_only_where_it_is_asked_for(etcd: Etcd, master: Daemon) -> None:
    # Beside the other one: masters of one cluster share the key that passwords are stored by.
    daemon = Daemon("master", "m2", master.config.parent, {"etcd": [etcd.endpoint]}, {})
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
