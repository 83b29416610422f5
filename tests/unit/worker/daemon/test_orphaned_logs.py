"""Relay logs of sources that went to another worker: gone once that has all, never before (I7)."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.message import Message

from shardmerge.proto import errors, etcd_keys, state_pb2
from shardmerge.proto.etcd import Record, RecordSnapshot
from shardmerge.worker.daemon.orphaned_logs import OrphanedLogs


class Rig:
    """Worker "me" with relay logs of three sources, and what etcd and other workers say."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for source in ("a", "b", "c"):
            (directory / source).mkdir()
            (directory / source / "relay.json").touch()
            (directory / source / "000001.relay").write_bytes(b"events")
        self.bound = {"a": ("other", 5), "b": ("me", 6)}
        self.live = ["me", "other"]
        self.complete = True
        self.asked: list[tuple[str, str]] = []
        self.logs = OrphanedLogs(directory, "me", self._ask)

    def _ask(self, address: str, source: str) -> bool:
        self.asked.append((address, source))
        if address == "unreachable:1":
            raise errors.master.PEER_TIMEOUT(peer=address)
        return self.complete

    def read(self) -> None:
        """The reconcile thread reads the records."""
        found: list[tuple[str, Message, int]] = [
            (etcd_keys.bound(source), state_pb2.BindingRecord(source_id=source, worker=worker), revision)
            for source, (worker, revision) in self.bound.items()
        ]
        found += [
            (etcd_keys.worker(name), state_pb2.WorkerRecord(name=name, address=f"{name}:1"), 1) for name in self.live
        ]
        records = [Record(key, etcd_keys.encode(message), revision, 1, 0) for key, message, revision in found]
        self.logs.update(RecordSnapshot(tuple(records), 9))

    @property
    def kept(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_log_goes_when_the_other_worker_has_all(rig: Rig) -> None:
    rig.read()
    rig.logs.ask_workers()
    assert rig.asked == [("other:1", "a")], "nobody is asked of what is here, or is nobody's"
    assert rig.kept == ["a", "b", "c"], "only who opens logs removes them"
    rig.read()
    rig.logs.ask_workers()
    assert rig.kept == ["b", "c"]


def test_a_log_stays_while_something_of_it_may_be_needed(rig: Rig) -> None:
    rig.complete = False
    rig.read()
    rig.logs.ask_workers()
    rig.read()
    assert rig.kept == ["a", "b", "c"]


def test_a_log_stays_when_the_source_has_moved_since_it_was_asked(rig: Rig) -> None:
    rig.read()
    rig.logs.ask_workers()
    rig.bound["a"] = ("other", 7)
    rig.read()
    assert rig.kept == ["a", "b", "c"], "it may have been back here in between"
    rig.logs.ask_workers()
    rig.bound["a"] = ("me", 8)
    rig.read()
    assert rig.kept == ["a", "b", "c"]
    rig.bound["a"] = ("other", 9)
    rig.read()
    assert rig.kept == ["a", "b", "c"], "what was said before does not count"


def test_a_log_stays_while_no_server_answers(rig: Rig) -> None:
    rig.live.remove("other")
    rig.read()
    rig.logs.ask_workers()
    rig.live.append("unreachable")
    rig.bound["a"] = ("unreachable", 7)
    rig.read()
    rig.logs.ask_workers()
    rig.read()
    assert (rig.asked, rig.kept) == ([("unreachable:1", "a")], ["a", "b", "c"])
