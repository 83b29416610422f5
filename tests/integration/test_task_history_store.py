"""Tests how the history of tasks is kept in a real etcd: outages, bounds, thinning, and changes of the leader."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from shardmerge.master.commands.task.history import HistoryCommand
from shardmerge.master.store import Store
from shardmerge.master.task_history import keeper
from shardmerge.master.task_history.block_store import BlockStore, read_samples
from shardmerge.master.task_history.blocks import DAY, SampleBlock
from shardmerge.master.task_history.bounds import DAY_SECONDS, ENTRIES
from shardmerge.master.task_history.keeper import HistoryKeeper
from shardmerge.master.workers.client import Workers
from shardmerge.proto import common_pb2, errors, etcd_keys, worker_pb2
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Condition, KeyIs, Operation, Put, TxnResult
from shardmerge.proto.etcd import Etcd as Client
from shardmerge.proto.task_history.event import Event, HistoryEntryKind
from shardmerge.proto.task_history.recorder import Recorder
from tests.support.etcd import Etcd
from tests.support.wait import until

_NOW = 1_000 * DAY_SECONDS


class Lead:
    """A leadership that ends when another one begins."""

    leads = True

    def __init__(self, client: Client) -> None:
        self._client = client
        self._revision = client.put(etcd_keys.LEADER, b"{}")

    def condition(self) -> KeyIs:
        return KeyIs(etcd_keys.LEADER, self._revision)

    def confirm(self) -> None:
        record = self._client.get(etcd_keys.LEADER)
        if record is None or record.mod_revision != self._revision:
            raise errors.master.NO_LEADER(master="m")


class CountingClient(Client):
    """A client that gives up soon, and counts it."""

    failures = 0

    def txn(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> TxnResult:
        try:
            return super().txn(conditions, operations)
        except ShardmergeError:
            self.failures += 1
            raise


class Answers(Workers):
    """Workers that answer with a status of task "t"; it counts the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.rows = 0

    def status(
        self, worker: state_pb.WorkerRecord, task: str = "", seconds: float = 0.0
    ) -> worker_pb2.WorkerStatusResponse:
        self.calls += 1
        if worker.name == "w2":
            raise errors.master.PEER_UNREACHABLE(peer="w2", reason="gone")
        sync = worker_pb2.SyncStatus(total_rows=self.rows, recent_rps=9, lag_ms=250)
        running = worker_pb2.SubTaskStatus(
            name="t", stage=common_pb2.STAGE_RUNNING, unit=common_pb2.UNIT_REPLICATE, epoch=1, sync=sync
        )
        return worker_pb2.WorkerStatusResponse(subtasks=[running])


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path / "etcd").start()
    yield server
    server.stop()


@pytest.fixture
def client(etcd: Etcd) -> Iterator[Client]:
    with etcd.client(5.0) as made:
        yield made


def _event(number: int, task: str = "t") -> Event:
    return Event(task, HistoryEntryKind.STAGE, 1_000.0 + number, f"stage {number}", ("s1",))


def _entries(client: Client, task: str = "t") -> list[state_pb.HistoryRecord]:
    request = pb.HistoryRequest(task=task)
    return list(HistoryCommand(client, Store(client, Lead(client))).query(request).entries)


def test_an_outage_of_etcd_delays_entries_and_nothing_else(etcd: Etcd, client: Client) -> None:
    impatient = CountingClient((etcd.endpoint,), 0.2)
    recorder = Recorder(impatient, "worker w", "12345678")
    recorder.start()
    recorder.add(_event(1))
    until(lambda: client.keys(etcd_keys.HISTORY), "the first entry is stored", 10)
    assert [one.text for one in _entries(client)] == ["stage 1"]
    etcd.kill()
    began = time.monotonic()
    for number in range(2, 40):
        recorder.add(_event(number))
    assert time.monotonic() - began < 0.5
    until(lambda: impatient.failures >= 2, "writes have failed", 20)
    etcd.start()
    wanted = [f"stage {number}" for number in range(1, 40)]
    until(lambda: [one.text for one in _entries(client)] == wanted, "the others are stored once each", 20)
    recorder.add(_event(40))
    recorder.end(5.0)
    assert len(_entries(client)) == 40
    assert {(one.writer, one.incarnation) for one in _entries(client)} == {("worker w", "12345678")}
    impatient.close()


def test_a_recorder_ends_in_time_without_etcd(etcd: Etcd, client: Client) -> None:
    etcd.kill()
    recorder = Recorder(client, "worker w", "12345678")
    recorder.start()
    recorder.add(_event(1))
    began = time.monotonic()
    recorder.end(0.5)
    assert time.monotonic() - began < 2.0


