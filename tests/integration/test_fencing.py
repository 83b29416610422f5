"""Tests that no lane of an older epoch can commit (I3): the tests create such lanes on purpose."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.row_change import ChangeKind, RowChange
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.replicate.lane.target_writer import TargetWriter
from shardmerge.worker.target.apply.target_session import ApplySettings
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.schema import ensure_meta
from shardmerge.worker.target.renames import target_renames
from shardmerge.worker.target.renames.rename_target import rename_lock, rename_locked, settle
from shardmerge.worker.target.renames.target_renames import PartitioningChange, RenameState, TargetTableRename
from tests.support.cluster import Cluster
from tests.support.epochs import numbered
from tests.support.mariadb import MariaDB
from tests.support.plans import integer, table_plan, text
from tests.support.wait import until
from tests.support.world import Family
from tests.support.writer import Writer

PLAN = table_plan((integer(), text("v")), (0,))
WHO = SubtaskKey("dm_meta", "zombie", "mysql-01")


@pytest.fixture
def target(make_server: Callable[..., MariaDB]) -> Iterator[MariaDB]:
    server = make_server("target")
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, v VARCHAR(50))")
    yield server


def _endpoint(server: MariaDB) -> Endpoint:
    return Endpoint(server.host, server.port, "root")


def _prepare(server: MariaDB, epoch: int) -> None:
    session = connect(_endpoint(server), Side.TARGET, name="target")
    ensure_meta(session, "dm_meta")
    subtask_record.take_over(session, WHO, numbered(epoch), "")
    start = SourcePosition("mysql-bin.000001", 4)
    first = (Checkpoint(0, epoch, 0, "relay", RelayOffset(1, 4), 0, start, 0.0),)
    subtask_record.begin(
        session,
        WHO,
        epoch,
        subtask_record.Phase.REPLICATE,
        start,
        (PLAN.table,),
        lambda inner: checkpoints.insert(inner, WHO, first),
    )
    session.close()


def _take_over(server: MariaDB, epoch: int) -> None:
    session = connect(_endpoint(server), Side.TARGET, name="target")
    subtask_record.take_over(session, WHO, numbered(epoch), "")
    session.close()


def _writer(server: MariaDB, epoch: int) -> TargetWriter:
    return TargetWriter(ApplySettings("zombie", "mysql-01", "dm_meta", _endpoint(server), safe_mode=False), 0, epoch)


def _batch(key: int) -> Batch:
    batch = Batch(0, 1, "mysql-bin.000001")
    row = (str(key).encode(), b"'x'")
    batch.add(RowChange(0, 0, ChangeKind.INSERT, PLAN, (), row), 100)
    return batch


def _moved(found: Checkpoint) -> Checkpoint:
    return found.moved(RelayOffset(1, 100), 0, SourcePosition("mysql-bin.000001", 100), 0.0)


def test_an_older_epoch_commits_nothing(target: MariaDB) -> None:
    _prepare(target, 5)
    old = _writer(target, 5)
    found = old.read_checkpoint()
    _take_over(target, 6)
    with pytest.raises(ShardmergeError) as caught:
        old.commit(_batch(1), _moved(found))
    assert caught.value.spec is errors.replicate.FENCED
    assert target.query("SELECT COUNT(*) FROM shop.orders") == [(0,)]
    assert target.query("SELECT seq, byte FROM dm_meta.lane_checkpoint") == [(0, 4)]
    with pytest.raises(ShardmergeError) as caught:
        old.read_checkpoint()
    assert caught.value.spec is errors.replicate.FENCED


def test_only_a_newer_epoch_takes_over(target: MariaDB) -> None:
    _prepare(target, 5)
    for epoch in (4, 5):
        with pytest.raises(ShardmergeError) as caught:
            _take_over(target, epoch)
        assert caught.value.spec is errors.replicate.FENCED
    _take_over(target, 6)


def test_a_run_that_was_confirmed_before_etcd_lost_its_data_does_not_take_over(target: MariaDB) -> None:
    """Its epoch is higher than those that etcd gives after the loss. Another run has taken over in between, so it must
    ask again, and etcd does not confirm it any more."""
    _prepare(target, 5)
    now = connect(_endpoint(target), Side.TARGET, name="target")
    zombie = connect(_endpoint(target), Side.TARGET, name="target")
    asked: list[int] = []

    def confirmed_before_the_loss(above: int) -> int:
        asked.append(above)
        if len(asked) > 1:
            raise errors.worker.NOT_BOUND(source=WHO[2], worker="worker-1")
        assert subtask_record.take_over(now, WHO, numbered(6), "").epoch == 6
        return 1000

    with pytest.raises(ShardmergeError) as caught:
        subtask_record.take_over(zombie, WHO, confirmed_before_the_loss, "")
    assert caught.value.spec is errors.worker.NOT_BOUND
    assert asked == [5, 6]
    assert target.query("SELECT epoch FROM dm_meta.subtask") == [(6,)]
    assert target.query("SELECT epoch FROM dm_meta.lane_checkpoint") == [(6,)]
    owner = _writer(target, 6)
    owner.commit(_batch(1), _moved(owner.read_checkpoint()))
    assert target.query("SELECT id FROM shop.orders") == [(1,)]
    now.close()
    zombie.close()


def test_of_two_runs_that_were_confirmed_at_once_the_last_one_takes_over_last(target: MariaDB) -> None:
    _prepare(target, 5)
    session, other = (connect(_endpoint(target), Side.TARGET, name="target") for _ in range(2))
    asked: list[int] = []

    def newest(above: int) -> int:
        asked.append(above)
        if len(asked) == 1:  # the earlier run takes over after the newest one was confirmed
            subtask_record.take_over(other, WHO, numbered(6), "")
            return 7
        return 8

    assert subtask_record.take_over(session, WHO, newest, "").epoch == 8
    assert asked == [5, 6]
    _refused(errors.replicate.FENCED, lambda: _writer(target, 6).read_checkpoint())
    session.close()
    other.close()


def test_taking_over_fences_the_lanes_of_joining_tables_too(target: MariaDB) -> None:
    _prepare(target, 5)
    session = connect(_endpoint(target), Side.TARGET, name="target")
    start = SourcePosition("mysql-bin.000001", 4)
    first = (Checkpoint(0, 5, 0, "relay", RelayOffset(1, 4), 0, start, 0.0),)
    checkpoints.insert(session, WHO, first, Stream.JOIN)
    session.close()
    settings = ApplySettings("zombie", "mysql-01", "dm_meta", _endpoint(target), safe_mode=False, stream=Stream.JOIN)
    old = TargetWriter(settings, 0, 5)
    found = old.read_checkpoint()
    _take_over(target, 6)
    with pytest.raises(ShardmergeError) as caught:
        old.commit(_batch(1), _moved(found))
    assert caught.value.spec is errors.replicate.FENCED
    assert target.query("SELECT COUNT(*) FROM shop.orders") == [(0,)]


def test_two_tasks_of_one_epoch_cannot_both_commit(target: MariaDB) -> None:
    """Spark may start a task again while the first attempt still runs."""
    _prepare(target, 5)
    one, two = _writer(target, 5), _writer(target, 5)
    found = one.read_checkpoint()
    assert two.read_checkpoint() == found
    one.commit(_batch(1), _moved(found))
    with pytest.raises(ShardmergeError) as caught:
        two.commit(_batch(2), _moved(found))
    assert caught.value.spec is errors.replicate.FENCED
    assert target.query("SELECT id FROM shop.orders") == [(1,)]


def test_taking_over_waits_for_a_commit_under_way(
    target: MariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either both rows and checkpoint of the older epoch are visible, or neither (I2)."""
    monkeypatch.setenv("SHARDMERGE_HOOKS", str(tmp_path))
    # The target must not time out the commit, however long this test takes to release it.
    monkeypatch.setattr("shardmerge.worker.target.apply.target_session._SILENCE_SECONDS", 3600)
    _prepare(target, 5)
    old = _writer(target, 5)
    found = old.read_checkpoint()
    (tmp_path / "lane0.before_commit.hold").touch()
    committing = threading.Thread(target=lambda: old.commit(_batch(1), _moved(found)))
    committing.start()
    until(lambda: list(tmp_path.glob("lane0.before_commit.reached.*")), "the commit is under way")
    taking = threading.Thread(target=lambda: _take_over(target, 6))
    taking.start()
    until(
        lambda: any("UPDATE" in thread.statement and "epoch" in thread.statement for thread in target.threads()),
        "the take-over waits for the lock",
    )
    (tmp_path / "lane0.before_commit.hold").unlink()
    committing.join(300)
    taking.join(300)
    now = _writer(target, 6).read_checkpoint()
    assert (now.seq, now.offset) == (1, RelayOffset(1, 100))
    assert target.query("SELECT id FROM shop.orders") == [(1,)]


