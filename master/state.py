"""All records of etcd at one revision, parsed. Every decision is taken from this state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, TypeVar

from google.protobuf.message import Message

from shardmerge.proto import errors, etcd_keys
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.etcd import Record, RecordSnapshot

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class VersionedRecord(Generic[M]):
    """A record and the revision that wrote it. The message is read, never changed."""

    value: M
    revision: int


@dataclass(frozen=True, slots=True)
class State:
    """Records by name; subtasks and shards by (task, source), locks by (task, target schema, target table).

    Members that are not alive have no record. ``starting``: workers that can hold no source yet. ``epoch_base``: see
    :meth:`epoch_at`.
    """

    revision: int
    leader: VersionedRecord[pb.LeaderRecord] | None
    masters: Mapping[str, VersionedRecord[pb.MasterRecord]]
    workers: Mapping[str, VersionedRecord[pb.WorkerRecord]]
    sources: Mapping[str, VersionedRecord[pb.SourceRecord]]
    bounds: Mapping[str, VersionedRecord[pb.BindingRecord]]
    tasks: Mapping[str, VersionedRecord[pb.TaskRecord]]
    subtasks: Mapping[tuple[str, str], VersionedRecord[pb.SubTaskRecord]]
    shards: Mapping[tuple[str, str], VersionedRecord[pb.ShardRecord]]
    locks: Mapping[tuple[str, str, str], VersionedRecord[pb.LockRecord]]
    epoch_base: int = 0
    starting: Mapping[str, VersionedRecord[pb.WorkerRecord]] = field(
        default_factory=dict[str, VersionedRecord[pb.WorkerRecord]]
    )

    def epoch_at(self, revision: int) -> int:
        """The epoch of a later ``revision``: above those of all runs that etcd had confirmed before, and below those of
        all later ones (worker/daemon/registration.py)."""
        return self.epoch_base + revision

    def bindings(self) -> dict[str, str]:
        """Source → worker, dead workers included."""
        return {source: entry.value.worker for source, entry in self.bounds.items()}

    def worker_of(self, source: str) -> pb.WorkerRecord | None:
        """The live worker that ``source`` is bound to."""
        bound = self.bounds.get(source)
        entry = self.workers.get(bound.value.worker) if bound else None
        return entry.value if entry else None

    def holder_of(self, source: str) -> pb.WorkerRecord:
        """The live worker that ``source`` is bound to. Raises SOURCE_UNBOUND."""
        worker = self.worker_of(source)
        if worker is None:
            raise errors.master.SOURCE_UNBOUND(source=source)
        return worker

    def holder_or_any(self, source: str) -> pb.WorkerRecord:
        """The live worker that ``source`` is bound to, else any: for a call that changes nothing. Raises NO_WORKER."""
        holder = self.worker_of(source)
        if holder is not None:
            return holder
        if not self.workers:
            raise errors.master.NO_WORKER(source=source)
        return self.workers[min(self.workers)].value

    def bound_name(self, source: str) -> str:
        """The name of the worker that ``source`` is bound to, alive or not; "" for none."""
        bound = self.bounds.get(source)
        return bound.value.worker if bound else ""

    def enabled(self) -> frozenset[str]:
        """The sources that may be bound to workers."""
        return frozenset(name for name, entry in self.sources.items() if not entry.value.config.disabled)

    def source_of(self, worker: str) -> str:
        """The source bound to ``worker``; "" for none."""
        return next((source for source, entry in self.bounds.items() if entry.value.worker == worker), "")

    def sources_of(self, task: str) -> tuple[str, ...]:
        """Sources on which the task has a subtask, sorted."""
        return tuple(sorted(source for name, source in self.subtasks if name == task))

    def known_sources(self, task: str) -> tuple[str, ...]:
        """The sources on which the task has a subtask, sorted. Raises TASK_UNKNOWN."""
        present = self.sources_of(task)
        if not present:
            raise errors.master.TASK_UNKNOWN(task=task)
        return present

    def selected_sources(self, task: str, selection: Collection[str]) -> tuple[str, ...]:
        """Those of ``selection``, sorted; all sources on which the task has a subtask if it is empty. Raises
        TASK_UNKNOWN, SUBTASK_UNKNOWN."""
        present = self.known_sources(task)
        for source in selection:
            if source not in present:
                raise errors.master.SUBTASK_UNKNOWN(task=task, source=source)
        return tuple(source for source in present if not selection or source in selection)

    def tasks_of(self, source: str) -> tuple[str, ...]:
        """Tasks that have a subtask on the source, sorted."""
        return tuple(sorted(name for name, where in self.subtasks if where == source))


def parse(snapshot: RecordSnapshot) -> State:
    """Parse a snapshot of ``etcd_keys.PREFIX``.

    Raises ``errors.master.BAD_RECORD``: a record that cannot be read must not look as if it were absent,
    or its source would lose its worker. Folders of a newer version are left alone.
    """
    leader = [record for record in snapshot.records if record.key == etcd_keys.LEADER]
    base = [_entry(pb.EpochBaseRecord, record) for record in snapshot.records if record.key == etcd_keys.EPOCH_BASE]
    return State(
        revision=snapshot.revision,
        leader=_entry(pb.LeaderRecord, leader[0]) if leader else None,
        masters=_folder(snapshot, etcd_keys.MASTERS, pb.MasterRecord),
        workers=_folder(snapshot, etcd_keys.WORKERS, pb.WorkerRecord),
        sources=_folder(snapshot, etcd_keys.SOURCES, pb.SourceRecord),
        bounds=_folder(snapshot, etcd_keys.BOUNDS, pb.BindingRecord),
        tasks=_folder(snapshot, etcd_keys.TASKS, pb.TaskRecord),
        subtasks=_pairs(snapshot, etcd_keys.SUBTASKS, pb.SubTaskRecord),
        shards=_pairs(snapshot, etcd_keys.SHARDS, pb.ShardRecord),
        locks=MappingProxyType(
            {
                _triple(etcd_keys.names(record.key, etcd_keys.LOCKS)): _entry(pb.LockRecord, record)
                for record in snapshot.records
                if record.key.startswith(etcd_keys.LOCKS)
            }
        ),
        epoch_base=base[0].value.base if base else 0,
        starting=_folder(snapshot, etcd_keys.STARTING, pb.WorkerRecord),
    )


def _entry(kind: type[M], record: Record) -> VersionedRecord[M]:
    return VersionedRecord(etcd_keys.decode(kind, record.value, record.key), record.mod_revision)


def _folder(snapshot: RecordSnapshot, folder: str, kind: type[M]) -> Mapping[str, VersionedRecord[M]]:
    return MappingProxyType(
        {
            etcd_keys.names(record.key, folder)[0]: _entry(kind, record)
            for record in snapshot.records
            if record.key.startswith(folder)
        }
    )


def _pairs(snapshot: RecordSnapshot, folder: str, kind: type[M]) -> Mapping[tuple[str, str], VersionedRecord[M]]:
    return MappingProxyType(
        {
            _pair(etcd_keys.names(record.key, folder)): _entry(kind, record)
            for record in snapshot.records
            if record.key.startswith(folder)
        }
    )


def _pair(names: tuple[str, ...]) -> tuple[str, str]:
    task, source = names
    return task, source


def _triple(names: tuple[str, ...]) -> tuple[str, str, str]:
    task, schema, table = names
    return task, schema, table
