"""Tests which caller the history names for a command: by certificate, by socket, by address."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from shardmerge.proto import common_pb2, etcd_keys
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import state_pb2 as state
from shardmerge.proto.tls.model import TlsFiles
from tests.support.certificates import Authority
from tests.support.daemon import Daemon, Setting
from tests.support.dmctl import dmctl
from tests.support.etcd import Etcd
from tests.support.wait import until

_PASSWORD = "a-password-of-the-target"


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path / "etcd").start()
    with server.client() as client:
        # The source is bound to no worker: a command stores its decision, and reports that no worker carries it out.
        target = config.Endpoint(host="127.0.0.1", port=4000, user="root", password=_PASSWORD)
        subtask = config.SubTaskConfig(task="t", source_id="s", target=target)
        source = state.SourceRecord(config=config.SourceConfig(source_id="s"))
        client.put(etcd_keys.source("s"), etcd_keys.encode(source))
        client.put(etcd_keys.task("t"), etcd_keys.encode(state.TaskRecord(name="t", sources=["s"])))
        record = state.SubTaskRecord(config=subtask, expected=common_pb2.STAGE_RUNNING)
        client.put(etcd_keys.subtask("t", "s"), etcd_keys.encode(record))
    yield server
    server.stop()


@pytest.fixture
def make_master(etcd: Etcd, tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """``make_master(settings)``: a started master."""
    made: list[Daemon] = []

    def make(settings: Mapping[str, Setting]) -> Daemon:
        all_of_them: dict[str, Setting] = {"etcd": [etcd.endpoint], "rpc-timeout": 1, **settings}
        made.append(Daemon("master", "m1", tmp_path, all_of_them, {}))
        return made[-1].start()

    yield make
    for daemon in made:
        daemon.stop()


def _actors(etcd: Etcd) -> list[tuple[str, str]]:
    with etcd.client() as client:
        found = client.get_prefix(etcd_keys.history_entries("t")).records
    assert not any(_PASSWORD.encode() in record.value for record in found)
    records = [etcd_keys.decode(state.HistoryRecord, record.value, record.key) for record in found]
    return [(record.text, record.actor) for record in records if record.kind == "command"]


def _run(master: Daemon, *words: str, address: str = "", tls: TlsFiles | None = None) -> None:
    """Run dmctl with the key of this master, at its address unless another one is given; it waits for a leader.

    No worker carries out what it stores, so it may report a failure.
    """
    secured = [] if tls is None else [f"--ssl-ca={tls.ca}", f"--ssl-cert={tls.cert}", f"--ssl-key={tls.key}"]
    environment = {**os.environ, "SHARDMERGE_SECRET_KEY": str(master.key)}
    dmctl(["--master-addr", address or master.address, *secured, *words], environment, 60)


def _wait_for(etcd: Etcd, *wanted: tuple[str, str]) -> None:
    until(lambda: _actors(etcd) == list(wanted), f"the history names {wanted}", 20)


def test_by_certificate(etcd: Etcd, make_master: Callable[..., Daemon], tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    own, alice = authority.issue("master", "cluster"), authority.issue("alice", "alice")
    master = make_master({"ssl-ca": own.ca, "ssl-cert": own.cert, "ssl-key": own.key, "etcd": [etcd.endpoint]})
    _run(master, "pause-task", "t", tls=alice)
    _wait_for(etcd, ("pause-task", "alice"))


@pytest.mark.turns
def test_by_socket_and_by_address(etcd: Etcd, make_master: Callable[..., Daemon], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    master = make_master({"master-socket": str(folder / "m.sock")})
    _run(master, "pause-task", "t")
    _run(master, "resume-task", "t", "-s", "s", address=f"unix:{folder}/m.sock")
    _run(master, "pause-task", "no-such-task")
    _run(master, "query-status", "t")
    _run(master, "stop-task", "t")
    _wait_for(etcd, ("pause-task", "127.0.0.1"), ("resume-task", "local socket"), ("stop-task", "127.0.0.1"))