@pytest.mark.spark
def test_a_frozen_worker_thaws_as_a_zombie(
    make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster], target: MariaDB
) -> None:
    source = make_server("source")
    cluster = make_cluster(workers=2, worker_settings={"keepalive-ttl": 20})
    cluster.create_source("mysql-01", source)
    family = Family("ice", (("mysql-01", source),), target)
    shards = family.create(200)
    with Writer(shards, seed=32) as writer:
        cluster.start_task(family.task())
        cluster.wait_replicating("ice")
        frozen = cluster.worker_of("mysql-01")
        cluster.hooks.hold("lane0.commit")
        [zombie] = cluster.hooks.reached("lane0.commit")
        frozen.freeze()
        cluster.hooks.release("lane0.commit")
        until(lambda: cluster.worker_of("mysql-01") is not frozen, "the source is bound to the other worker", 300)
        cluster.wait_replicating("ice")
        writer.go_on()
        frozen.thaw()
        until(lambda: f"fenced pid={zombie}" in _fenced(frozen.log), "the zombie tried to commit and was refused", 300)
        writer.stop()
    cluster.wait_caught_up("ice", {"mysql-01": source})
    assert family.verdict().differences == 0, family.verdict()


def _fenced(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def test_forgotten_records_fence_the_earlier_run(target: MariaDB) -> None:
    """stop-task --remove-meta keeps the epoch: an earlier process neither takes over nor commits, and records of a
    later start stay."""
    _prepare(target, 5)
    old = _writer(target, 5)
    found = old.read_checkpoint()
    session = connect(_endpoint(target), Side.TARGET, name="target")
    with pytest.raises(ShardmergeError) as newer:
        subtask_record.forget_task(session, "dm_meta", "zombie", 4)
    assert newer.value.spec is errors.master.RECORDS_OF_NEWER_START
    assert len(target.query("SELECT 1 FROM dm_meta.lane_checkpoint")) == 1
    assert subtask_record.forget_task(session, "dm_meta", "zombie", 7) == ("mysql-01",)
    assert target.query("SELECT 1 FROM dm_meta.lane_checkpoint UNION ALL SELECT 1 FROM dm_meta.table_structure") == []
    assert read_target_members(session, WHO._replace(source="mysql-02")).unrecorded_sources == ()
    with pytest.raises(ShardmergeError) as fenced:
        old.commit(_batch(1), _moved(found))
    assert fenced.value.spec is errors.replicate.FENCED
    with pytest.raises(ShardmergeError) as late:
        subtask_record.take_over(session, WHO, numbered(6), "")
    assert late.value.spec is errors.replicate.FENCED
    row = subtask_record.take_over(session, WHO, numbered(8), "")
    assert (row.phase, row.starts_over) == (subtask_record.Phase.NEW, False)
    assert read_target_members(session, WHO._replace(source="mysql-02")).unrecorded_sources == ("mysql-01",)
    session.close()


OLD, NEW = TargetTable("shop", "orders"), TargetTable("shop", "all_orders")


def _rename(recorded: str, before: TargetTable = OLD, after: TargetTable = NEW) -> TargetTableRename:
    change = PartitioningChange(recorded, f"{recorded}+", "after")
    return TargetTableRename("zombie", before, after, RenameState.BEGUN, {"mysql-01": change})


def _refused(spec: ErrorSpec, work: Callable[[], object]) -> None:
    with pytest.raises(ShardmergeError) as caught:
        work()
    assert caught.value.spec is spec


def _recorded(target: MariaDB) -> tuple[object, ...]:
    [(dealing,)] = target.query("SELECT dealing FROM dm_meta.subtask")
    return dealing, *(state for (state,) in target.query("SELECT state FROM dm_meta.target_rename"))


@pytest.mark.turns
def test_a_rename_fences_the_earlier_run_and_is_settled(target: MariaDB) -> None:
    """The table that exists decides, and nothing is settled while a session may still rename it."""
    _prepare(target, 5)
    old = _writer(target, 5)
    found = old.read_checkpoint()
    session, other = (connect(_endpoint(target), Side.TARGET, name="target") for _ in range(2))
    _refused(errors.master.RENAME_BUSY, lambda: target_renames.begin(session, "dm_meta", _rename(""), 4))
    _refused(errors.master.RENAME_BUSY, lambda: target_renames.begin(session, "dm_meta", _rename("other"), 7))
    assert _recorded(target) == ("",)
    target_renames.begin(session, "dm_meta", _rename(""), 7)
    assert _recorded(target) == ("+", "begun")
    _refused(errors.replicate.FENCED, lambda: old.commit(_batch(1), _moved(found)))
    _refused(errors.replicate.FENCED, lambda: subtask_record.take_over(session, WHO, numbered(6), ""))
    with rename_lock(other, "dm_meta", "zombie"):
        _refused(errors.replicate.RENAME_UNDER_WAY, lambda: settle(session, "dm_meta", "zombie"))
    settle(session, "dm_meta", "zombie")
    assert _recorded(target) == ("+",), "undone: the old table exists"
    target.execute(
        "INSERT INTO dm_meta.lock_run VALUES ('zombie', 'shop', 'orders', 'g', 's'), "
        "('zombie', 'shop', 'all_orders', 'earlier', 's'), ('other', 'shop', 'orders', 'g', 's')"
    )
    target_renames.begin(session, "dm_meta", _rename("+"), 8)
    target.execute("RENAME TABLE shop.orders TO shop.all_orders")
    settle(session, "dm_meta", "zombie")
    assert _recorded(target) == ("after", "moved")
    runs = target.query("SELECT task, target_table, generation FROM dm_meta.lock_run ORDER BY task")
    assert runs == [("other", "orders", "g"), ("zombie", "all_orders", "g")]
    back = _rename("after", NEW, OLD)
    with rename_lock(session, "dm_meta", "zombie"):
        target.execute("CREATE TABLE shop.orders (id INT)")
        _refused(errors.master.RENAME_REFUSED, lambda: rename_locked(session, "dm_meta", back, 9))
    assert _recorded(target) == ("after+",)
    target_renames.begin(session, "dm_meta", _rename("after+", NEW, OLD), 9)
    _refused(errors.replicate.RENAME_UNCLEAR, lambda: settle(session, "dm_meta", "zombie"))
    target.execute("DROP TABLE shop.orders")
    target.execute("UPDATE dm_meta.subtask SET dealing = 'by hand'", "RENAME TABLE shop.all_orders TO shop.orders")
    _refused(errors.replicate.RENAME_UNCLEAR, lambda: settle(session, "dm_meta", "zombie"))
    assert _recorded(target) == ("by hand", "begun")
    subtask_record.forget_task(session, "dm_meta", "zombie", 9)
    assert _recorded(target) == ("",)
    session.close()
    other.close()


def test_a_rename_that_the_target_refuses_is_undone(target: MariaDB) -> None:
    _prepare(target, 5)
    session = connect(_endpoint(target), Side.TARGET, name="target")
    target.execute("CREATE SCHEMA attic", "CREATE TRIGGER shop.t AFTER INSERT ON shop.orders FOR EACH ROW SET @a = 1")
    away = _rename("", after=TargetTable("attic", "orders"))
    with rename_lock(session, "dm_meta", "zombie"):
        _refused(errors.master.RENAME_REFUSED, lambda: rename_locked(session, "dm_meta", away, 7))
    assert _recorded(target) == ("+",)
    session.close()
