"""compare: each source ends with an answer, also if its worker cannot be called."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace
from typing import cast

import grpc
import pytest

from shardmerge.master.commands.task.compare import CompareService
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.proto import compare_pb2 as pb
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto.rpc import caller_proof
from tests.support.ports import free_port
from tests.unit.master import records


def _with_dead_worker() -> State:
    """Its process has ended, and its lease not yet: the source is bound to it."""
    state = records.state(
        workers=("w1",),
        bindings={"mysql-01": "w1"},
        subtasks=(config.SubTaskConfig(task="merge", source_id="mysql-01"),),
    )
    state.workers["w1"].value.address = f"127.0.0.1:{free_port()}"
    return state


def _added(_: object) -> bool:
    return True


def _first_frame(state: State) -> pb.CompareFrame:
    service = CompareService(cast("Store", SimpleNamespace(read=lambda: state)), threading.Event())
    context = cast("grpc.ServicerContext", SimpleNamespace(add_callback=_added))
    got: queue.Queue[pb.CompareFrame] = queue.Queue()

    def ask() -> None:
        got.put(next(service.Compare(pb.CompareRequest(task="merge"), context)))

    threading.Thread(target=ask, daemon=True).start()
    return got.get(timeout=20)


@pytest.mark.parametrize("proves", [True, False])
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_worker_that_still_has_the_source(monkeypatch: pytest.MonkeyPatch, *, proves: bool) -> None:
    """A channel that proves its calls already calls the worker where the stream is made."""
    monkeypatch.setattr(caller_proof, "is_used", lambda: proves)
    monkeypatch.setattr(caller_proof, "keys_of_process", lambda: {"one": b"k" * 32})
    frame = _first_frame(_with_dead_worker())
    assert (frame.source, frame.end.error.code) == ("mysql-01", errors.master.PEER_UNREACHABLE.code), frame
    assert "worker w1" in frame.end.error.message
