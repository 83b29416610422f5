"""What people are told of the locks of sharding DDLs; pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from master.ddl_lock import Wait, resolve
from master.ddl_lock_records import Target
from master.ddl_lock_values import Lock, Member, Situation, Stage, Standing, standing
from proto import errors
from proto import master_pb2 as pb
from proto.errors import ShardmergeError
from proto.rpc import error_to_proto

_NAMED = 5  # so many tables are named in one phrase
_COME = frozenset({Standing.READY, Standing.PASSED})


def lock_message(target: Target, situation: Situation, lock: Lock, now: float) -> pb.DDLLock:
    """One lock as it is listed; ``now``: Unix seconds."""
    synced, unsynced = sync_of(situation, lock)
    conflicts = conflicts_of(situation, lock)
    return pb.DDLLock(
        id=target.lock_id,
        task=target.task,
        mode="optimistic" if any(each.parked and each.parked.reason for each in situation.members()) else "pessimistic",
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
    """Sources whose tables have all come to the statement, and the others; sources without tables are neither."""
    synced: list[str] = []
    unsynced: list[str] = []
    contradicting = situation.contradicting(lock)
    for source, report in situation.reports.items():
        if report is None or any(
            standing(member, lock) not in _COME or member in contradicting for member in report.members
        ):
            unsynced.append(source)
        elif report.members:
            synced.append(source)
    return synced, unsynced


def conflicts_of(situation: Situation, lock: Lock) -> tuple[Member, ...]:
    """Tables that hold up a lock that gathers, for they wait before another statement."""
    return situation.standing(lock, Standing.CONFLICTING) if lock.stage is Stage.GATHERING else ()


def conflict(target: Target, lock: Lock, conflicts: tuple[Member, ...]) -> ShardmergeError:
    """Both statements, and the ways out."""
    first = min(conflicts, key=lambda member: member.parked.since if member.parked else 0.0)
    parked = first.parked
    return errors.ddl.LOCK_CONFLICT(
        lock=target.lock_id,
        tables=_names(conflicts),
        source=first.source,
        position=parked.position if parked else "",
        other=parked.statement if parked else "",
        owner=lock.owner,
        statement=lock.statement,
    )


def waiting_for(situation: Situation, lock: Lock) -> str:
    """What has to happen next, as one phrase."""
    match lock.stage:
        case Stage.EXECUTING:
            return f"source {lock.owner} has run the statement"
        case Stage.RELEASED:
            left = situation.standing(lock, Standing.READY)
            return f"shard table(s) {_names(left)} have gone on" if left else "the master looks again"
        case Stage.GATHERING:
            step = resolve(situation, lock.since, "")
            if not isinstance(step, Wait):
                return "the master looks again"
            parts = [
                f"source(s) {', '.join(step.unknown)} have told of their shard tables" if step.unknown else "",
                f"shard table(s) {_names(step.missing)} come to the statement" if step.missing else "",
                f"an unlock says what becomes of shard table(s) {_names(step.contradicting)}"
                if step.contradicting
                else "",
                f"shard table(s) {_names(step.conflicts)} wait no more before another one" if step.conflicts else "",
            ]
            return "; ".join(part for part in parts if part)


def _table(member: Member, lock: Lock, now: float) -> pb.DDLLockTable:
    stands = standing(member, lock)
    parked = member.parked
    since = lock.since if stands is Standing.MISSING else parked.since if parked else 0.0
    return pb.DDLLockTable(
        source=member.source,
        schema=member.schema,
        table=member.table,
        standing=stands.value,
        since=_utc(since) if since else "",
        seconds=max(0.0, now - since) if since else 0.0,
        position=parked.position if parked else "",
        ddl=parked.statement if parked else "",
        reason=parked.reason if parked else "",
    )


def _names(members: Iterable[Member]) -> str:
    listed = [f"{member.source} `{member.schema}`.`{member.table}`" for member in members]
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
