"""Events of the locks of sharding DDLs. Pure."""

from __future__ import annotations

from shardmerge.master.ddl_lock.records import Target
from shardmerge.master.ddl_lock.resolver import (
    ChangeOwner,
    Close,
    Execute,
    Nothing,
    Open,
    Release,
    Step,
    TakeBack,
    Unlock,
    Wait,
)
from shardmerge.master.ddl_lock.situation import Lock
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.task_history.event import Event, Kind


def step_event(target: Target, before: Lock | None, step: Step, now: float) -> Event | None:
    """A stored step of a lock; None: it is no event."""
    match step:
        case Open(lock):
            return _event(target, lock.statement, "lock opened: shard tables wait for each other", now)
        case Execute(lock):
            text = f"all shard tables have reached it: source {lock.owner} runs it"
            return _event(target, lock.statement, text, now)
        case ChangeOwner(lock):
            return _event(target, lock.statement, f"source {lock.owner} is to run it now", now)
        case TakeBack(lock):
            return _event(target, lock.statement, "not run: shard tables have not reached it", now)
        case Release(lock) | Unlock(lock):
            forced = ", as an operator has decided" if lock.forced else ""
            return _event(target, lock.statement, f"released: the shard tables continue{forced}", now)
        case Close():
            text = "lock closed: all shard tables have continued"
            return _event(target, before.statement if before is not None else "", text, now)
        case Wait() | Nothing():
            return None


def conflict_event(target: Target, lock: Lock, error: ShardmergeError, now: float) -> Event:
    """Shard tables wait at different statements."""
    return Event(
        target.task,
        Kind.DDL,
        now,
        "conflict: shard tables wait at different statements",
        same=f"conflict {lock.generation}",
        statement=lock.statement,
        target=f"`{target.schema}`.`{target.table}`",
        code=error.code,
        name=error.spec.name,
        message=error.message,
    )


def _event(target: Target, statement: str, text: str, now: float) -> Event:
    table = f"`{target.schema}`.`{target.table}`"
    same = "\n".join((table, text, statement))
    return Event(target.task, Kind.DDL, now, text, same=same, statement=statement, target=table)
