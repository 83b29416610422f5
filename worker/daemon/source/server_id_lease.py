"""Reserves the server id of a source's relay in etcd under the worker's lease, so that no two relays share one."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shardmerge.proto import errors, etcd_keys, state_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Delete, Etcd, KeyAbsent, KeyIs
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import ServerInfo
from shardmerge.worker.daemon.registration import Registration
from shardmerge.worker.relay.fetch.server_id import (
    ServerIdHolder,
    Taken,
    candidates,
    choose,
    patience_seconds,
    server_of,
)

log = get_logger()


@dataclass(frozen=True, slots=True)
class _Record:
    """One ServerIdRecord as it was read."""

    key: str
    revision: int
    server: str
    server_id: int
    holder: ServerIdHolder


@dataclass(frozen=True, slots=True)
class _Held:
    """The server id that this worker holds for its source, and the registration under which it was reserved."""

    server: str
    server_id: int
    revision: int
    registered: int


@dataclass(frozen=True, slots=True)
class _Refused:
    taken: Taken
    since: float  # time.monotonic()


class ServerIdLease:
    """A :data:`shardmerge.worker.relay.fetch.server_id.ServerIdOf` whose ids no other worker uses. Thread-safe.

    ``configured``: the source file's ``server-id``, 0 for none; then ids from ``first`` on are tried. The ids of
    workers of other etcds, and of other replicas of the source, are not known here: MariaDB lists its replicas only to
    an account with REPLICATION MASTER ADMIN, which a relay does not need otherwise (MariaDB Knowledge Base, "SHOW
    REPLICA HOSTS").
    """

    def __init__(self, etcd: Etcd, registration: Registration, source: str, configured: int, first: int) -> None:
        self._etcd = etcd
        self._registration = registration
        self._source = source
        self._configured = configured
        self._first = first
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._refused: _Refused | None = None

    def __call__(self, server: ServerInfo) -> int:
        """The id for a dump of ``server``, held from before this returns.

        Raises SERVER_ID_STILL_HELD, SERVER_ID_TAKEN (both for a configured one), LEASE_LOST, ETCD_UNAVAILABLE.
        """
        place = server_of(server)
        with self._lock:
            held = self._held
            if held is not None and (held.server, held.registered) == (place, self._registration.revision()):
                return held.server_id
            return self._hold(place, lambda: self._wanted(server, held))

    def renew(self) -> None:
        """After the worker has registered again, reserve the id that a continuing dump uses.

        If that fails, the dump is not ended here: another relay with the id ends it when it begins, and the next dump
        asks for an id again.
        """
        with self._lock:
            held = self._held
            if held is None:
                return
            try:
                if held.registered != self._registration.revision():
                    self._hold(held.server, lambda: (held.server_id,))
            except ShardmergeError as error:
                log.warning("server id not held again", source=self._source, error=str(error))

    def release(self) -> None:
        """Release the id once no dump runs any more. Without etcd the lease's end releases it."""
        with self._lock:
            held, self._held = self._held, None
            if held is None:
                return
            key = etcd_keys.server_id(held.server, held.server_id)
            try:
                if held.registered == self._registration.revision():
                    self._etcd.txn([KeyIs(key, held.revision)], [Delete(key)])
            except ShardmergeError as error:
                log.warning("server id not released", source=self._source, error=str(error))

    def _wanted(self, server: ServerInfo, held: _Held | None) -> Iterable[int]:
        if self._configured:
            return (self._configured,)
        kept = () if held is None or held.server_id == server.server_id else (held.server_id,)
        return itertools.chain(kept, candidates(self._first, server.server_id))

    def _hold(self, server: str, wanted: Callable[[], Iterable[int]]) -> int:
        while True:
            records = self._records()
            # A worker has one source at a time, so records under its name are from an earlier source or process.
            mine = [record for record in records if record.holder.worker == self._registration.name]
            others = [record for record in records if record.holder.worker != self._registration.name]
            taken = {record.server_id: record.holder for record in others if record.server == server}
            chosen = choose(wanted(), taken)
            if isinstance(chosen, Taken):
                raise self._refusal(chosen)
            key = etcd_keys.server_id(server, chosen)
            conditions = [KeyIs(record.key, record.revision) for record in mine]
            written = self._registration.put(
                key,
                etcd_keys.encode(
                    state_pb2.ServerIdRecord(
                        worker=self._registration.name,
                        source_id=self._source,
                        lease_seconds=self._registration.lease_seconds(),
                    )
                ),
                conditions if any(record.key == key for record in mine) else [*conditions, KeyAbsent(key)],
                [Delete(record.key) for record in mine if record.key != key],
            )
            if written is not None:
                self._held = _Held(server, chosen, written.revision, written.registered)
                self._refused = None
                log.info("server id held", source=self._source, server=server, server_id=chosen)
                return chosen
            # Another worker was faster.

    def _records(self) -> list[_Record]:
        found: list[_Record] = []
        for record in self._etcd.get_prefix(etcd_keys.SERVER_IDS).records:
            server, server_id = etcd_keys.names(record.key, etcd_keys.SERVER_IDS)
            value = etcd_keys.decode(state_pb2.ServerIdRecord, record.value, record.key)
            holder = ServerIdHolder(value.worker, value.source_id, value.lease_seconds)
            found.append(_Record(record.key, record.mod_revision, server, int(server_id), holder))
        return found

    def _refusal(self, taken: Taken) -> ShardmergeError:
        now = time.monotonic()
        refused = self._refused
        if refused is None or refused.taken != taken:
            refused = self._refused = _Refused(taken, now)
        spec = errors.relay.SERVER_ID_STILL_HELD
        if now - refused.since >= patience_seconds(taken.holder, self._source):
            spec = errors.relay.SERVER_ID_TAKEN
            self._refused = None  # the next attempt waits again
        return spec(source=self._source, server_id=taken.server_id, owner=taken.holder)
