"""Tests how long pauses may last, as a master collects it from workers."""

from __future__ import annotations

from shardmerge.master.state import State
from shardmerge.master.workers.client import STATUS_SECONDS, Workers
from shardmerge.master.workers.pause_limits import pause_limits
from shardmerge.proto import errors
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto import worker_pb2 as pb
from tests.unit.master.records import state


class _Workers(Workers):
    """w1 answers, w2 is of an earlier version, w3 does not answer."""

    def status(
        self, worker: state_pb.WorkerRecord, task: str = "", seconds: float = STATUS_SECONDS
    ) -> pb.WorkerStatusResponse:
        if worker.name == "w3":
            raise errors.master.PEER_UNREACHABLE(peer="worker w3", reason="it has left")
        limit = pb.PauseLimit(source="s1", limit="relay-disk", seconds=5.0) if worker.name == "w1" else None
        return pb.WorkerStatusResponse(relay=pb.RelayStatus(task_pause=limit))


def test_each_source_has_a_limit_or_the_reason_why_it_is_not_known() -> None:
    records = state(workers=("w1", "w2", "w3"), bindings={"s1": "w1", "s2": "w2", "s3": "w3", "s4": ""})
    found = pause_limits(("s1", "s2", "s3", "s4"), lambda: records, _Workers(), lambda relay: relay.task_pause)
    assert [each.source for each in found] == ["s1", "s2", "s3", "s4"]
    assert found[0].seconds == 5
    assert found[1].unknown == "its worker does not measure it: it is of an earlier version"
    assert "it has left" in found[2].unknown
    assert found[3].unknown == "no live worker has the source"
    assert all(not each.HasField("seconds") and each.unknown in each.text for each in found[1:])


def test_a_pause_has_succeeded_although_etcd_does_not_answer_any_more() -> None:
    def read() -> State:
        raise errors.master.ETCD_UNAVAILABLE(endpoints="e", reason="it does not answer")

    [found] = pause_limits(("s1",), read, _Workers(), lambda relay: relay.task_pause)
    assert "it does not answer" in found.unknown
    assert pause_limits((), read, _Workers(), lambda relay: relay.task_pause) == []
