"""Tests dm-master as a process: signals, kill -9, an invalid configuration."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from shardmerge.proto import etcd_keys
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.master_pb2_grpc import MasterStub
from shardmerge.proto.rpc.client import channel
from tests.support.daemon import ROOT, Daemon
from tests.support.etcd import Etcd
from tests.support.hooks import Hooks
from tests.support.wait import until


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path / "etcd").start()
    yield server
    server.stop()


@pytest.fixture
def hooks(tmp_path: Path) -> Hooks:
    return Hooks(tmp_path / "hooks")


@pytest.fixture
def master(etcd: Etcd, hooks: Hooks, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon("master", "m1", tmp_path, {"etcd": [etcd.endpoint], "worker-ttl": 600}, hooks.environment)
    yield daemon
    daemon.stop()


def _leader(address: str) -> str:
    with channel(address) as opened:
        try:
            return MasterStub(opened).ListMember(pb.ListMemberRequest(leader=True), timeout=5).leader.name
        except grpc.RpcError:
            return ""


def test_ends_cleanly_and_leaves_no_member(master: Daemon, etcd: Etcd) -> None:
    master.start()
    until(lambda: _leader(master.address) == "m1", "m1 leads")
    assert master.terminate() == 0
    with etcd.client() as client:
        assert [record.key for record in client.get_prefix("/").records] == [etcd_keys.SECRET_KEY]


@pytest.mark.turns
def test_takes_up_its_own_place_after_kill_9(master: Daemon) -> None:
    master.start()
    until(lambda: _leader(master.address) == "m1", "m1 leads")
    master.restart()

    def leads() -> bool:
        with channel(master.address) as opened:
            try:
                MasterStub(opened).OperateSource(
                    pb.OperateSourceRequest(op=pb.OperateSourceRequest.OP_STOP, source_ids=["none"]), timeout=5
                )
            except grpc.RpcError:
                return False
        return True

    until(leads, "m1 decides again, long before its old lease of 600 s ends", seconds=300)


def test_second_signal_ends_it_at_once(master: Daemon, hooks: Hooks) -> None:
    master.start()
    until(lambda: _leader(master.address) == "m1", "m1 leads")
    hooks.hold("master.ending")  # the end that the first signal has begun does not complete
    ended: list[int] = []
    waiter = threading.Thread(target=lambda: ended.append(master.terminate()))
    waiter.start()
    assert hooks.reached("master.ending") == [master.pid]
    master.terminate()
    waiter.join()
    assert ended == [128 + signal.SIGTERM]


def test_wrong_configuration_is_reported_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "master.yaml"
    config.write_text("master-adr: 127.0.0.1:1\n")
    ended = subprocess.run(
        [sys.executable, "-m", "shardmerge.master.main", "--config", str(config)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 1
    assert "master.yaml:1:1" in ended.stderr
    assert "master-addr" in ended.stderr
    assert "Traceback" not in ended.stderr
