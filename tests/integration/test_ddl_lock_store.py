"""Tests the transactions of DDL locks in a real etcd: their conditions, and the records that they remove."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shardmerge.master.ddl_lock.records import Target, to_lock
from shardmerge.master.ddl_lock.resolver import Close, LetOwnerExecute, Open, unlock
from shardmerge.master.ddl_lock.situation import Lock, LockStage
from shardmerge.master.store import Store
from shardmerge.proto import errors, etcd_keys
from shardmerge.proto import state_pb2 as state
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd as Client
from shardmerge.proto.etcd import KeyIs
from tests.integration.ddl_lock_rig import Shards
from tests.support.etcd import Etcd


class _Leads:
    """The leadership, shown by a record that the test has put."""

    def __init__(self, revision: int) -> None:
        self._revision = revision

    @property
    def leads(self) -> bool:
        return True

    def condition(self) -> KeyIs:
        return KeyIs(etcd_keys.LEADER, self._revision)

    def confirm(self) -> None:
        pass


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    etcd = Etcd(tmp_path / "etcd").start()
    with etcd.client() as client:
        yield client
    etcd.stop()


def test_a_step_is_not_taken_when_something_it_rests_on_has_changed(client: Client) -> None:
    store = Store(client, _Leads(client.put(etcd_keys.LEADER, etcd_keys.encode(state.LeaderRecord(name="m")))))
    target = Target("t", "shop", "orders")
    lock = Lock("g", "s1", "ALTER", "f", "S0", "S1", 1.0)
    key = etcd_keys.lock("t", "shop", "orders")
    s1 = Shards(client, "t", "s1").table("a")
    task = etcd_keys.encode(state.TaskRecord(name="t"))
    client.put(etcd_keys.task("t"), task)
    for source in ("s1", "s2"):
        client.put(etcd_keys.subtask("t", source), etcd_keys.encode(state.SubTaskRecord()))
    s1.tell()

    def told(source: str) -> None:
        Shards(client, "t", source).table("b").tell()

    def gone() -> None:
        client.delete(key)

    def written() -> None:
        client.put(key, b"{}")

    def again() -> None:
        client.put(etcd_keys.task("t"), task)

    def deposed() -> None:
        client.put(etcd_keys.LEADER, b"{}")

    execute = LetOwnerExecute(replace(lock, stage=LockStage.EXECUTING))
    store.change_lock(target, Open(lock), store.read())
    cases = (
        (lambda: told("s1"), execute),
        (lambda: told("s2"), execute),
        (again, execute),
        (written, execute),
        (written, Close()),
        (written, unlock(lock)),
        (gone, execute),
        (written, Open(lock)),
        (deposed, execute),
    )
    for disturb, step in cases:
        client.delete(etcd_keys.shard("t", "s2"))
        read = store.read()
        disturb()
        before = client.get(key)
        with pytest.raises(ShardmergeError) as caught:
            store.change_lock(target, step, read)
        assert caught.value.spec is errors.master.CONFLICT
        assert client.get(key) == before
    store = Store(client, _Leads(client.put(etcd_keys.LEADER, b"{}")))
    store.change_lock(target, execute, store.read())
    assert to_lock(store.read().locks[target.key].value) == execute.lock
    store.change_lock(target, Close(), store.read())
    assert client.get(key) is None


def test_a_tasks_last_source_takes_its_locks_along(client: Client) -> None:
    """All in one transaction: a task of the same name that starts at once finds no locks."""
    store = Store(client, _Leads(client.put(etcd_keys.LEADER, etcd_keys.encode(state.LeaderRecord(name="m")))))
    client.put(etcd_keys.task("t"), etcd_keys.encode(state.TaskRecord(name="t")))
    kept = [etcd_keys.LEADER, etcd_keys.lock("tt", "shop", "orders")]
    client.put(kept[1], b"{}")
    for source in ("s1", "s2"):
        client.put(etcd_keys.subtask("t", source), etcd_keys.encode(state.SubTaskRecord()))
        Shards(client, "t", source).table("a").tell()
    store.change_lock(Target("t", "shop", "orders"), Open(Lock("g", "s1", "A", "f", "S0", "S1", 1.0)), store.read())
    store.drop_subtasks([("t", "s1")], store.read())
    left = {record.key for record in client.get_prefix(etcd_keys.PREFIX).records}
    assert left == {
        *kept, etcd_keys.task("t"), etcd_keys.subtask("t", "s2"), etcd_keys.shard("t", "s2"), etcd_keys.lock("t",
        "shop", "orders")
    }  # fmt: skip
    store.drop_subtasks([("t", "s2")], store.read())
    assert {record.key for record in client.get_prefix(etcd_keys.PREFIX).records} == set(kept)
