"""Tests the locks of sharding DDLs with a real etcd and a real master; the shard tables exist only as reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors, etcd_keys
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state
from tests.integration.ddl_lock_rig import LOCK_ID, Rig, Shards
from tests.support.refusal import refused
from tests.support.wait import until

GATHERING = state.LockRecord.STAGE_GATHERING
EXECUTING = state.LockRecord.STAGE_EXECUTING
RELEASED = state.LockRecord.STAGE_RELEASED


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.close()


def standings(lock: pb.DDLLock) -> list[tuple[str, str, str]]:
    return [(one.source, one.table, one.standing) for one in lock.tables]


def run(owner: Shards, lock: state.LockRecord) -> None:
    """Let the owner run the statement and report it."""
    owner.executed = lock.generation
    owner.tell()


@pytest.mark.turns
def test_a_ddl_comes_through_once_all_tables_have_come_to_it(rig: Rig) -> None:
    s1, s2 = rig.start("s1", "s2")
    assert rig.ask.ShowDDLLocks(pb.ShowDDLLocksRequest(task="t")).msg == "no DDL lock exists"
    refused(lambda: rig.ask.ShowDDLLocks(pb.ShowDDLLocksRequest(task="x")), errors.master.TASK_UNKNOWN)
    s1.table("a").table("b").park("a", "ADD c", "S1").tell()
    opened = rig.lock_is(GATHERING)
    assert (opened.owner, opened.before, opened.after, opened.forced) == ("s1", "S0", "S1", False)
    until(lambda: "ddl lock opened" in rig.log(), "it is logged")
    listed = rig.listed()
    assert (listed.id, listed.stage, listed.owner, list(listed.synced)) == (LOCK_ID, "gathering", "s1", [])
    assert list(listed.unsynced) == ["s1", "s2"]
    assert list(listed.ddls) == ["ALTER TABLE `shop`.`orders` ADD c"]
    assert standings(listed) == [("s1", "a", "ready"), ("s1", "b", "missing"), ("s2", "", "unknown")]

    s2.table("c").table("d", "S1").tell()
    s1.park("b", "ADD c", "S1").tell()
    until(lambda: list(rig.listed().synced) == ["s1"], "s1 has come to it")
    assert standings(rig.listed())[2:] == [("s2", "c", "missing"), ("s2", "d", "passed")]
    for sources, count in (((), 1), (("s2",), 1), (("s3",), 0)):
        assert len(rig.ask.ShowDDLLocks(pb.ShowDDLLocksRequest(sources=sources)).locks) == count
    assert rig.lock() == opened
    until(lambda: rig.log().count("[50107 ddl-lock-waits]") >= 2, "its age is told again and again")
    assert f"lock {LOCK_ID} waits for" in rig.log()

    s2.park("c", "ADD c", "S1").tell()
    executing = rig.lock_is(EXECUTING)
    assert executing.generation == opened.generation
    run(s1, executing)
    released = rig.lock_is(RELEASED)
    assert (released.generation, released.forced) == (opened.generation, False)
    s1.go_on("a", "b").park("a", "DROP c", "S0").tell()  # one of them has already reached the next DDL
    until(lambda: standings(rig.listed())[1:3] == [("s1", "b", "passed"), ("s2", "c", "ready")], "s1 went on")
    assert rig.lock_is(RELEASED) == released
    s2.go_on("c").tell()
    following = rig.lock_is(GATHERING, "DROP c")
    assert following.generation != opened.generation
    until(lambda: rig.log().count("ddl lock opened") == 2, "it is logged, too")
    for said in ("ddl lock executing", "ddl lock released", "ddl lock closed"):
        assert rig.log().count(said) == 1


@pytest.mark.turns
def test_a_conflict_is_reported_and_the_operator_resolves_it(rig: Rig) -> None:
    s1, s2 = rig.start("s1", "s2")
    s1.table("a").park("a", "ADD c", "S1").tell()
    s2.table("b").park("b", "ADD d", "S2").tell()
    opened = rig.lock_is(GATHERING)
    until(lambda: rig.listed().HasField("conflict"), "the conflict is listed")
    conflict = rig.listed().conflict
    assert conflict.code == errors.ddl.LOCK_CONFLICT.code
    for part in ("ADD c", "ADD d", "s2 `d`.`b`", "(bin.s2, 4)"):
        assert part in conflict.message
    assert f"unlock '{LOCK_ID}'" in conflict.workaround
    until(lambda: "[50101 ddl-lock-conflict]" in rig.log(), "the conflict is told")
    told = rig.log().count("[50107 ddl-lock-waits]")
    until(lambda: rig.log().count("[50107 ddl-lock-waits]") >= told + 3, "the loop has looked a few times more")
    assert rig.log().count("[50101 ddl-lock-conflict]") == 1
    assert rig.lock() == opened

    answer = rig.ask.UnlockDDLLock(pb.UnlockDDLLockRequest(id=LOCK_ID))
    assert answer.result
    assert answer.msg.startswith("source s1 runs the statement: ALTER TABLE")
    forced = rig.lock_is(EXECUTING)
    assert (forced.forced, forced.owner, forced.generation) == (True, "s1", opened.generation)
    assert "is to run" in rig.ask.UnlockDDLLock(pb.UnlockDDLLockRequest(id=LOCK_ID)).msg
    run(s1, forced)
    rig.lock_is(RELEASED)
    error = refused(lambda: rig.ask.UnlockDDLLock(pb.UnlockDDLLockRequest(id=LOCK_ID)), errors.ddl.LOCK_RELEASED)
    assert "s1 `d`.`a`" in str(error)
    s1.go_on("a").tell()
    assert rig.lock_is(GATHERING, "ADD d").owner == "s2"


@pytest.mark.turns
def test_a_statement_free_of_conflicts_takes_the_place_of_one_that_is_not(rig: Rig) -> None:
    s1, s2 = rig.start("s1", "s2")
    s1.table("a").park("a", "ADD c", "S1").tell()
    first = rig.lock_is(GATHERING)
    s2.table("b").park("b", "ADD d", "S2").tell()
    until(lambda: rig.listed().HasField("conflict"), "the conflict is listed")
    s1.table("a", "S2").park("a", "ADD c", "S1").tell()  # the table was altered by hand: it is past the other statement
    second = rig.lock_is(EXECUTING, "ADD d")
    assert (second.owner, first.generation != second.generation) == ("s2", True)


def test_an_owner_of_the_operators_choice(rig: Rig) -> None:
    s1, s2, s3 = rig.start("s1", "s2", "s3")
    s3.table("c").tell()
    s1.table("a").park("a", "ADD c", "S1").tell()
    rig.lock_is(GATHERING)
    s2.table("b").park("b", "ADD c", "S1").tell()
    until(lambda: list(rig.listed().synced) == ["s1", "s2"], "two have come")
    wrong = (
        (pb.UnlockDDLLockRequest(id="t-`shop`.`lines`"), errors.ddl.LOCK_UNKNOWN),
        (pb.UnlockDDLLockRequest(id=LOCK_ID, replace_owner="s3"), errors.ddl.LOCK_OWNER),
        (pb.UnlockDDLLockRequest(id=LOCK_ID, replace_owner="s9"), errors.ddl.LOCK_OWNER),
        (pb.UnlockDDLLockRequest(id=LOCK_ID, action="skip", table="z"), errors.ddl.LOCK_OPTIMISTIC),
        (pb.UnlockDDLLockRequest(id=LOCK_ID, sources=["s1"]), errors.ddl.LOCK_OPTIMISTIC),
        (pb.UnlockDDLLockRequest(id=LOCK_ID, table="a"), errors.ddl.LOCK_OPTIMISTIC),
        (pb.UnlockDDLLockRequest(id=LOCK_ID, replace_owner="s2", force_remove=True), errors.master.BAD_REQUEST),
    )
    before = rig.lock()
    for request, spec in wrong:
        refused(lambda request=request: rig.ask.UnlockDDLLock(request), spec)
    assert rig.lock() == before
    assert "--action, --table" in str(refused(lambda: rig.ask.UnlockDDLLock(wrong[3][0]), errors.ddl.LOCK_OPTIMISTIC))

    assert rig.ask.UnlockDDLLock(pb.UnlockDDLLockRequest(id=LOCK_ID, replace_owner="s2")).result
    executing = rig.lock_is(EXECUTING, owner="s2")
    # This owner seems not to succeed: the operator changes the owner once more.
    assert rig.ask.UnlockDDLLock(pb.UnlockDDLLockRequest(id=LOCK_ID, replace_owner="s1")).result
    again = rig.lock_is(EXECUTING, owner="s1")
    assert again.generation == executing.generation
    run(s2, again)  # it has succeeded nevertheless
    rig.lock_is(RELEASED)
    s1.go_on("a").tell()
    s2.go_on("b").tell()
    rig.no_lock()
    # A table that reaches the statement later gets a new lock; the others are past it.
    s3.park("c", "ADD c", "S1").tell()
    late = rig.lock_is(EXECUTING, owner="s3")
    assert late.generation != again.generation


def test_no_source_runs_it_when_the_operator_decides_so(rig: Rig) -> None:
    s1, s2 = rig.start("s1", "s2")
    s1.table("a").park("a", "ADD c", "S1").tell()
    s2.table("b").tell()
    opened = rig.lock_is(GATHERING)
    answer = rig.ask.UnlockDDLLock(pb.UnlockDDLLockRequest(id=LOCK_ID, force_remove=True))
    assert answer.msg.startswith("no source runs the statement")
    released = rig.lock()
    assert released is not None
    assert (released.stage, released.forced, released.generation) == (RELEASED, True, opened.generation)
    s1.go_on("a").tell()
    rig.no_lock()
    assert "ddl lock executing" not in rig.log()
    assert "ddl lock unlocked" in rig.log()


@pytest.mark.turns
def test_a_master_that_is_started_anew_continues_in_every_stage(rig: Rig) -> None:
    s1, s2 = rig.start("s1", "s2")
    s2.table("b").tell()
    s1.table("a").park("a", "ADD c", "S1").tell()
    opened = rig.lock_is(GATHERING)
    rig.master.kill()
    s2.park("b", "ADD c", "S1").tell()
    assert rig.lock() == opened
    rig.master.start()
    executing = rig.lock_is(EXECUTING)
    rig.master.kill()
    run(s1, executing)
    assert rig.lock() == executing
    rig.master.start()
    released = rig.lock_is(RELEASED)
    rig.master.kill()
    s1.go_on("a").tell()
    s2.go_on("b").tell()
    assert rig.lock() == released
    rig.master.start()
    rig.no_lock()
    assert opened.generation == executing.generation == released.generation
    assert s1.executed == opened.generation
    s1.park("a", "DROP c", "S0").tell()
    rig.lock_is(GATHERING, "DROP c")


def test_sources_that_leave_the_task(rig: Rig) -> None:
    s1, s2, s3 = rig.start("s1", "s2", "s3")
    [other] = rig.start_task("u", "s1")
    other.table("x").park("x", "ADD c", "S1").tell()
    for task, source in (("t", "s1"), ("t", "s2"), ("t", "s3"), ("u", "s1")):
        rig.client.put(etcd_keys.epoch(task, source), etcd_keys.encode(state.EpochRecord(worker="w")))
    s3.table("c").tell()
    s1.table("a").park("a", "ADD c", "S1").tell()
    opened = rig.lock_is(GATHERING, owner="s1")
    s2.table("b").park("b", "ADD c", "S1").tell()
    until(lambda: list(rig.listed().unsynced) == ["s3"], "only s3 is missing")
    rig.stop_task("s3")
    executing = rig.lock_is(EXECUTING, owner="s1")
    rig.stop_task("s1")
    heir = rig.lock_is(EXECUTING, owner="s2")
    assert opened.generation == executing.generation == heir.generation
    assert _keys(rig, etcd_keys.shards("t")) == [etcd_keys.shard("t", "s2")]
    assert _keys(rig, etcd_keys.epochs("t")) == [etcd_keys.epoch("t", "s2")]
    rig.stop_task()
    for folder in (etcd_keys.subtasks("t"), etcd_keys.shards("t"), etcd_keys.epochs("t"), etcd_keys.locks("t")):
        assert _keys(rig, folder) == []
    for folder in (etcd_keys.subtasks("u"), etcd_keys.shards("u"), etcd_keys.epochs("u"), etcd_keys.locks("u")):
        assert len(_keys(rig, folder)) == 1
    assert rig.lock() is None


def _keys(rig: Rig, prefix: str) -> list[str]:
    return [record.key for record in rig.client.get_prefix(prefix).records]
