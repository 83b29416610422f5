"""The masters' transactions against a real etcd: fenced by the leadership, refused when somebody was first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from master.placement import Bind, Unbind
from master.state import State
from master.store import Store, merged_task
from proto import common_pb2, errors, keys
from proto import config_pb2 as config
from proto import state_pb2 as pb
from proto.errors import ShardmergeError
from proto.etcd import Delete, Etcd, KeyIs
from tests.support.etcd import Etcd as Server

RUNNING, PAUSED = common_pb2.STAGE_RUNNING, common_pb2.STAGE_PAUSED


@dataclass
class Believer:
    """A master that believes to lead since ``revision``, whatever etcd says."""

    etcd: Etcd
    revision: int
    leads: bool = True

    def condition(self) -> KeyIs:
        return KeyIs(keys.LEADER, self.revision)

    def confirm(self) -> None:
        record = self.etcd.get(keys.LEADER)
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
    revision = etcd.put(keys.LEADER, keys.encode(pb.LeaderRecord(name="m1")))
    etcd.put(keys.worker("w1"), keys.encode(pb.WorkerRecord(name="w1")))
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
    etcd.put(keys.epoch("t", "s1"), b"{}")
    store.drop_subtasks([("t", "s1")], store.read())
    state = store.read()
    assert list(state.tasks["t"].value.sources) == ["s2"]
    assert etcd.get(keys.epoch("t", "s1")) is None
    store.drop_subtasks([("t", "s2")], state)
    assert not store.read().tasks
    store.drop_source("s1", store.read())
    assert set(store.read().sources) == {"s2"}
    assert not store.read().bounds


def _writes(store: Store) -> list[Callable[[State], object]]:
    """One call per transaction that the state of :func:`_prepared` allows."""
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
    etcd.put(keys.LEADER, keys.encode(pb.LeaderRecord(name="m2")))
    before = etcd.get_prefix(keys.PREFIX)
    for write in _writes(store):
        with pytest.raises(ShardmergeError) as caught:
            write(state)
        assert caught.value.spec is errors.master.NO_LEADER
    assert etcd.get_prefix(keys.PREFIX) == before


def test_every_write_stands_on_what_was_read(store: Store, etcd: Etcd) -> None:
    """Each transaction is refused after the records it stands on have changed, and changes nothing."""
    state = _prepared(store)
    etcd.put(keys.source("s3"), b"{}")
    etcd.put(keys.source("s2"), keys.encode(pb.SourceRecord(config=_source("other"))))
    etcd.put(keys.bound("s1"), keys.encode(pb.BindingRecord(source_id="s1", worker="w9")))
    etcd.put(keys.bound("s2"), keys.encode(pb.BindingRecord(source_id="s2", worker="w9")))
    etcd.put(keys.subtask("t", "s1"), keys.encode(pb.SubTaskRecord(expected=PAUSED)))
    etcd.put(keys.task("u"), keys.encode(pb.TaskRecord(name="u")))
    before = etcd.get_prefix(keys.PREFIX)
    for write in _writes(store):
        with pytest.raises(ShardmergeError) as caught:
            write(state)
        assert caught.value.spec is errors.master.CONFLICT
    assert etcd.get_prefix(keys.PREFIX) == before


def test_no_source_is_bound_to_a_worker_that_has_left(store: Store, etcd: Etcd) -> None:
    state = _prepared(store)
    etcd.txn([], [Delete(keys.worker("w1"))])
    for write in (lambda: store.place(Bind("s2", "w1"), state), lambda: store.add_source(_source("s4"), "w1")):
        with pytest.raises(ShardmergeError) as caught:
            write()
        assert caught.value.spec is errors.master.CONFLICT


def test_one_bad_record_stops_decisions_instead_of_looking_absent(store: Store, etcd: Etcd) -> None:
    _prepared(store)
    etcd.put(keys.source("s1"), b'{"fieldOfANewerVersion": 1}')
    with pytest.raises(ShardmergeError) as caught:
        store.read()
    assert caught.value.spec is errors.master.BAD_RECORD
    assert keys.source("s1") in caught.value.message