def test_the_history_does_not_wake_those_who_follow_the_records(client: Client) -> None:
    recorder = Recorder(client, "worker w", "12345678")
    recorder.start()
    recorder.add(_event(1))
    recorder.end(5.0)
    assert len(client.keys(etcd_keys.HISTORY)) == 1
    assert client.get_prefix(etcd_keys.PREFIX).records == ()


def _put_entries(client: Client, task: str, kind: str, count: int, age_days: float) -> None:
    at = int((_NOW - age_days * DAY_SECONDS) * 1000)
    keys = [etcd_keys.history_entry(task, kind, f"{at + number:013d}-w-{number:06d}") for number in range(count)]
    for begin in range(0, count, 100):
        client.txn([], [Put(key, b'{"version": 1}') for key in keys[begin : begin + 100]])


def _keeper(client: Client, lead: Lead, workers: Workers) -> HistoryKeeper:
    return HistoryKeeper(client, Store(client, lead), lead, workers, 30, 600)


def test_trimming_by_age_and_number_leaves_other_kinds_and_unknown_keys(client: Client) -> None:
    _put_entries(client, "t", "error", ENTRIES.group + 20, 1.0)
    _put_entries(client, "t", "command", 3, 29.0)
    _put_entries(client, "old", "command", 3, 31.0)
    newer = etcd_keys.history_entries("t") + "in/a/newer/form"
    client.put(newer, b"{}")
    _keeper(client, Lead(client), Answers()).trim(_NOW)
    keys = client.keys(etcd_keys.HISTORY_ENTRIES)
    assert len([key for key in keys if "/error/" in key]) == ENTRIES.group
    assert max(key for key in keys if "/error/" in key).endswith(f"{ENTRIES.group + 19:06d}")
    assert len([key for key in keys if "/command/" in key]) == 3
    assert newer in keys
    assert not [key for key in keys if "/old/" in key]


def test_what_a_leader_that_does_not_trim_has_left_goes_in_bounded_passes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "MOST_REMOVED", 300)
    monkeypatch.setattr("shardmerge.proto.etcd.client._KEYS_AT_ONCE", 128)
    _put_entries(client, "t", "error", ENTRIES.group + 500, 1.0)
    _put_entries(client, "old", "error", 250, 31.0)
    assert len(client.keys(etcd_keys.HISTORY_ENTRIES)) == ENTRIES.group + 750
    trimming = _keeper(client, Lead(client), Answers())
    left: list[int] = []
    for is_all in (False, False, True):
        assert trimming.trim(_NOW) is is_all
        left.append(len(client.keys(etcd_keys.HISTORY_ENTRIES)))
    assert left == [ENTRIES.group + 450, ENTRIES.group + 150, ENTRIES.group]
    keys = client.keys(etcd_keys.HISTORY_ENTRIES)
    assert list(keys) == sorted(keys)
    assert keys[-1].endswith(f"{ENTRIES.group + 499:06d}"), "the newest stay"


def test_trimming_ends_with_the_master(client: Client) -> None:
    _put_entries(client, "old", "error", 200, 31.0)
    trimming = _keeper(client, Lead(client), Answers())
    trimming.start()
    trimming.end()
    assert not trimming.trim(_NOW)
    assert len(client.keys(etcd_keys.HISTORY_ENTRIES)) == 200


def test_a_full_etcd_is_trimmed_and_delays_nobody(tmp_path: Path) -> None:
    server = Etcd(tmp_path / "full", ("--quota-backend-bytes=4000000",)).start()
    try:
        with server.client(5.0) as client:
            lead = Lead(client)
            _put_entries(client, "old", "command", 120, 31.0)
            # A day to be thinned, which needs a write.
            client.put(etcd_keys.history_block("t", f"{int(_NOW) - 3 * DAY:010d}-3600"), b'{"version": 1}')
            with pytest.raises(ShardmergeError) as raised:
                for number in range(100):
                    client.put(f"/other/{number}", b"x" * 500_000)
            assert raised.value.spec is errors.master.ETCD_REFUSED
            recorder = Recorder(client, "worker w", "12345678")
            recorder.start()
            began = time.monotonic()
            for number in range(1_000):
                recorder.add(_event(number, f"t{number % 50}"))
            assert time.monotonic() - began < 1.0
            with pytest.raises(ShardmergeError) as raised:
                _keeper(client, lead, Answers()).trim(_NOW)
            assert raised.value.spec is errors.master.ETCD_REFUSED, "the day is thinned later"
            assert client.keys(etcd_keys.HISTORY_ENTRIES) == (), "what is too old is removed"
            recorder.end(0.5)
    finally:
        server.stop()


