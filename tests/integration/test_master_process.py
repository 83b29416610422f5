"""dm-master as a process: signals, kill -9, a configuration that is wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from proto import master_pb2 as pb
from proto.master_pb2_grpc import MasterStub
from proto.rpc import channel
from tests.support.daemon import ROOT, Daemon
from tests.support.etcd import Etcd
from tests.support.wait import until


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path / "etcd").start()
    yield server
    server.stop()


@pytest.fixture
def master(etcd: Etcd, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon("master", "m1", tmp_path, {"etcd": [etcd.endpoint], "worker-ttl": 30}, {})
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
        assert client.get_prefix("/").records == ()


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

    until(leads, "m1 decides again, long before its old lease of 30 s ends", seconds=15)


def test_second_signal_ends_it_at_once(master: Daemon, etcd: Etcd) -> None:
    master.start()
    until(lambda: _leader(master.address) == "m1", "m1 leads")
    etcd.signal(signal.SIGSTOP)  # what the first signal wants to give back cannot be given back
    ended: list[int] = []
    waiter = threading.Thread(target=lambda: ended.append(master.terminate()))
    waiter.start()
    until(lambda: "ending" in master.log.read_text(), "the first signal was taken")
    master.terminate()
    waiter.join()
    etcd.signal(signal.SIGCONT)
    assert ended == [128 + signal.SIGTERM]


def test_wrong_configuration_is_told_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "master.yaml"
    config.write_text("master-adr: 127.0.0.1:1\n")
    ended = subprocess.run(
        [sys.executable, "-m", "master.main", "--config", str(config)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "master.yaml:1:1" in ended.stderr
    assert "master-addr" in ended.stderr
    assert "Traceback" not in ended.stderr
