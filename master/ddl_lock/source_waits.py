"""The sharding DDLs that tables of one source wait at, as query-status shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardmerge.master.ddl_lock.records import Target, has_parked, report_of, to_lock
from shardmerge.master.ddl_lock.report import AT_STATEMENT, Conflict
from shardmerge.master.ddl_lock.situation import Lock, LockMember, shard_state
from shardmerge.master.state import State
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.rpc.coded_errors import error_to_proto


@dataclass(frozen=True, slots=True)
class SourceWait:
    """Tables of a source that are parked at statements of one target. ``parked``: by the time at which they reached
    their statement; ``others``: the source's other tables of the target. ``lock``: None when it is about to be
    opened."""

    target: Target
    parked: tuple[LockMember, ...]
    others: tuple[LockMember, ...]
    lock: Lock | None

    @property
    def since(self) -> float:
        """Unix seconds."""
        return min(member.parked.since for member in self.parked if member.parked)


def waits_of(task: str, source: str, state: State) -> tuple[SourceWait, ...]:
    """The waits of a subtask, the oldest first."""
    entry = state.shards.get((task, source))
    if entry is None:
        return ()
    found: list[SourceWait] = []
    for one in entry.value.targets:
        if not has_parked(one):
            continue
        target = Target(task, one.schema, one.table)
        members = report_of(target, source, entry.value).members
        parked = sorted((each for each in members if each.parked), key=_since)
        lock = state.locks.get(target.key)
        others = tuple(each for each in members if each.parked is None)
        found.append(SourceWait(target, tuple(parked), others, to_lock(lock.value) if lock is not None else None))
    return tuple(sorted(found, key=lambda wait: wait.since))


def add_waits(status: pb.SubTaskStatus, waits: tuple[SourceWait, ...], conflicts: Mapping[Target, Conflict]) -> None:
    """Set the fields of ``status`` that describe the locks. Only for a subtask in its replicate unit."""
    if not waits or status.WhichOneof("status") != "sync":
        return
    status.unresolved_ddl_lock_id = waits[0].target.lock_id
    sync = status.sync
    sync.block_ddl_owner = waits[0].lock.owner if waits[0].lock is not None else ""
    statements = (each.parked.statement for wait in waits for each in wait.parked if each.parked)
    sync.blocking_ddls.extend(dict.fromkeys(statements))
    sync.unresolved_groups.extend(_group(wait, conflicts.get(wait.target)) for wait in waits)


def _group(wait: SourceWait, conflict: Conflict | None) -> pb.ShardingGroup:
    first = wait.parked[0].parked
    assert first is not None  # noqa: S101 - for the type checker: these tables are parked
    reached: list[str] = []
    missing: list[str] = []
    for each in (*wait.parked, *wait.others):
        (reached if _has_reached(each, wait.lock) else missing).append(f"`{each.schema}`.`{each.table}`")
    return pb.ShardingGroup(
        target=f"`{wait.target.schema}`.`{wait.target.table}`",
        ddls=list(dict.fromkeys(each.parked.statement for each in wait.parked if each.parked)),
        first_location=first.position,
        synced=reached,
        unsynced=missing,
        conflict=None if conflict is None else error_to_proto(conflict.error),
    )


def _has_reached(member: LockMember, lock: Lock | None) -> bool:
    """Whether it has reached the lock's statement; before the lock is opened, whether it is parked at all."""
    return member.parked is not None if lock is None else shard_state(member, lock) in AT_STATEMENT


def _since(member: LockMember) -> float:
    return member.parked.since if member.parked is not None else 0.0
