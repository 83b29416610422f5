"""Tests the masters' transactions with a real etcd: fenced by the leadership, refused after a concurrent change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardmerge.master.placement import Bind, Unbind
from shardmerge.master.state import State
from shardmerge.master.store import Store, merged_task
from shardmerge.proto import common_pb2, errors, etcd_keys
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Delete, Etcd, KeyIs
from tests.support.etcd import Etcd as Server

RUNNING, PAUSED = common_pb2.STAGE_RUNNING, common_pb2.STAGE_PAUSED


@dataclass
class Believer:
    """A master that regards itself as leader since ``revision``, whatever etcd contains."""

    etcd: Etcd
    revision: int
    leads: bool = True

    def condition(self) -> KeyIs:
        return KeyIs(etcd_keys.LEADER, self.revision)

    def confirm(self) -> None:
        record = self.etcd.get(etcd_keys.LEADER)
        if record is None or record.mod_revision != self.revision:
            raise errors.master.NO_LEADER(master="believer")


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Server(tmp_path / "etcd").start()
    with server.client() as client:
        yield client
    server.stop()


@pytest.fixture
def store(etcd: Etcd) -> Store:
    revision = etcd.put(etcd_keys.LEADER, etcd_keys.encode(pb.LeaderRecord(name="m1")))
    etcd.put(etcd_keys.worker("w1"), etcd_keys.encode(pb.WorkerRecord(name="w1")))
    return Store(etcd, Believer(etcd, revision))


def _source(name: str) -> config.SourceConfig:
    return config.SourceConfig(source_id=name)


def _start(store: Store, *sources: str) -> int:
    task = pb.TaskRecord(name="t", sources=sources)
    subtasks = [
        pb.SubTaskRecord(config=config.SubTaskConfig(task="t", source_id=one), expected=RUNNING) for one in sources
    ]
    with store.deciding() as state:
        return store.add_subtasks(merged_task(task, state), subtasks, state)


def test_another_configuration_takes_the_place_of_the_one_that_was_read(store: Store) -> None:
    store.add_source(_source("s1"), "w1")
    _start(store, "s1")
    before = store.read()
    record = pb.SourceRecord(config=config.SourceConfig(source_id="s1", server_id=7), relay_paused=True)
    word = pb.SubTaskRecord()
    word.CopyFrom(before.subtasks["t", "s1"].value)
    word.binlog_ops.add(file="f", pos=4, server="a")
    revision = store.update_source(record, [word], "", before)
    state = store.read()
    assert (state.sources["s1"].value, state.sources["s1"].revision) == (record, revision)
    assert (state.subtasks["t", "s1"].value, state.bound_name("s1")) == (word, "w1")
    with pytest.raises(ShardmergeError) as caught:
        store.update_source(record, [], "", before)
    assert caught.value.spec is errors.master.CONFLICT
    record.config.disabled = True
    store.update_source(record, [], "w1", state)
    state = store.read()
    assert (state.bound_name("s1"), state.enabled()) == ("", frozenset())
    record.config.disabled = False
    store.update_source(record, [], "w1", state)
    assert store.read().bound_name("s1") == "w1"


def test_a_task_grows_and_shrinks_with_its_subtasks(store: Store, etcd: Etcd) -> None:
    store.add_source(_source("s1"), "w1")
    store.add_source(_source("s2"), "")
    revision = _start(store, "s1")
    assert store.read().subtasks["t", "s1"].revision == revision
    _start(store, "s2")
    state = store.read()
    assert list(state.tasks["t"].value.sources) == ["s1", "s2"]
    assert (state.bound_name("s1"), state.bound_name("s2")) == ("w1", "")
    revision = store.expect(RUNNING, [("t", "s1")], state)
    assert store.read().subtasks["t", "s1"].revision == revision, "written anew although it said so"
    etcd.put(etcd_keys.epoch("t", "s1"), b"{}")
    store.drop_subtasks([("t", "s1")], store.read())
    state = store.read()
    assert list(state.tasks["t"].value.sources) == ["s2"]
    assert etcd.get(etcd_keys.epoch("t", "s1")) is None
    store.drop_subtasks([("t", "s2")], state)
    assert not store.read().tasks
    store.drop_source("s1", store.read())
    assert set(store.read().sources) == {"s2"}
    assert not store.read().bounds


def _writes(store: Store) -> list[Callable[[State], object]]:
    """Return one call per transaction that the state of :func:`_prepared` allows."""
    task = pb.TaskRecord(name="u", sources=["s2"])
    subtask = pb.SubTaskRecord(config=config.SubTaskConfig(task="u", source_id="s2"))
    return [
        lambda state: store.add_source(_source("s3"), ""),
        lambda state: store.place(Bind("s2", "w1"), state),
        lambda state: store.place(Unbind("s1", "w1"), state),
        lambda state: store.add_subtasks(task, [subtask], state),
        lambda state: store.expect(PAUSED, [("t", "s1")], state),
        lambda state: store.drop_subtasks([("t", "s1")], state),
        lambda state: store.drop_source("s2", state),
    ]


def _prepared(store: Store) -> State:
    store.add_source(_source("s1"), "w1")
    store.add_source(_source("s2"), "")
    _start(store, "s1")
    return store.read()


def test_every_write_of_a_deposed_leader_is_refused(store: Store, etcd: Etcd) -> None:
    state = _prepared(store)
    etcd.put(etcd_keys.LEADER, etcd_keys.encode(pb.LeaderRecord(name="m2")))
    before = etcd.get_prefix(etcd_keys.PREFIX)
    for write in _writes(store):
        with pytest.raises(ShardmergeError) as caught:
            write(state)
        assert caught.value.spec is errors.master.NO_LEADER
    assert etcd.get_prefix(etcd_keys.PREFIX) == before


def test_every_write_requires_what_was_read(store: Store, etcd: Etcd) -> None:
    """Each transaction is refused after the records that it depends on have changed, and changes nothing."""
    state = _prepared(store)
    etcd.put(etcd_keys.source("s3"), b"{}")
    etcd.put(etcd_keys.source("s2"), etcd_keys.encode(pb.SourceRecord(config=_source("other"))))
    etcd.put(etcd_keys.bound("s1"), etcd_keys.encode(pb.BindingRecord(source_id="s1", worker="w9")))
    etcd.put(etcd_keys.bound("s2"), etcd_keys.encode(pb.BindingRecord(source_id="s2", worker="w9")))
    etcd.put(etcd_keys.subtask("t", "s1"), etcd_keys.encode(pb.SubTaskRecord(expected=PAUSED)))
    etcd.put(etcd_keys.task("u"), etcd_keys.encode(pb.TaskRecord(name="u")))
    before = etcd.get_prefix(etcd_keys.PREFIX)
    for write in _writes(store):
        with pytest.raises(ShardmergeError) as caught:
            write(state)
        assert caught.value.spec is errors.master.CONFLICT
    assert etcd.get_prefix(etcd_keys.PREFIX) == before


def test_no_update_replaces_a_newer_subtask(store: Store) -> None:
    """A task that was paused meanwhile stays paused."""
    state = _prepared(store)
    store.expect(PAUSED, [("t", "s1")], state)
    task, subtask = state.tasks["t"].value, state.subtasks["t", "s1"].value
    for write in (
        lambda: store.update_source(pb.SourceRecord(config=_source("s1")), [subtask], "", state),
        lambda: store.update_subtasks(task, [subtask], state),
        lambda: store.record_binlog_op(subtask, state),
    ):
        with pytest.raises(ShardmergeError) as caught:
            write()
        assert caught.value.spec is errors.master.CONFLICT
    assert store.read().subtasks["t", "s1"].value.expected == PAUSED


def test_no_source_is_bound_to_a_worker_that_has_left(store: Store, etcd: Etcd) -> None:
    state = _prepared(store)
    etcd.txn([], [Delete(etcd_keys.worker("w1"))])
    for write in (lambda: store.place(Bind("s2", "w1"), state), lambda: store.add_source(_source("s4"), "w1")):
        with pytest.raises(ShardmergeError) as caught:
            write()
        assert caught.value.spec is errors.master.CONFLICT


def test_one_bad_record_stops_decisions_instead_of_looking_absent(store: Store, etcd: Etcd) -> None:
    _prepared(store)
    etcd.put(etcd_keys.source("s1"), b'{"fieldOfANewerVersion": 1}')
    with pytest.raises(ShardmergeError) as caught:
        store.read()
    assert caught.value.spec is errors.master.BAD_RECORD
    assert etcd_keys.source("s1") in caught.value.message
