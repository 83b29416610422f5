"""A call to a worker that loses its lease meanwhile: the master closes the connection to it."""

from __future__ import annotations

import threading

import grpc
import pytest

from shardmerge.master.workers.client import Workers
from shardmerge.proto import errors, state_pb2, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.server import listen, make_server
from tests.support.ports import free_port


class _Frozen:
    """A worker that answers only at the end."""

    def __init__(self) -> None:
        self.asked, self.over = threading.Event(), threading.Event()

    def handlers(self) -> grpc.GenericRpcHandler:
        diagnose = grpc.unary_unary_rpc_method_handler(
            self.diagnose,
            worker_pb2.WorkerDiagnoseRequest.FromString,
            worker_pb2.WorkerDiagnoseResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler("shardmerge.v1.Worker", {"Diagnose": diagnose})

    def diagnose(
        self, request: worker_pb2.WorkerDiagnoseRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerDiagnoseResponse:
        self.asked.set()
        self.over.wait(60)
        return worker_pb2.WorkerDiagnoseResponse()


def test_a_worker_that_leaves_while_it_is_asked_has_not_failed() -> None:
    frozen = _Frozen()
    server = make_server((), "dm-worker")
    server.add_generic_rpc_handlers((frozen.handlers(),))
    record = state_pb2.WorkerRecord(name="w1", address=f"127.0.0.1:{free_port()}")
    listen(server, record.address)
    server.start()
    workers = Workers()

    def leave() -> None:
        frozen.asked.wait(60)
        workers.keep_only(frozenset())

    leaving = threading.Thread(target=leave)
    leaving.start()
    try:
        with pytest.raises(ShardmergeError) as caught:
            workers.call(record, lambda stub: stub.Diagnose, worker_pb2.WorkerDiagnoseRequest(), 60)
    finally:
        leaving.join()
        frozen.over.set()
        workers.close()
        server.stop(0).wait()
    assert caught.value.spec is errors.master.PEER_UNREACHABLE, caught.value
    assert "it has left" in str(caught.value)
