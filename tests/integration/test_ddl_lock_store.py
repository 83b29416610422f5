"""The transactions of DDL locks over a real etcd: what they rest on, and what they take along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from master.ddl_lock import Close, Execute, Open, unlock
from master.ddl_lock_records import Target, to_lock
from master.ddl_lock_values import Lock, Stage
from master.store import Store
from proto import errors, keys
from proto import state_pb2 as state
from proto.errors import ShardmergeError
from proto.etcd import Etcd as Client
from proto.etcd import KeyIs
from tests.integration.ddl_lock_rig import Shards
from tests.support.etcd import Etcd


class _Leads:
    """The leadership by a record that the test has put."""

    def __init__(self, revision: int) -> None:
        self._revision = revision

    @property
    def leads(self) -> bool:
        return True

    def condition(self) -> KeyIs:
        return KeyIs(keys.LEADER, self._revision)

    def confirm(self) -> None:
        pass


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    etcd = Etcd(tmp_path / "etcd").start()
    with etcd.client() as client:
        yield client
    etcd.stop()


def test_a_step_is_not_taken_when_something_it_rests_on_has_changed(client: Client) -> None:
    store = Store(client, _Leads(client.put(keys.LEADER, keys.encode(state.LeaderRecord(name="m")))))
    target = Target("t", "shop", "orders")
    lock = Lock("g", "s1", "ALTER", "f", "S0", "S1", 1.0)
    key = keys.lock("t", "shop", "orders")
    s1 = Shards(client, "t", "s1").table("a")
    task = keys.encode(state.TaskRecord(name="t"))
    client.put(keys.task("t"), task)
    for source in ("s1", "s2"):
        client.put(keys.subtask("t", source), keys.encode(state.SubTaskRecord()))
    s1.tell()

    def told(source: str) -> None:
        Shards(client, "t", source).table("b").tell()

    def gone() -> None:
        client.delete(key)

    def written() -> None:
        client.put(key, b"{}")

    def again() -> None:
        client.put(keys.task("t"), task)

    def deposed() -> None:
        client.put(keys.LEADER, b"{}")

    execute = Execute(replace(lock, stage=Stage.EXECUTING))
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
        client.delete(keys.shard("t", "s2"))
        read = store.read()
        disturb()
        before = client.get(key)
        with pytest.raises(ShardmergeError) as caught:
            store.change_lock(target, step, read)
        assert caught.value.spec is errors.master.CONFLICT
        assert client.get(key) == before
    store = Store(client, _Leads(client.put(keys.LEADER, b"{}")))
    store.change_lock(target, execute, store.read())
    assert to_lock(store.read().locks[target.key].value) == execute.lock
    store.change_lock(target, Close(), store.read())
    assert client.get(key) is None


def test_a_tasks_last_source_takes_its_locks_along(client: Client) -> None:
    """In one transaction: a task of the same name that starts at once finds nothing of them."""
    store = Store(client, _Leads(client.put(keys.LEADER, keys.encode(state.LeaderRecord(name="m")))))
    client.put(keys.task("t"), keys.encode(state.TaskRecord(name="t")))
    kept = [keys.LEADER, keys.lock("tt", "shop", "orders")]
    client.put(kept[1], b"{}")
    for source in ("s1", "s2"):
        client.put(keys.subtask("t", source), keys.encode(state.SubTaskRecord()))
        Shards(client, "t", source).table("a").tell()
    store.change_lock(Target("t", "shop", "orders"), Open(Lock("g", "s1", "A", "f", "S0", "S1", 1.0)), store.read())
    store.drop_subtasks([("t", "s1")], store.read())
    left = {record.key for record in client.get_prefix(keys.PREFIX).records}
    assert left == {
        *kept, keys.task("t"), keys.subtask("t", "s2"), keys.shard("t", "s2"), keys.lock("t", "shop", "orders")
    }  # fmt: skip
    store.drop_subtasks([("t", "s2")], store.read())
    assert {record.key for record in client.get_prefix(keys.PREFIX).records} == set(kept)
