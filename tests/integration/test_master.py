"""Tests masters with a real etcd and fake workers: decisions, answers, elections, outages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from shardmerge.master.server import Master
from shardmerge.master.settings import MasterSettings
from shardmerge.proto import common_pb2, errors, etcd_keys
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state
from shardmerge.proto import worker_pb2 as worker
from shardmerge.proto.master_pb2_grpc import MasterStub
from shardmerge.proto.rpc.client import channel, coded_from_rpc
from shardmerge.proto.rpc.coded_errors import error_to_proto
from tests.integration.fake_worker import FakeWorker
from tests.support.etcd import Etcd
from tests.support.ports import free_port
from tests.support.refusal import refused
from tests.support.wait import until

SOURCE = """
source-id: {source}
from: {{host: 127.0.0.1, port: 3306, user: dm, password: "p"}}
"""
TASK = """
name: {name}
task-mode: all
target-database: {{host: 127.0.0.1, port: 4000, user: dm, password: "p"}}
mysql-instances: [{instances}]
"""


def source_file(source: str) -> pb.ConfigFile:
    return pb.ConfigFile(name=f"{source}.yaml", content=SOURCE.format(source=source))


def task_file(name: str, *sources: str) -> pb.ConfigFile:
    instances = ", ".join(f"{{source-id: {source}}}" for source in sources)
    return pb.ConfigFile(name=f"{name}.yaml", content=TASK.format(name=name, instances=instances))


class World:
    """etcd, masters and fake workers; ``ask`` is a stub of the newest master."""

    def __init__(self, directory: Path) -> None:
        self.etcd = Etcd(directory / "etcd").start()
        self.masters: list[Master] = []
        self.workers: list[FakeWorker] = []
        self._channels: list[grpc.Channel] = []
        self.stubs: list[MasterStub] = []
        self._address: dict[str, str] = {}

    def master(self, name: str = "m1", *, rpc_timeout: float = 60.0, ttl: float = 60.0) -> Master:
        address = self._address.setdefault(name, f"127.0.0.1:{free_port()}")
        settings = MasterSettings(
            name=name,
            listen=address,
            advertise=address,
            etcd=(self.etcd.endpoint,),
            member_ttl=ttl,
            rpc_timeout=rpc_timeout,
            drain=5.0,
        )
        master = Master(settings).start()
        self.masters.append(master)
        self._channels.append(channel(address))
        self.stubs.append(MasterStub(self._channels[-1]))
        return master

    def leader(self, name: str = "m1", *, rpc_timeout: float = 60.0, ttl: float = 60.0) -> Master:
        """Start a master. ``ttl``: longer than a busy machine may keep the master from renewing its lease."""
        master = self.master(name, rpc_timeout=rpc_timeout, ttl=ttl)
        until(lambda: master.leads, f"{name} leads")
        return master

    def worker(self, name: str) -> FakeWorker:
        fake = FakeWorker(name, self.etcd.endpoint).start()
        self.workers.append(fake)
        return fake

    @property
    def ask(self) -> MasterStub:
        return self.stubs[-1]

    def end_master(self) -> None:
        self.masters.pop().stop()
        self.stubs.pop()
        self._channels.pop().close()

    def create(self, *sources: str) -> pb.OperateSourceResponse:
        return self.ask.OperateSource(
            pb.OperateSourceRequest(
                op=pb.OperateSourceRequest.OP_CREATE, files=[source_file(source) for source in sources]
            )
        )

    def stop_source(self, *sources: str) -> pb.OperateSourceResponse:
        return self.ask.OperateSource(pb.OperateSourceRequest(op=pb.OperateSourceRequest.OP_STOP, source_ids=sources))

    def start(self, file: pb.ConfigFile, *sources: str, remove_meta: bool = False) -> pb.StartTaskResponse:
        return self.ask.StartTask(pb.StartTaskRequest(file=file, sources=sources, remove_meta=remove_meta))

    def operate(self, op: pb.OperateTaskRequest.Op, name: str = "", *sources: str) -> pb.OperateTaskResponse:
        return self.ask.OperateTask(pb.OperateTaskRequest(op=op, name=name, sources=sources))

    def record(self, task: str, source: str) -> state.SubTaskRecord:
        with self.etcd.client() as client:
            record = client.get(etcd_keys.subtask(task, source))
        assert record is not None
        return etcd_keys.decode(state.SubTaskRecord, record.value, record.key)

    def close(self) -> None:
        for opened in self._channels:
            opened.close()
        for master in self.masters:
            master.stop()
        for fake in self.workers:
            fake.stop()
        self.etcd.stop()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def codes(results: list[pb.SourceResult]) -> list[int]:
    return [one.error.code for one in results]


def test_life_of_a_task(world: World) -> None:
    world.leader()
    w1, w2 = world.worker("w1"), world.worker("w2")
    created = world.create("s1", "s2")
    assert created.result, created
    assert {one.source: one.worker for one in created.sources} == {"s1": "w1", "s2": "w2"}
    assert (w1.source, w2.source) == ("s1", "s2")
    assert codes(list(world.create("s1").sources)) == [errors.master.SOURCE_EXISTS.code]

    started = world.start(task_file("t", "s1", "s2"), "s1")
    assert started.result, started
    assert [one.source for one in started.sources] == ["s1"]
    assert [request.subtask.source_id for request in w1.checked] == ["s1"]
    refused(lambda: world.start(task_file("t", "s1", "s2"), "s1"), errors.master.TASK_EXISTS)
    assert codes(list(world.stop_source("s1").sources)) == [errors.master.SOURCE_IN_USE.code]
    again = world.start(task_file("t", "s1", "s2"), remove_meta=True)
    assert again.result, again
    assert {one.source: one.msg for one in again.sources} == {"s1": "runs already", "s2": ""}
    assert world.record("t", "s1").meta_token == ""
    assert world.record("t", "s2").meta_token != ""

    summary = world.ask.QueryStatus(pb.QueryStatusRequest())
    assert [(one.task_name, one.task_status, list(one.sources)) for one in summary.tasks] == [
        ("t", "Running", ["s1", "s2"])
    ]
    paused = world.operate(pb.OperateTaskRequest.OP_PAUSE, "t", "s2")
    assert paused.result, paused
    assert paused.op == "Pause"
    detail = world.ask.QueryStatus(pb.QueryStatusRequest(name="t"))
    assert [
        (one.source_status.source, one.source_status.worker, one.sub_task_status[0].stage) for one in detail.sources
    ] == [("s1", "w1", common_pb2.STAGE_RUNNING), ("s2", "w2", common_pb2.STAGE_PAUSED)]
    assert detail.sources[0].source_status.relay_status.stage == common_pb2.STAGE_RUNNING
    assert world.operate(pb.OperateTaskRequest.OP_RESUME, "t").result

    stopped = world.operate(pb.OperateTaskRequest.OP_STOP, "", "s1")
    assert stopped.result, stopped
    missing = world.operate(pb.OperateTaskRequest.OP_STOP, "t", "s1", "s2")
    assert {one.source: one.result for one in missing.sources} == {"s1": False, "s2": True}
    refused(lambda: world.operate(pb.OperateTaskRequest.OP_STOP, "t"), errors.master.TASK_UNKNOWN)
    with world.etcd.client() as client:
        assert client.get_prefix(etcd_keys.TASKS).records == ()
        assert client.get_prefix(etcd_keys.SUBTASKS).records == ()
    assert world.stop_source("s1", "s2").result
    assert (w1.source, w2.source) == ("", "")


def test_failed_checks_start_nothing(world: World) -> None:
    world.leader()
    fake = world.worker("w1")
    bad = worker.CheckResult(name="binlog_format", state=worker.CHECK_STATE_FAIL, error_msg="STATEMENT")
    fake.behaviour.check_results = [bad]
    created = world.create("s1")
    assert codes(list(created.sources)) == [errors.master.SOURCE_CHECK_FAILED.code]
    assert "STATEMENT" in created.msg
    fake.behaviour.check_results = []
    assert world.create("s1").result
    fake.behaviour.check_results = [worker.CheckResult(name="version", state=worker.CHECK_STATE_PASS), bad]
    started = world.start(task_file("t", "s1"))
    assert not started.result
    assert [(one.name, one.source) for one in started.check_result] == [("binlog_format", "s1")]
    checked = world.ask.CheckTask(pb.CheckTaskRequest(file=task_file("t", "s1")))
    assert not checked.result
    assert [one.name for one in checked.check_result] == ["binlog_format", "version", "duplicate_keys"]
    refused(lambda: world.ask.QueryStatus(pb.QueryStatusRequest(name="t")), errors.master.TASK_UNKNOWN)
    fake.behaviour.check_results = [worker.CheckResult(name="version", state=worker.CHECK_STATE_WARN)]
    assert world.start(task_file("t", "s1")).result


def test_subtask_that_comes_up_with_an_error_is_reported_and_resumed(world: World) -> None:
    world.leader()
    fake = world.worker("w1")
    assert world.create("s1").result
    fake.behaviour.paused_with = error_to_proto(
        errors.replicate.TARGET_LOST(host="h", port=1, reason="refused", errno=2003)
    )
    started = world.start(task_file("t", "s1"))
    assert not started.result
    assert codes(list(started.sources)) == [errors.replicate.TARGET_LOST.code]
    summary = world.ask.QueryStatus(pb.QueryStatusRequest())
    assert summary.tasks[0].task_status.startswith("Error - ")
    fake.behaviour.paused_with = None
    assert world.operate(pb.OperateTaskRequest.OP_RESUME, "t").result


def test_worker_that_does_not_obey_or_answer_is_reported_in_time(world: World) -> None:
    world.leader()
    fake = world.worker("w1")
    assert world.create("s1").result
    assert world.start(task_file("t", "s1")).result
    fake.behaviour.deaf = True
    # The worker had a longer timeout for the earlier commands.
    world.end_master()
    world.leader(rpc_timeout=1.5)
    paused = world.operate(pb.OperateTaskRequest.OP_PAUSE, "t")
    assert codes(list(paused.sources)) == [errors.master.STAGE_NOT_REACHED.code]
    assert "worker w1 has not reported stage Paused of task t within" in paused.sources[0].msg
    assert world.record("t", "s1").expected == common_pb2.STAGE_PAUSED
    world.workers.remove(fake)
    fake.vanish()
    detail = world.ask.QueryStatus(pb.QueryStatusRequest(name="t"))
    assert not detail.sources[0].result
    assert detail.sources[0].error.code == errors.master.PEER_UNREACHABLE.code
    assert "w1" in detail.sources[0].msg

    def unbound() -> bool:
        answer = world.ask.QueryStatus(pb.QueryStatusRequest(name="t"))
        return answer.sources[0].error.code == errors.master.SOURCE_UNBOUND.code

    fake.lapse()
    until(unbound, "the lease of the worker ends")
    members = world.ask.ListMember(pb.ListMemberRequest(worker=True))
    assert [(one.name, one.stage, one.source) for one in members.workers] == [("w1", "offline", "s1")]
    resumed = world.operate(pb.OperateTaskRequest.OP_RESUME, "t")
    assert codes(list(resumed.sources)) == [errors.master.SOURCE_UNBOUND.code]
    assert world.operate(pb.OperateTaskRequest.OP_STOP, "t").result


def _causes(world: World, task: str) -> list[tuple[str, list[str]]]:
    answer = world.ask.Diagnose(pb.DiagnoseRequest(task=task, seconds=0.5))
    assert [part.result for part in answer.sources].count(False) == (0 if answer.result else 1)
    return [(each.id, list(each.sources)) for each in answer.findings]


def test_why_a_task_does_nothing(world: World) -> None:
    """Any master answers; a worker that cannot be asked, or is missing, is a cause. The overview is one call of each
    worker."""
    world.leader()
    world.worker("w1")
    lost = world.worker("w2")
    assert world.create("s1", "s2").result
    for name in ("t", "u", "v"):
        assert world.start(task_file(name, "s1", "s2")).result
    assert _causes(world, "t") == []
    assert world.operate(pb.OperateTaskRequest.OP_PAUSE, "t", "s1").result
    assert ("paused", ["s1"]) in _causes(world, "t")
    asked = sum(fake.overviews for fake in world.workers)
    overview = world.ask.Overview(pb.OverviewRequest())
    assert sum(fake.overviews for fake in world.workers) == asked + 2
    places = [(part.task, part.source) for part in overview.sources]
    assert sorted(places) == [(task, source) for task in ("t", "u", "v") for source in ("s1", "s2")]
    refused(lambda: world.ask.Diagnose(pb.DiagnoseRequest(task="nope")), errors.master.TASK_UNKNOWN)
    of_lost = lost.source
    lost.behaviour.is_earlier = True
    assert ("worker-earlier", [of_lost]) in _causes(world, "u")
    failed = [part for part in world.ask.Overview(pb.OverviewRequest()).sources if part.HasField("error")]
    assert {(part.source, part.error.code) for part in failed} == {(of_lost, errors.master.PEER_UNIMPLEMENTED.code)}
    world.workers.remove(lost)
    lost.vanish()
    assert ("worker-silent", [of_lost]) in _causes(world, "u")
    lost.lapse()
    until(lambda: ("source-unbound", [of_lost]) in _causes(world, "u"), "the lease of the worker ends")
    failed = [part for part in world.ask.Overview(pb.OverviewRequest()).sources if part.HasField("error")]
    assert {(part.source, part.error.code) for part in failed} == {(of_lost, errors.master.SOURCE_UNBOUND.code)}


def test_source_moves_to_a_free_worker_and_its_task_with_it(world: World) -> None:
    world.leader()
    first = world.worker("w1")
    assert world.create("s1").result
    assert world.start(task_file("t", "s1")).result
    second = world.worker("w2")
    world.workers.remove(first)
    first.vanish()
    first.lapse()
    until(lambda: second.source == "s1", "w2 holds s1")
    detail = world.ask.QueryStatus(pb.QueryStatusRequest(sources=["s1"]))
    assert detail.sources[0].source_status.worker == "w2"
    third = world.worker("w1")
    members = world.ask.ListMember(pb.ListMemberRequest())
    until(lambda: len(world.ask.ListMember(pb.ListMemberRequest(worker=True)).workers) == 2, "w1 is back")
    assert members.leader.name == "m1"
    assert members.masters[0].alive
    assert (second.source, third.source) == ("s1", "")


def test_a_purge_goes_to_the_worker_of_each_source(world: World) -> None:
    world.leader()
    world.worker("w1")
    lost = world.worker("w2")
    assert world.create("s1", "s2").result
    purge = pb.PurgeRelayRequest(sources=["s1", "nowhere", "s1"], filename="mysql-bin.000003", sub_dir="abc")
    answer = world.ask.PurgeRelay(purge)
    assert not answer.result
    went, unknown = answer.sources
    assert (went.source, went.worker, went.purged_segments, went.purged_bytes) == ("s1", "w1", 2, 512)
    assert (went.relay_begin, went.kept) == ("(mysql-bin.000003, 4)", "s1 mysql-bin.000003 abc")
    assert (unknown.error.code, unknown.msg) == (errors.master.SOURCE_UNKNOWN.code, answer.msg)
    world.workers.remove(lost)
    lost.vanish()
    lost.lapse()
    offline = pb.WorkerMember(name="w2", stage="offline", source="s2")
    until(lambda: offline in world.ask.ListMember(pb.ListMemberRequest(worker=True)).workers, "w2 is offline")
    unbound = world.ask.PurgeRelay(pb.PurgeRelayRequest(sources=["s2"], filename="mysql-bin.000003"))
    assert [(one.worker, one.error.code) for one in unbound.sources] == [("w2", errors.master.SOURCE_UNBOUND.code)]
    refused(lambda: world.ask.PurgeRelay(pb.PurgeRelayRequest(sources=["s1"])), errors.master.BAD_REQUEST)
    refused(lambda: world.ask.PurgeRelay(pb.PurgeRelayRequest(filename="x.1")), errors.master.BAD_REQUEST)


def test_source_waits_for_a_worker(world: World) -> None:
    world.leader()
    world.worker("w1")
    created = world.create("s1", "s2")
    assert created.result
    assert created.sources[1].msg
    late = world.worker("w2")
    until(lambda: late.source == "s2", "the waiting source is bound")
    shown = world.ask.OperateSource(pb.OperateSourceRequest(op=pb.OperateSourceRequest.OP_SHOW))
    assert [(one.source, one.worker, one.msg) for one in shown.sources] == [("s1", "w1", ""), ("s2", "w2", "")]


def test_chosen_worker_is_taken_or_refused(world: World) -> None:
    world.leader()
    world.worker("w1")
    chosen = world.worker("w2")

    def create(source: str, name: str) -> pb.OperateSourceResponse:
        request = pb.OperateSourceRequest(
            op=pb.OperateSourceRequest.OP_CREATE, files=[source_file(source)], worker=name
        )
        return world.ask.OperateSource(request)

    assert create("s1", "w2").result
    assert chosen.source == "s1"
    assert codes(list(create("s2", "w2").sources)) == [errors.master.WORKER_NOT_FREE.code]
    assert codes(list(create("s2", "w9").sources)) == [errors.master.WORKER_UNKNOWN.code]


def test_another_master_leads_when_the_leader_ends(world: World) -> None:
    first = world.leader("m1")
    second = world.master("m2")
    world.worker("w1")
    until(lambda: len(world.ask.ListMember(pb.ListMemberRequest(master=True)).masters) == 2, "two masters")
    not_leader = refused(lambda: world.create("s1"), errors.master.NOT_LEADER)
    assert not_leader.values["address"].startswith("127.0.0.1:")
    assert not_leader.values["leader"] == "m1"
    world.masters.remove(first)
    first.stop()
    until(lambda: second.leads, "m2 leads")
    assert world.create("s1").result


def test_a_master_that_does_not_lead_names_the_leader_for_each_command(world: World) -> None:
    """Not as an error of a source in an answer, after which dmctl would not ask the leader."""
    world.leader("m1")
    world.worker("w1")
    world.worker("w2")
    assert world.create("s1", "s2").result
    assert world.start(task_file("t", "s1")).result
    world.master("m2")
    until(lambda: len(world.ask.ListMember(pb.ListMemberRequest(master=True)).masters) == 2, "two masters")
    skip = pb.HandleBinlogRequest(op=pb.HandleBinlogRequest.OP_SKIP, task="t", binlog_pos="bin.000001:4")
    pause = pb.OperateRelayRequest(op=pb.OperateRelayRequest.OP_PAUSE, sources=["s1"])
    operations = pb.OperateSourceRequest
    # One source would change, one would not, and one does not exist.
    changed = pb.ConfigFile(name="s1.yaml", content=SOURCE.format(source="s1").replace("3306", "3307"))
    files = [changed, source_file("s2"), source_file("s3")]
    commands = (
        lambda: world.ask.HandleBinlog(skip),
        lambda: world.ask.OperateRelay(pause),
        lambda: world.ask.OperateSource(operations(op=operations.OP_UPDATE, files=files)),
        lambda: world.ask.OperateSource(operations(op=operations.OP_UPDATE, files=files, dry_run=True)),
        lambda: world.create("s1", "s3"),
        lambda: world.stop_source("s1", "s3"),
    )
    for command in commands:
        assert refused(command, errors.master.NOT_LEADER).values["leader"] == "m1"


def test_deposed_leader_writes_nothing(world: World) -> None:
    """The master still relies on its lease, but its leader record has been replaced."""
    world.leader()
    world.worker("w1")
    with world.etcd.client() as client:
        usurper = state.LeaderRecord(name="m9", address="elsewhere:1")
        client.put(etcd_keys.LEADER, etcd_keys.encode(usurper))
        before = client.get_prefix(etcd_keys.SOURCES)
        error = refused(lambda: world.create("s1"), errors.master.NOT_LEADER)
        assert error.values["address"] == "elsewhere:1"
        refused(lambda: world.create("s1", "s2"), errors.master.NOT_LEADER)
        assert client.get_prefix(etcd_keys.SOURCES).records == before.records


def test_restarted_master_needs_nothing_but_etcd(world: World) -> None:
    world.leader()
    world.worker("w1")
    assert world.create("s1").result
    assert world.start(task_file("t", "s1")).result
    world.end_master()
    world.leader()
    summary = world.ask.QueryStatus(pb.QueryStatusRequest())
    assert [(one.task_name, one.task_status) for one in summary.tasks] == [("t", "Running")]
    assert world.operate(pb.OperateTaskRequest.OP_PAUSE, "t").result


@pytest.mark.turns
def test_master_continues_after_etcd_was_killed(world: World) -> None:
    master = world.leader(ttl=30.0)
    world.worker("w1")
    assert world.create("s1").result
    world.etcd.kill()
    with pytest.raises(grpc.RpcError) as caught:
        world.ask.QueryStatus(pb.QueryStatusRequest())
    assert coded_from_rpc(caught.value, "m1").spec is errors.master.ETCD_UNAVAILABLE
    until(lambda: not master.leads, "the master does not believe to lead without its lease")
    world.etcd.start()
    until(lambda: master.leads, "it leads again")
    assert world.start(task_file("t", "s1")).result
    late = world.worker("w2")

    def known() -> bool:
        return any(one.name == "w2" for one in world.ask.ListMember(pb.ListMemberRequest(worker=True)).workers)

    until(known, "w2 is a member")
    assert late.source == ""


def test_stop_cuts_a_waiting_command_short(world: World) -> None:
    master = world.leader(rpc_timeout=600.0)
    fake = world.worker("w1")
    assert world.create("s1").result
    assert world.start(task_file("t", "s1")).result
    fake.behaviour.deaf = True
    waiting = world.ask.OperateTask.future(pb.OperateTaskRequest(op=pb.OperateTaskRequest.OP_PAUSE, name="t"))
    until(lambda: world.record("t", "s1").expected == common_pb2.STAGE_PAUSED, "the decision is stored")
    world.masters.remove(master)
    master.stop()
    assert codes(list(waiting.result().sources)) == [errors.master.STAGE_NOT_REACHED.code]


def test_a_command_that_a_later_one_replaced_ends_with_that_reason(world: World) -> None:
    """60326. The answer was 60305, "takes effect later", after the whole timeout."""
    world.leader(rpc_timeout=600.0)
    fake = world.worker("w1")
    assert world.create("s1").result
    assert world.start(task_file("t", "s1")).result
    fake.behaviour.deaf = True
    pausing = world.ask.OperateTask.future(pb.OperateTaskRequest(op=pb.OperateTaskRequest.OP_PAUSE, name="t"))
    until(lambda: world.record("t", "s1").expected == common_pb2.STAGE_PAUSED, "the decision is stored")
    resuming = world.ask.OperateTask.future(pb.OperateTaskRequest(op=pb.OperateTaskRequest.OP_RESUME, name="t"))
    assert codes(list(pausing.result().sources)) == [errors.master.COMMAND_REPLACED.code]
    fake.behaviour.deaf = False
    assert resuming.result().result


def test_bad_requests(world: World) -> None:
    world.leader()
    refused(lambda: world.operate(pb.OperateTaskRequest.OP_STOP), errors.master.BAD_REQUEST)
    refused(lambda: world.ask.OperateSource(pb.OperateSourceRequest()), errors.master.BAD_REQUEST)
    refused(lambda: world.start(task_file("t", "nowhere")), errors.master.SOURCE_UNKNOWN)
    refused(lambda: world.start(pb.ConfigFile(name="t.yaml", content="name: t\n")), errors.config.INVALID)
    refused(
        lambda: world.ask.CheckTask(pb.CheckTaskRequest(file=task_file("t", "nowhere"))),
        errors.master.SOURCE_UNKNOWN,
    )


def test_an_evicted_leader_does_not_lead_until_it_may(world: World) -> None:
    evict = pb.OperateLeaderRequest(op=pb.OperateLeaderRequest.OP_EVICT)
    first = world.leader("m1", ttl=30.0)
    refused(lambda: world.ask.OperateLeader(evict), errors.master.EVICT_ALONE)
    assert first.leads
    second = world.master("m2", ttl=30.0)
    until(lambda: len(world.ask.ListMember(pb.ListMemberRequest(master=True)).masters) == 2, "two masters")
    refused(lambda: world.stubs[1].OperateLeader(evict), errors.master.NOT_LEADER)
    assert world.stubs[0].OperateLeader(evict).result
    until(lambda: second.leads, "m2 leads")
    assert not first.leads
    world.worker("w1")
    assert world.create("s1").result
    world.end_master()
    with world.etcd.client() as client:
        until(lambda: client.get(etcd_keys.master("m2")) is None, "m2 is gone")
        # Its watch has seen that no master leads, and it could lead at once.
        with pytest.raises(AssertionError):
            until(lambda: first.leads or client.get(etcd_keys.LEADER) is not None, "m1 leads", 2)
    world.ask.OperateLeader(pb.OperateLeaderRequest(op=pb.OperateLeaderRequest.OP_CANCEL_EVICT))
    until(lambda: first.leads, "m1 leads again")


def test_a_dead_worker_is_forgotten_and_a_living_one_is_not(world: World) -> None:
    world.leader()
    world.worker("w1")
    assert world.create("s1").result
    forget = pb.OfflineMemberRequest(type="worker", name="w1")
    refused(lambda: world.ask.OfflineMember(forget), errors.master.MEMBER_ALIVE)
    lost = world.workers.pop()
    lost.vanish()
    lost.lapse()
    until(
        lambda: [one.stage for one in world.ask.ListMember(pb.ListMemberRequest(worker=True)).workers] == ["offline"],
        "w1 is offline",
    )
    assert "it held source s1" in world.ask.OfflineMember(forget).msg
    assert not world.ask.ListMember(pb.ListMemberRequest(worker=True)).workers
    refused(lambda: world.ask.OfflineMember(forget), errors.master.WORKER_UNKNOWN)
    refused(
        lambda: world.ask.OfflineMember(pb.OfflineMemberRequest(type="master", name="m1")), errors.master.MEMBER_ALIVE
    )
    refused(
        lambda: world.ask.OfflineMember(pb.OfflineMemberRequest(type="master", name="x")), errors.master.MASTER_UNKNOWN
    )
    world.worker("w2")
    until(lambda: world.workers[-1].source == "s1", "the source goes to whoever comes")
