"""Relay logs on this worker's disk whose sources another worker has by now.

Such a log is still of use while the other worker's lacks something of it that a task needs and the source may no longer
have (I7). It is removed once that worker answers that it knows what every task needs, and that its own log reaches from
there to where the source's binlog ended after it had taken over: beyond all that this one can hold. Logs of sources
that nobody has, or that are not known any more, stay.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc

from proto import keys, rpc, state_pb2, worker_pb2, worker_pb2_grpc
from proto.errors import ShardmergeError
from proto.etcd import Snapshot
from proto.log import get_logger
from worker.relay.generation import FILE_NAME

log = get_logger()

_LOOK_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_REMOVED = ".removed-"


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """Who has a source, by the binding record of ``revision``."""

    worker: str
    address: str
    revision: int


Ask = Callable[[str, str], bool]
"""(address of a worker, source) → whether its relay log has all that is needed. Raises catalogue errors."""


def ask_worker(address: str, source: str) -> bool:
    """See :data:`Ask`."""
    with rpc.channel(address) as channel:
        stub = worker_pb2_grpc.WorkerStub(channel)
        try:
            return stub.RelayNeeds(worker_pb2.RelayNeedsRequest(source=source), timeout=_ANSWER_SECONDS).complete
        except grpc.RpcError as error:
            raise rpc.coded_from_rpc(error, f"worker at {address}", address) from error


class LeftLogs:
    """:meth:`see` is called with every reading of the records, by the thread that opens relay logs: no log is removed
    that has been taken up again. :meth:`follow` is a thread of its own, for it asks others."""

    def __init__(self, directory: Path, worker: str, ask: Ask = ask_worker) -> None:
        """``directory``: parent of the sources' relay logs at this worker, whose name is ``worker``."""
        self._directory = directory
        self._worker = worker
        self._ask = ask
        self._lock = threading.Lock()
        self._elsewhere: Mapping[str, _Elsewhere] = {}
        self._unneeded: dict[str, int] = {}

    def see(self, snapshot: Snapshot) -> None:
        """Remove what is known not to be needed, by bindings that have not changed since it was asked."""
        found = self._found(snapshot)
        with self._lock:
            self._elsewhere = found
            gone = [source for source, revision in self._unneeded.items() if _same(found.get(source), revision)]
            self._unneeded.clear()
        for source in gone:
            self._remove(source, found[source])

    def follow(self, stop: threading.Event) -> None:
        """Until ``stop``: ask who has the sources."""
        self._clear()
        while not stop.wait(_LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Ask once."""
        with self._lock:
            elsewhere = dict(self._elsewhere)
        for source, place in elsewhere.items():
            try:
                complete = self._ask(place.address, source)
            except ShardmergeError as error:
                log.debug("not told what is needed of a relay log", source=source, error=str(error))
                continue
            if complete:
                with self._lock:
                    self._unneeded[source] = place.revision
        self._clear()

    def _found(self, snapshot: Snapshot) -> dict[str, _Elsewhere]:
        addresses: dict[str, str] = {}
        bindings: list[tuple[state_pb2.BindingRecord, int]] = []
        for record in snapshot.records:
            if record.key.startswith(keys.WORKERS):
                worker = keys.decode(state_pb2.WorkerRecord, record.value, record.key)
                addresses[worker.name] = worker.address
            elif record.key.startswith(keys.BOUNDS):
                bound = keys.decode(state_pb2.BindingRecord, record.value, record.key)
                bindings.append((bound, record.mod_revision))
        return {
            bound.source_id: _Elsewhere(bound.worker, addresses[bound.worker], revision)
            for bound, revision in bindings
            if bound.worker != self._worker
            and bound.worker in addresses
            and (self._directory / bound.source_id / FILE_NAME).exists()
        }

    def _remove(self, source: str, place: _Elsewhere) -> None:
        # Out of the way at once; the bytes may take their time.
        try:
            (self._directory / source).rename(self._directory / f"{_REMOVED}{uuid.uuid4().hex}")
        except OSError as error:
            log.warning("relay log not removed", source=source, error=error.strerror, directory=str(self._directory))
            return
        log.info("relay log removed: another worker has all that is needed of it", source=source, worker=place.worker)

    def _clear(self) -> None:
        for path in self._directory.glob(f"{_REMOVED}*"):
            shutil.rmtree(path, ignore_errors=True)


def _same(place: _Elsewhere | None, revision: int) -> bool:
    return place is not None and place.revision == revision
