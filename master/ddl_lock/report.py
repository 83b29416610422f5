"""Describes the locks of sharding DDLs to operators. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from shardmerge.master.ddl_lock.records import Situations, Target, to_lock
from shardmerge.master.ddl_lock.resolver import Wait, resolve
from shardmerge.master.ddl_lock.situation import Lock, LockMember, LockStage, ShardState, Situation, shard_state
from shardmerge.master.state import State
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.listed_names import listed
from shardmerge.proto.rpc.coded_errors import error_to_proto

_MAX_NAMED = 5  # tables that one phrase names
AT_STATEMENT = frozenset({ShardState.READY, ShardState.PASSED})


def lock_message(target: Target, situation: Situation, lock: Lock, now: float, mode: str) -> pb.DDLLock:
    """One lock as ``shard-ddl-lock`` lists it; ``now``: Unix seconds. ``mode``: the task's shard-mode."""
    synced, unsynced = sync_of(situation, lock)
    conflicts = conflicts_of(situation, lock)
    return pb.DDLLock(
        id=target.lock_id,
        task=target.task,
        mode=mode,
        owner=lock.owner,
        ddls=[lock.statement],
        synced=synced,
        unsynced=unsynced,
        stage=lock.stage.value,
        forced=lock.forced,
        since=_utc(lock.since),
        seconds=max(0.0, now - lock.since),
        waiting_for=waiting_for(situation, lock),
        tables=[
            *(_table(member, lock, now) for member in situation.members()),
            *(pb.DDLLockTable(source=source, standing="unknown") for source in situation.unknown()),
        ],
        conflict=error_to_proto(conflict(target, lock, conflicts)) if conflicts else None,
    )


def sync_of(situation: Situation, lock: Lock) -> tuple[list[str], list[str]]:
    """Sources whose tables have all reached the statement, and the others; a source without tables is in neither
    list."""
    synced: list[str] = []
    unsynced: list[str] = []
    contradicting = situation.contradicting(lock)
    for source, report in situation.reports.items():
        if report is None or any(
            shard_state(member, lock) not in AT_STATEMENT or member in contradicting for member in report.members
        ):
            unsynced.append(source)
        elif report.members:
            synced.append(source)
    return synced, unsynced


def conflicts_of(situation: Situation, lock: Lock) -> tuple[LockMember, ...]:
    """Tables that block a gathering lock because they are parked at another statement."""
    return situation.in_state(lock, ShardState.CONFLICTING) if lock.stage is LockStage.GATHERING else ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """A lock whose tables wait at different statements. ``first``: the table that was the first at another one than the
    lock's. ``since``: Unix seconds."""

    target: Target
    first: LockMember
    since: float
    error: ShardmergeError


def conflicts_in(state: State) -> Mapping[Target, Conflict]:
    """The conflicts of all locks."""
    situations = Situations(state)
    found: dict[Target, Conflict] = {}
    for key, entry in state.locks.items():
        target, lock = Target(*key), to_lock(entry.value)
        tables = conflicts_of(situations.of(target), lock)
        if tables:
            first = _first(tables)
            since = max(lock.since, first.parked.since if first.parked else 0.0)
            found[target] = Conflict(target, first, since, conflict(target, lock, tables))
    return found


def _first(conflicts: tuple[LockMember, ...]) -> LockMember:
    return min(conflicts, key=lambda member: member.parked.since if member.parked else 0.0)


def conflict(target: Target, lock: Lock, conflicts: tuple[LockMember, ...]) -> ShardmergeError:
    """The error for a conflict: both statements, and the ways out."""
    first = _first(conflicts)
    parked = first.parked
    return errors.ddl.LOCK_CONFLICT(
        task=target.task,
        lock=target.lock_id,
        tables=_names(conflicts),
        source=first.source,
        position=parked.position if parked else "",
        other=parked.statement if parked else "",
        owner=lock.owner,
        statement=lock.statement,
    )


def waiting_for(situation: Situation, lock: Lock) -> str:
    """What has to happen next, as a phrase that follows "waits for"."""
    match lock.stage:
        case LockStage.EXECUTING:
            unable = ", which is paused or has no worker," if lock.owner in situation.unable else ""
            return f"source {lock.owner}{unable} to run the statement at the target"
        case LockStage.RELEASED:
            left = situation.in_state(lock, ShardState.READY)
            return f"shard table(s) {_names(left)} to continue" if left else "the next check of the master"
        case LockStage.GATHERING:
            step = resolve(situation, lock.since, "")
            if not isinstance(step, Wait):
                return "the next check of the master"
            parts = [
                f"source(s) {', '.join(step.unknown)} to report their shard tables" if step.unknown else "",
                f"shard table(s) {_names(step.missing)} to reach the statement" if step.missing else "",
                f"a further statement of shard table(s) {_names(step.contradicting)} that undoes the one which "
                "does not fit the other shard tables, or a decision about them by `dmctl shard-ddl-lock unlock`"
                if step.contradicting
                else "",
                f"shard table(s) {_names(step.conflicts)} to wait no longer at another statement"
                if step.conflicts
                else "",
            ]
            return "; ".join(part for part in parts if part)


def _table(member: LockMember, lock: Lock, now: float) -> pb.DDLLockTable:
    table_state = shard_state(member, lock)
    parked = member.parked
    since = lock.since if table_state is ShardState.MISSING else parked.since if parked else 0.0
    return pb.DDLLockTable(
        source=member.source,
        schema=member.schema,
        table=member.table,
        standing=table_state.value,
        since=_utc(since) if since else "",
        seconds=max(0.0, now - since) if since else 0.0,
        position=parked.position if parked else "",
        ddl=parked.statement if parked else "",
        reason=parked.reason if parked else "",
    )


def _names(members: Iterable[LockMember]) -> str:
    return listed([f"{member.source} `{member.schema}`.`{member.table}`" for member in members], _MAX_NAMED)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
