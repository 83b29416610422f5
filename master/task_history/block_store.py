"""The samples of tasks in etcd: a leader adds to them and thins them; every master reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from shardmerge.master.store import Leadership
from shardmerge.master.task_history.blocks import DAY, SampleBlock, block_at, block_named, days_to_thin, thinned, valid
from shardmerge.proto import etcd_keys
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.etcd import Delete, Etcd, Put
from shardmerge.proto.task_history.record import VERSION, decode

_BATCH = 50

T = TypeVar("T")


class BlockStore:
    """One thread uses it. What it has written of the present blocks is kept in memory, so that a sample costs one
    write; :meth:`forget` when another master leads."""

    def __init__(self, etcd: Etcd, leadership: Leadership, interval: int) -> None:
        self._etcd = etcd
        self._leadership = leadership
        self._interval = interval
        self._current: dict[str, tuple[SampleBlock, list[pb.HistorySample]]] = {}

    def forget(self) -> None:
        self._current.clear()

    def current(self, task: str, now: float) -> list[pb.HistorySample]:
        """The samples of the block of ``now``."""
        block = block_at(now, self._interval)
        known = self._current.get(task)
        if known is None or known[0] != block:
            samples = _samples(self._etcd, task, [block])
            known = self._current[task] = block, samples
        return known[1]

    def add(self, samples: dict[str, pb.HistorySample], now: float) -> None:
        """Add a sample of each of these tasks. The write requires that this master still leads. Raises
        NOT_LEADER, NO_LEADER and errors of etcd; then it is not known which were written."""
        block = block_at(now, self._interval)
        for tasks in _batches(sorted(samples)):
            puts: list[Put] = []
            for task in tasks:
                kept = [*self.current(task, now), samples[task]]
                self._current[task] = block, kept
                puts.append(_put(task, block, kept))
            self._commit(puts)

    def keep_only(self, tasks: frozenset[str]) -> None:
        """Forget what is in memory of other tasks."""
        for task in self._current.keys() - tasks:
            del self._current[task]

    def thin(self, keys: Sequence[str], now: float) -> None:
        """Write the records of the days that ended more than a day ago, and remove their blocks. ``keys``: of all
        blocks. Raises as :meth:`add`; a later call continues."""
        by_task: dict[str, list[SampleBlock]] = {}
        for key in keys:
            match etcd_keys.names(key, etcd_keys.HISTORY_SAMPLES):
                case (task, name) if (block := block_named(name)) is not None:
                    by_task.setdefault(task, []).append(block)
                case _:
                    pass
        for task, blocks in sorted(by_task.items()):
            for day, members in days_to_thin(blocks, now).items():
                whole = SampleBlock(day, DAY)
                if whole not in blocks:  # else only the removal is left to do
                    self._commit([_put(task, whole, thinned(_samples(self._etcd, task, members)))])
                for batch in _batches(members):
                    self._commit([Delete(etcd_keys.history_block(task, one.name)) for one in batch])

    def remove(self, keys: Sequence[str]) -> None:
        """Remove records of the history. Raises as :meth:`add`."""
        for batch in _batches(keys):
            self._commit([Delete(key) for key in batch])

    def _commit(self, operations: Sequence[Put | Delete]) -> None:
        if not self._etcd.txn([self._leadership.condition()], operations).ok:
            self._leadership.confirm()


def read_samples(etcd: Etcd, task: str) -> tuple[list[pb.HistorySample], int]:
    """All samples of ``task`` by time, and the number of blocks that only a newer version can read."""
    found = etcd.get_prefix(etcd_keys.history_blocks(task))
    values = {etcd_keys.names(record.key, etcd_keys.HISTORY_SAMPLES)[-1]: record.value for record in found.records}
    blocks = valid(block for name in values if (block := block_named(name)) is not None)
    records = [decode(pb.HistorySamplesRecord, values[block.name]) for block in blocks]
    samples = [sample for record in records if record is not None for sample in record.samples]
    return sorted(samples, key=lambda one: one.at), records.count(None)


def _samples(etcd: Etcd, task: str, blocks: Sequence[SampleBlock]) -> list[pb.HistorySample]:
    found = [etcd.get(etcd_keys.history_block(task, block.name)) for block in blocks]
    records = [decode(pb.HistorySamplesRecord, record.value) for record in found if record is not None]
    return [sample for record in records if record is not None for sample in record.samples]


def _put(task: str, block: SampleBlock, samples: Sequence[pb.HistorySample]) -> Put:
    record = pb.HistorySamplesRecord(version=VERSION, samples=samples)
    return Put(etcd_keys.history_block(task, block.name), etcd_keys.encode(record))


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """etcd takes 128 operations in a transaction by default."""
    for begin in range(0, len(items), _BATCH):
        yield items[begin : begin + _BATCH]
