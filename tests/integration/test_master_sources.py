"""Tests operate-source update, transfer-source and the relay commands with a real etcd and fake workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors, etcd_keys, secret
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state
from shardmerge.proto import worker_pb2 as worker
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_to_proto
from tests.integration.fake_worker import FakeWorker
from tests.integration.test_master import World, codes, refused, source_file, task_file
from tests.support.wait import until

_Source = pb.OperateSourceRequest
_Relay = pb.OperateRelayRequest


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def _update(world: World, *files: pb.ConfigFile, dry_run: bool = False) -> pb.OperateSourceResponse:
    return world.ask.OperateSource(_Source(op=_Source.OP_UPDATE, files=files, dry_run=dry_run))


def _changed(source: str, *pairs: tuple[str, str], extra: str = "") -> pb.ConfigFile:
    file = source_file(source)
    for old, new in pairs:
        assert old in file.content
        file.content = file.content.replace(old, new)
    file.content += extra
    return file


def _stored(world: World, source: str) -> state.SourceRecord:
    with world.etcd.client() as client:
        record = client.get(etcd_keys.source(source))
    assert record is not None
    return etcd_keys.decode(state.SourceRecord, record.value, record.key)


def _transfer(world: World, source: str, name: str) -> pb.TransferSourceResponse:
    return world.ask.TransferSource(pb.TransferSourceRequest(source=source, worker=name))


def _relay(world: World, op: pb.OperateRelayRequest.Op, *sources: str) -> pb.OperateRelayResponse:
    return world.ask.OperateRelay(_Relay(op=op, sources=sources))


def test_a_new_login_is_tried_before_it_is_stored(world: World) -> None:
    world.leader()
    w1 = world.worker("w1")
    assert world.create("s1").result
    assert world.start(task_file("t", "s1")).result
    before = _stored(world, "s1")
    wrong = _changed("s1", ('"p"', '"wrong"'))
    w1.behaviour.check_results = [
        worker.CheckResult(name="connection", state=worker.CHECK_STATE_FAIL, error_msg="access denied")
    ]
    answer = _update(world, wrong)
    assert codes(list(answer.sources)) == [errors.master.SOURCE_CHECK_FAILED.code]
    assert "access denied" in answer.msg
    assert _stored(world, "s1") == before
    w1.behaviour.check_results = []
    right = _changed("s1", ('"p"', '"right"'))
    dry = _update(world, right, dry_run=True)
    assert dry.result and dry.dry_run and _stored(world, "s1") == before
    answer = _update(world, right)
    assert answer.result, answer
    assert [(one.key, one.before, one.after) for one in answer.changes] == [
        ("from.password", "(not shown)", "(not shown)")
    ]
    assert getattr(_stored(world, "s1").config, "from").password == "right"
    assert w1.switches == [], "the address is the same"
    again = _update(world, right)
    assert again.result and "nothing changes" in again.sources[0].msg and not again.changes
    assert codes(list(_update(world, source_file("s9")).sources)) == [errors.master.SOURCE_UNKNOWN.code]
    refused(lambda: _update(world, right, right), errors.master.BAD_REQUEST)
    refused(lambda: _update(world), errors.master.BAD_REQUEST)


def test_each_file_succeeds_by_itself_and_fixed_keys_are_refused(world: World) -> None:
    world.leader()
    world.worker("w1")
    world.worker("w2")
    assert world.create("s1", "s2").result
    assert world.start(task_file("t", "s1")).result
    extra = "case-sensitive: true\nserver-id: 77\n"
    answer = _update(world, _changed("s1", extra=extra), _changed("s2", extra=extra))
    assert codes(list(answer.sources)) == [errors.master.SOURCE_UPDATE_FIXED.code, 0]
    assert _stored(world, "s1").config.server_id == 0
    assert (_stored(world, "s2").config.server_id, _stored(world, "s2").config.case_sensitive) == (77, True)


def test_another_address_is_asked_of_the_worker_that_has_the_relay_log(world: World) -> None:
    world.leader()
    w1 = world.worker("w1")
    assert world.create("s1").result
    moved = _changed("s1", ("3306", "3307"))
    assert _update(world, moved).result
    assert w1.switches == [], "without tasks nothing can be lost"
    assert world.start(task_file("t", "s1")).result
    ask = pb.HandleBinlogRequest(
        op=pb.HandleBinlogRequest.OP_SKIP, task="t", binlog_pos="bin.000001:44", sources=["s1"]
    )
    assert world.ask.HandleBinlog(ask).result
    back = source_file("s1")
    w1.behaviour.switch_error = errors.relay.SWITCH_BUSY(source="s1", task="t", doing="copies its snapshot")
    assert codes(list(_update(world, back).sources)) == [errors.relay.SWITCH_BUSY.code]
    assert getattr(_stored(world, "s1").config, "from").port == 3307
    w1.behaviour.switch_error = None
    w1.behaviour.switch = worker.CheckSwitchResponse(server="uuid-1", same_server=True, proof="the same")
    answer = _update(world, back)
    assert answer.result and answer.sources[0].msg == "the same"
    assert [one.task for one in w1.switches[-1].subtasks] == ["t"]
    assert [op.server for op in world.record("t", "s1").binlog_ops] == [""]
    w1.behaviour.switch = worker.CheckSwitchResponse(server="uuid-1", proof="another")
    assert _update(world, moved).result
    assert [op.server for op in world.record("t", "s1").binlog_ops] == ["uuid-1"], "meant for the server before"
    w1.behaviour.next_server = "uuid-2"
    until(lambda: _status(world).sub_task_status[0].sync.next_server == "uuid-2", "the worker tells of it")
    assert world.ask.HandleBinlog(ask).result
    assert [(op.file, op.server) for op in world.record("t", "s1").binlog_ops] == [
        ("bin.000001", "uuid-1"),
        ("bin.000001", "uuid-2"),
    ]


def test_an_override_without_a_position_is_for_the_sources_that_have_an_error(world: World) -> None:
    """As in DM: the other sources have a false result of their own, and the answer is true."""
    world.leader()
    workers = {name: world.worker(name) for name in ("w1", "w2")}
    assert world.create("s1", "s2").result
    until(lambda: {one.source for one in workers.values()} == {"s1", "s2"}, "each worker has a source")
    stopped = next(one for one in workers.values() if one.source == "s1")
    at_statement = errors.ddl.NEEDS_SHARD_MODE(
        source="s1",
        task="t",
        table="d.t",
        shards=2,
        target="d.t",
        position="(bin.000001, 44)",
        statement="ALTER TABLE t ADD x INT",
    )
    stopped.behaviour.paused_with = error_to_proto(at_statement)
    assert world.start(task_file("t", "s1", "s2")).result is False
    no_error = errors.master.BINLOG_NO_ERROR

    def skip(*sources: str) -> pb.HandleBinlogResponse:
        return world.ask.HandleBinlog(
            pb.HandleBinlogRequest(op=pb.HandleBinlogRequest.OP_SKIP, task="t", sources=sources)
        )

    answer = skip()
    assert answer.result and not answer.msg
    assert [(one.source, one.result) for one in answer.sources] == [("s1", True), ("s2", False)]
    assert codes(list(answer.sources)) == [0, no_error.code]
    assert f"[{no_error.code} " in answer.sources[1].msg and "source 's2' has no error" in answer.sources[1].msg
    assert [op.pos for op in world.record("t", "s1").binlog_ops] == [44]
    assert not world.record("t", "s2").binlog_ops
    answer = skip("s2")
    assert answer.result and codes(list(answer.sources)) == [no_error.code]
    # Any other failure makes the answer false.
    answer = skip("s1", "s3")
    assert not answer.result and sorted(codes(list(answer.sources))) == [0, errors.master.SUBTASK_UNKNOWN.code]


def test_what_is_updated_while_a_switch_is_checked_is_not_passed_over(world: World) -> None:
    """Tables that begin to join during the check prevent a switch of the source to another server."""
    world.leader()
    w1 = world.worker("w1")
    assert world.create("s1").result and world.start(task_file("t", "s1")).result
    w1.behaviour.switch = worker.CheckSwitchResponse(server="uuid-1", proof="another")

    def update_task() -> None:
        record = world.record("t", "s1")
        record.update_token = "of another update"
        with world.etcd.client() as client:
            client.put(etcd_keys.subtask("t", "s1"), etcd_keys.encode(record))

    w1.behaviour.meanwhile = update_task
    moved = _changed("s1", ("3306", "3307"))
    assert codes(list(_update(world, moved).sources)) == [errors.master.CONFLICT.code]
    assert getattr(_stored(world, "s1").config, "from").port == 3306
    w1.behaviour.meanwhile = lambda: None
    assert _update(world, moved).result


def _status(world: World) -> pb.SourceSubTasks:
    return world.ask.QueryStatus(pb.QueryStatusRequest(name="t")).sources[0]


def test_another_address_is_refused_while_shard_tables_wait_or_without_proof(world: World) -> None:
    world.leader()
    w1 = world.worker("w1")
    assert world.create("s1").result
    assert world.start(task_file("t", "s1")).result
    moved = _changed("s1", ("3306", "3307"))
    waiting = state.ShardTable(schema="a", table="b", parked=state.ParkedAt(statement="ALTER"))
    told = state.ShardRecord(targets=[state.ShardTarget(schema="m", table="n", tables=[waiting])])
    with world.etcd.client() as client:
        client.put(etcd_keys.shard("t", "s1"), etcd_keys.encode(told))
        answer = _update(world, moved)
        assert codes(list(answer.sources)) == [errors.master.SOURCE_SWITCH_LOCKED.code]
        client.put(etcd_keys.shard("t", "s1"), etcd_keys.encode(state.ShardRecord()))
    world.workers.remove(w1)
    w1.stop()
    until(lambda: codes(list(_update(world, moved).sources)) == [errors.master.NO_WORKER.code], "nobody is there")
    assert getattr(_stored(world, "s1").config, "from").port == 3306


def test_a_disabled_source_has_no_worker_until_it_is_enabled(world: World) -> None:
    world.leader()
    w1 = world.worker("w1")
    off = _changed("s1", extra="enable: false\n")
    created = world.ask.OperateSource(_Source(op=_Source.OP_CREATE, files=[off]))
    assert created.result and "disabled" in created.sources[0].msg and not created.sources[0].worker
    shown = world.ask.OperateSource(_Source(op=_Source.OP_SHOW))
    assert [(one.source, one.worker, one.msg) for one in shown.sources] == [("s1", "", "disabled")]
    refused(lambda: world.start(task_file("t", "s1")), errors.master.SOURCE_DISABLED)
    assert _update(world, source_file("s1")).result
    assert w1.source == "s1"
    assert world.start(task_file("t", "s1")).result
    # A source that does not answer any more can still be disabled.
    w1.behaviour.check_results = [worker.CheckResult(name="connection", state=worker.CHECK_STATE_FAIL)]
    answer = _update(world, off)
    assert answer.result, answer
    assert w1.source == ""
    assert _status(world).error.code == errors.master.SOURCE_DISABLED.code
    # The worker takes another source; the disabled one waits for no worker.
    w1.behaviour.check_results = []
    assert world.create("s2").result
    assert w1.source == "s2"
    answer = _update(world, source_file("s1"))
    assert answer.result and "no live worker" in answer.sources[0].msg
    w2 = world.worker("w2")
    until(lambda: w2.source == "s1", "the source is taken up")
    until(lambda: bool(_status(world).sub_task_status), "its task with it")


def test_a_source_moves_to_a_free_worker(world: World) -> None:
    world.leader()
    w1, w2 = world.worker("w1"), world.worker("w2")
    assert world.create("s1").result
    assert world.start(task_file("t", "s1")).result
    assert w1.source == "s1"
    for source, name, spec in (
        ("s9", "w2", errors.master.SOURCE_UNKNOWN),
        ("s1", "w9", errors.master.WORKER_UNKNOWN),
    ):
        answer = _transfer(world, source, name)
        assert (answer.result, codes(list(answer.sources))) == (False, [spec.code])
    there = _transfer(world, "s1", "w1")
    assert there.result and "already" in there.msg
    w1.behaviour.needed = "bin.000003"
    w2.behaviour.move_error = errors.relay.MOVE_WOULD_LOSE(
        source="s1", host="h", port=1, position="bin.000003", reason="purged"
    )
    assert codes(list(_transfer(world, "s1", "w2").sources)) == [errors.relay.MOVE_WOULD_LOSE.code]
    assert [one.needed.file for one in w2.moves] == ["bin.000003"]
    assert w1.source == "s1"
    w2.behaviour.move_error = None
    moved = _transfer(world, "s1", "w2")
    assert moved.result and "w1" in moved.msg
    assert w2.source == "s1"
    until(lambda: w1.source == "", "the worker before has let go")
    assert world.create("s2").result
    assert codes(list(_transfer(world, "s1", "w1").sources)) == [errors.master.WORKER_NOT_FREE.code]
    off = _changed("s1", extra="enable: false\n")
    assert _update(world, off).result
    assert codes(list(_transfer(world, "s1", "w2").sources)) == [errors.master.SOURCE_DISABLED.code]


_RESET = errors.relay.SOURCE_LOG_RESET(source="s1", position="(bin.000003, 44)", found="(bin.000001, 4)", reason="x")
_LACKS = errors.relay.SOURCE_LACKS_GTIDS(source="s1", host="h", port=1, server="b", missing="0-1-7", before="a")


@pytest.mark.parametrize(
    ("of_relay", "of_task"),
    [
        (_LACKS, None),
        (_RESET, _RESET),
        (_RESET, _RESET.of_mixed_rows("t", "s1", "no rule identifies them", "m.n")),
    ],
)
def test_a_source_whose_binlog_is_another_one_is_not_moved(
    world: World, of_relay: ShardmergeError, of_task: ShardmergeError | None
) -> None:
    """A new relay log would begin in the new binlog, and what is missing between the two would not be noticed. The way
    out of the task is for the rows at its target."""
    world.leader()
    w1, w2 = world.worker("w1"), world.worker("w2")
    assert world.create("s1").result
    w1.behaviour.paused_with = None if of_task is None else error_to_proto(of_task)
    assert world.start(task_file("t", "s1")).result is (of_task is None)
    w1.behaviour.needed = "bin.000001"
    w1.behaviour.relay_error = error_to_proto(of_relay)
    [refused] = _transfer(world, "s1", "w2").sources
    assert (refused.error.code, w1.source, w2.source) == (errors.relay.MOVE_AFTER_LOSS.code, "s1", "")
    assert str(of_relay) in refused.msg and "worker w1" in refused.msg
    assert refused.error.workaround.endswith((of_task or of_relay).workaround)
    w1.behaviour.relay_error = error_to_proto(errors.relay.DISK_FULL(source="s1", directory="/d"))
    assert _transfer(world, "s1", "w2").result, "the source has all that was read"


def test_the_relay_is_paused_not_stopped(world: World) -> None:
    world.leader()
    world.worker("w1")
    assert world.create("s1").result
    assert _relay(world, _Relay.OP_START, "s1").result
    stopped = _relay(world, _Relay.OP_STOP, "s1", "s9")
    assert codes(list(stopped.sources)) == [errors.master.RELAY_ALWAYS_ON.code, errors.master.SOURCE_UNKNOWN.code]
    assert _relay(world, _Relay.OP_PAUSE, "s1").result
    assert _stored(world, "s1").relay_paused
    assert _update(world, _changed("s1", extra="server-id: 5\n")).result
    assert _stored(world, "s1").relay_paused, "an update is not about that"
    resumed = _relay(world, _Relay.OP_RESUME, "s1")
    assert resumed.result and resumed.sources[0].msg == "the relay fetches again"
    again = _relay(world, _Relay.OP_RESUME, "s1")
    assert again.result and "the relay was not paused" in again.sources[0].msg, "an error may have stopped it"
    assert not _stored(world, "s1").relay_paused
    assert _relay(world, _Relay.OP_PAUSE, "s1").result
    assert _relay(world, _Relay.OP_START, "s1").result
    assert not _stored(world, "s1").relay_paused
    refused(lambda: _relay(world, _Relay.OP_PAUSE), errors.master.BAD_REQUEST)


def _shown(world: World) -> list[pb.SourceResult]:
    return list(world.ask.OperateSource(_Source(op=_Source.OP_SHOW)).sources)


def test_a_source_is_created_without_a_worker_and_its_first_worker_reports_its_error(world: World) -> None:
    world.leader()
    created = world.create("s1")
    assert created.result and not created.msg
    assert (created.sources[0].worker, created.sources[0].HasField("error")) == ("", False)
    assert "not checked" in created.sources[0].msg
    [shown] = _shown(world)
    assert shown.result and "waits for a free dm-worker" in shown.msg
    asked = pb.QueryStatusRequest(sources=["s1"])
    [status] = world.ask.QueryStatus(asked).sources
    assert (status.result, status.error.code) == (False, errors.master.SOURCE_UNBOUND.code)
    assert codes(list(world.create("s1").sources)) == [errors.master.SOURCE_EXISTS.code]
    # Without tasks nothing depends on the stored file: it can be corrected.
    updated = _update(world, _changed("s1", ('"p"', '"q"')))
    assert updated.result and "not checked" in updated.sources[0].msg
    assert getattr(_stored(world, "s1").config, "from").password == "q"

    w1 = FakeWorker("w1", world.etcd.endpoint)
    error = errors.master.SOURCE_CHECK_FAILED(source="s1", reason="access denied", instruction="Correct it.")
    w1.behaviour.source_error = error_to_proto(error)
    world.workers.append(w1.start())
    until(lambda: w1.source == "s1", "the source is bound")
    [shown] = _shown(world)
    assert (shown.result, shown.worker, shown.error.code, shown.msg) == (True, "w1", error.code, str(error))
    assert shown.error.workaround == "Correct it."
    [status] = world.ask.QueryStatus(asked).sources
    assert (status.result, status.source_status.result.code) == (True, error.code)
    w1.behaviour.source_error = None
    [shown] = _shown(world)
    assert (shown.msg, shown.HasField("error")) == ("", False)
    assert not world.ask.QueryStatus(asked).sources[0].source_status.HasField("result")


def test_a_worker_that_was_killed_does_not_prevent_the_creation_of_a_source(world: World) -> None:
    """Its record remains until its lease ends. Another worker, busy or not, checks the source; without one, it is
    stored unchecked."""
    world.leader()
    killed, busy = world.worker("w1"), world.worker("w2")
    request = _Source(op=_Source.OP_CREATE, files=[source_file("s1")], worker="w2")
    assert world.ask.OperateSource(request).result
    world.workers.remove(killed)
    killed.vanish()
    # The worker that the operator has chosen must answer.
    chosen = world.ask.OperateSource(_Source(op=_Source.OP_CREATE, files=[source_file("s2")], worker="w1"))
    assert codes(list(chosen.sources)) == [errors.master.PEER_UNREACHABLE.code]
    busy.behaviour.check_results = [
        worker.CheckResult(name="connection", state=worker.CHECK_STATE_FAIL, error_msg="access denied")
    ]
    assert codes(list(world.create("s2").sources)) == [errors.master.SOURCE_CHECK_FAILED.code]
    world.workers.remove(busy)
    busy.vanish()
    created = world.create("s2")
    assert created.result and "not checked" in created.sources[0].msg
    for one in (killed, busy):
        one.lapse()


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        ('"p"', True),  # as plain text, in whatever form the password is stored
        ('"${DM_STOLEN}"', False),
        ('""', False),
        ('"******"', False),
        ("enc", False),
    ],
    ids=["plain", "reference", "none", "masked", "encrypted"],
)
@pytest.mark.parametrize("change", [("3306", "3307"), ("127.0.0.1", "127.0.0.2")], ids=["port", "host"])
def test_another_address_needs_the_password_itself(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: tuple[str, str], given: str, passes: bool
) -> None:
    monkeypatch.setenv("DM_STOLEN", "p")
    key = str(tmp_path / "key")
    secret.new_key(key)
    secret.use(key)
    encrypted = secret.load_key(key).encrypt("p")
    try:
        world.leader()
        w1 = world.worker("w1")
        assert world.create("s1").result
        before, asked = _stored(world, "s1"), w1.sources_checked
        password = f'"{encrypted}"' if given == "enc" else given
        for dry_run in (True, False):
            answer = _update(world, _changed("s1", change, ('"p"', password)), dry_run=dry_run)
            if passes:
                assert answer.result, answer
                continue
            assert codes(list(answer.sources)) == [errors.master.SOURCE_PASSWORD_NEEDED.code]
            assert "127.0.0.1:3306" in answer.msg and "plain text" in answer.sources[0].error.workaround
            assert _stored(world, "s1") == before
        assert (w1.sources_checked > asked) is passes
        if passes:
            # The stored password is encrypted; at the same address every form of it is accepted again.
            assert secret.is_encrypted(getattr(_stored(world, "s1").config, "from").password)
            for same in ("${DM_STOLEN}", encrypted):
                again = _update(world, _changed("s1", change, ('"p"', f'"{same}"')))
                assert again.result and "nothing changes" in again.sources[0].msg
    finally:
        secret.use("")
