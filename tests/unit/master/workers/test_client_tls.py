"""The masters' channels to workers are kept: they must not outlive the certificates that they were made with."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.master.workers.client import Workers
from shardmerge.proto import errors, state_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.server import listen, make_server
from shardmerge.proto.tls import process
from shardmerge.proto.tls.model import Tls
from tests.support.certificates import Authority
from tests.support.ports import free_port


def test_a_channel_is_made_anew_when_the_files_have_changed(tmp_path: Path) -> None:
    files = Authority(tmp_path / "ours").issue("all", "shardmerge")
    process.use(Tls(files))
    record = state_pb2.WorkerRecord(name="w1", address=f"127.0.0.1:{free_port()}")
    workers = Workers()

    def answers() -> None:
        """The worker lacks the service, and says so: it has been reached."""
        server = make_server((), "dm-worker")
        listen(server, record.address)
        server.start()
        with pytest.raises(ShardmergeError) as caught:
            workers.status(record)
        assert caught.value.spec is errors.master.PEER_UNIMPLEMENTED, caught.value
        server.stop(0).wait()

    try:
        answers()
        for ours, new in zip(files.paths, Authority(tmp_path / "theirs").issue("all", "shardmerge").paths, strict=True):
            Path(new).replace(ours)
        answers()
    finally:
        workers.close()
        process.use(None)