def _samples(client: Client, task: str = "t") -> list[state_pb.HistorySample]:
    return read_samples(client, task)[0]


def test_days_are_thinned_once_whenever_the_leader_is_killed(client: Client) -> None:
    lead, day = Lead(client), int(_NOW) - 3 * DAY
    blocks = BlockStore(client, lead, 600)
    for hour in range(0, 24, 6):
        for minute in range(0, 60, 10):
            at = day + hour * 3_600 + minute * 60
            sample = state_pb.HistorySample(at=at, seconds=600, lag=minute, highest_lag=minute, rate=6, sources=1)
            blocks.add({"t": sample}, at)
    assert len(_samples(client)) == 24
    fine = {key: client.get(key) for key in client.keys(etcd_keys.HISTORY_SAMPLES)}
    keeper = _keeper(client, lead, Answers())
    keeper.trim(_NOW)
    thin = _samples(client)
    assert [(one.highest_lag, one.lag, one.seconds) for one in thin] == [(50, 25, 3_600)] * 4
    assert client.keys(etcd_keys.HISTORY_SAMPLES) == (etcd_keys.history_block("t", SampleBlock(day, DAY).name),)
    # The leader was killed after the record of the day, and before the removal of its blocks.
    for key, record in fine.items():
        assert record is not None
        client.put(key, record.value)
    assert _samples(client) == thin
    keeper.trim(_NOW)
    assert _samples(client) == thin
    assert len(client.keys(etcd_keys.HISTORY_SAMPLES)) == 1


def _task(client: Client) -> None:
    records = {
        etcd_keys.subtask("t", source): state_pb.SubTaskRecord(config=config.SubTaskConfig(task="t", source_id=source))
        for source in ("s1", "s2")
    }
    bound = {"s1": "w1", "s2": "w2"}
    for source, worker in bound.items():
        client.put(etcd_keys.bound(source), etcd_keys.encode(state_pb.BindingRecord(source_id=source, worker=worker)))
        client.put(etcd_keys.worker(worker), etcd_keys.encode(state_pb.WorkerRecord(name=worker, address="x")))
    for key, record in records.items():
        client.put(key, etcd_keys.encode(record))


def _leading_keeper(client: Client, workers: Workers) -> tuple[HistoryKeeper, Lead]:
    lead = Lead(client)
    store = Store(client, lead)
    store.read()
    return HistoryKeeper(client, store, lead, workers, 30, 600), lead


def test_a_sample_in_each_interval_whichever_master_leads(client: Client) -> None:
    _task(client)
    workers = Answers()
    first, _ = _leading_keeper(client, workers)
    first.sample(6_000.0)
    first.sample(6_300.0)
    workers.rows = 600
    first.sample(6_600.0)
    assert workers.calls == 4  # one per worker and interval
    second, _ = _leading_keeper(client, workers)
    second.sample(6_700.0)  # that interval has its sample
    assert workers.calls == 4
    with pytest.raises(ShardmergeError) as stale:
        first.sample(7_300.0)  # it does not lead any more
    assert stale.value.spec is errors.master.NO_LEADER
    second.sample(7_300.0)
    found = [(one.at, one.rate, one.lag, one.sources, one.unknown) for one in _samples(client)]
    assert found == [(6_000, 9, 0.25, 2, 1), (6_600, 1, 0.25, 2, 1), (7_300, 9, 0.25, 2, 1)]
    [block] = client.keys(etcd_keys.HISTORY_SAMPLES)[:1]
    assert block == etcd_keys.history_block("t", "0000003600-3600")


def test_the_answer_counts_what_it_leaves_out(client: Client) -> None:
    recorder = Recorder(client, "worker w", "12345678")
    recorder.start()
    for number in range(5):
        recorder.add(_event(number))
    recorder.end(5.0)
    client.put(etcd_keys.history_entry("t", "stage", "9-w-1"), b'{"version": 2, "text": "of a newer version"}')
    command = HistoryCommand(client, Store(client, Lead(client)))
    answer = command.query(pb.HistoryRequest(task="t", limit=2))
    assert [one.text for one in answer.entries] == ["stage 3", "stage 4"]
    assert (answer.older, answer.unreadable, answer.exists) == (3, 1, False)
    with pytest.raises(ShardmergeError) as unknown:
        command.query(pb.HistoryRequest(task="other"))
    assert unknown.value.spec is errors.master.TASK_UNKNOWN
    with pytest.raises(ShardmergeError) as wrong:
        command.query(pb.HistoryRequest(task="t", kinds=["weather"]))
    assert wrong.value.spec is errors.master.BAD_REQUEST
