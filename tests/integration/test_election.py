"""Tests two masters that are configured alike, with a real etcd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.master.leader.election import Election
from shardmerge.proto import etcd_keys
from shardmerge.proto.etcd import Etcd
from shardmerge.proto.http.loops import LoopAges
from tests.support.etcd import Etcd as Server
from tests.support.wait import until


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Server(tmp_path / "etcd").start()
    with server.client() as client:
        yield client
    server.stop()


class _Rounds(LoopAges):
    """Counts the rounds of an election."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0

    def begins(self, loop: str) -> None:
        super().begins(loop)
        self.begun += 1


def test_the_later_one_takes_the_leadership_once(etcd: Etcd) -> None:
    """A process that was killed is replaced at once by the next one. Two that live do not take turns."""
    rounds = _Rounds(), _Rounds()
    first, second = (Election(etcd, "m1", "127.0.0.1:1", 600.0, loops=loops) for loops in rounds)
    first.start()
    until(lambda: first.leads, "the first one leads")
    second.start()
    try:
        until(lambda: second.leads and not first.leads, "the second one has taken over")
        taken = etcd.get(etcd_keys.LEADER)
        before = [loops.begun for loops in rounds]

        def looked() -> bool:
            etcd.put(f"{etcd_keys.LEADER}-changed", b"")  # each change begins a round
            return all(loops.begun >= count + 3 for loops, count in zip(rounds, before, strict=True))

        until(looked, "both have looked at the record a few times")
        assert etcd.get(etcd_keys.LEADER) == taken
    finally:
        second.end()
        first.end()
