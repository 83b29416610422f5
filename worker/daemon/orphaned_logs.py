"""Removes relay logs on this worker's disk whose sources are bound to another worker.

Such a log is still needed while the other worker's log lacks a part of it that a task needs and that the source may no
longer have (I7). It is removed once the other worker answers that it knows what every task needs, and that its own log
reaches from there to the end that the source's binlog had after the takeover: this covers all that the orphaned log can
hold. Logs of sources that are bound to no worker, or that are no longer configured, stay.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc

from shardmerge.proto import etcd_keys, state_pb2, worker_pb2, worker_pb2_grpc
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import RecordSnapshot
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import repeat
from shardmerge.proto.rpc import client
from shardmerge.worker.relay.log.generation import FILE_NAME

log = get_logger()

_LOOK_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_REMOVED = ".removed-"


@dataclass(frozen=True, slots=True)
class _OtherWorker:
    """The other worker to which a source is bound, by the binding record of ``revision``."""

    worker: str
    address: str
    revision: int


Ask = Callable[[str, str], bool]
"""(address of a worker, source) → whether its relay log has all that is needed. Raises catalogue errors."""


def ask_worker(address: str, source: str) -> bool:
    """See :data:`Ask`."""
    with client.channel(address) as channel:
        stub = worker_pb2_grpc.WorkerStub(channel)
        try:
            return stub.RelayNeeds(worker_pb2.RelayNeedsRequest(source=source), timeout=_ANSWER_SECONDS).complete
        except grpc.RpcError as error:
            raise client.coded_from_rpc(error, f"worker at {address}", address) from error


class OrphanedLogs:
    """:meth:`update` is called with every snapshot of the records, by the thread that opens relay logs: so no log is
    removed that is in use again. :meth:`follow` runs in a thread of its own, because it calls other workers."""

    def __init__(self, directory: Path, worker: str, ask: Ask = ask_worker) -> None:
        """``directory``: parent of the sources' relay logs at this worker, whose name is ``worker``."""
        self._directory = directory
        self._worker = worker
        self._ask = ask
        self._lock = threading.Lock()
        self._other_workers: Mapping[str, _OtherWorker] = {}
        self._unneeded: dict[str, int] = {}

    def update(self, snapshot: RecordSnapshot) -> None:
        """Remove logs that are known not to be needed, if their bindings have not changed since the answer."""
        found = self._found(snapshot)
        with self._lock:
            self._other_workers = found
            gone = [source for source, revision in self._unneeded.items() if _same(found.get(source), revision)]
            self._unneeded.clear()
        for source in gone:
            self._remove(source, found[source])

    def follow(self, stop: threading.Event) -> None:
        """Until ``stop``, ask the workers that have the sources."""
        self._clear()
        repeat(self.ask_workers, _LOOK_SECONDS, stop)

    def ask_workers(self) -> None:
        """Ask once."""
        with self._lock:
            elsewhere = dict(self._other_workers)
        for source, place in elsewhere.items():
            try:
                complete = self._ask(place.address, source)
            except ShardmergeError as error:
                log.debug("cannot query what is needed of a relay log", source=source, error=str(error))
                continue
            if complete:
                with self._lock:
                    self._unneeded[source] = place.revision
        self._clear()

    def _found(self, snapshot: RecordSnapshot) -> dict[str, _OtherWorker]:
        addresses: dict[str, str] = {}
        bindings: list[tuple[state_pb2.BindingRecord, int]] = []
        for record in snapshot.records:
            if record.key.startswith(etcd_keys.WORKERS):
                worker = etcd_keys.decode(state_pb2.WorkerRecord, record.value, record.key)
                addresses[worker.name] = worker.address
            elif record.key.startswith(etcd_keys.BOUNDS):
                bound = etcd_keys.decode(state_pb2.BindingRecord, record.value, record.key)
                bindings.append((bound, record.mod_revision))
        return {
            bound.source_id: _OtherWorker(bound.worker, addresses[bound.worker], revision)
            for bound, revision in bindings
            if bound.worker != self._worker
            and bound.worker in addresses
            and (self._directory / bound.source_id / FILE_NAME).exists()
        }

    def _remove(self, source: str, place: _OtherWorker) -> None:
        # Rename first, which is immediate; deleting the bytes may take longer.
        try:
            (self._directory / source).rename(self._directory / f"{_REMOVED}{uuid.uuid4().hex}")
        except OSError as error:
            log.warning("relay log not removed", source=source, error=error.strerror, directory=str(self._directory))
            return
        log.info("relay log removed: another worker has all that is needed of it", source=source, worker=place.worker)

    def _clear(self) -> None:
        for path in self._directory.glob(f"{_REMOVED}*"):
            shutil.rmtree(path, ignore_errors=True)


def _same(place: _OtherWorker | None, revision: int) -> bool:
    return place is not None and place.revision == revision
