"""Decides the leader's next step for the lock of one target table's sharding DDL, from what it has read. Pure.

A shard table that reaches a DDL is parked at it, and its source reports so. A lock exists from the first parked table
until the last one has continued::

    GATHERING ──every table READY or PASSED──▶ EXECUTING ──the owner has run it──▶ RELEASED ──none is parked──▶ gone
        │  ▲                                        │
        │  └──────────the owner declines────────────┘
        └─ while it gathers, another statement may replace it

What always holds (:func:`violations` after each step; tests/unit/master/ddl_lock/test_ddl_lock_model.py for all
histories):

1. (I6) a statement is handed to its owner once per lock, and only when every source has reported and each of its
   tables is READY or PASSED, unless the operator overrides that;
2. no table is released before the statement was run, unless the operator overrides that;
3. a lock keeps its generation and statement until it is closed; only a gathering lock is replaced;
4. a lock is closed only when no table is parked at its statement and no source may still be running it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from shardmerge.master.ddl_lock.situation import Lock, LockMember, LockStage, ReportedStatement, ShardState, Situation


@dataclass(frozen=True, slots=True)
class Open:
    """Create a new lock; it replaces a gathering one."""

    lock: Lock


@dataclass(frozen=True, slots=True)
class LetOwnerExecute:
    """Let the owner run the statement."""

    lock: Lock


@dataclass(frozen=True, slots=True)
class ChangeOwner:
    """Make another source the owner."""

    lock: Lock


@dataclass(frozen=True, slots=True)
class TakeBack:
    """The owner has declined to run the statement, and does not run it: gather again."""

    lock: Lock


@dataclass(frozen=True, slots=True)
class ReleaseTables:
    """The statement has been run: the tables parked at it continue."""

    lock: Lock


@dataclass(frozen=True, slots=True)
class Unlock:
    """Do what the operator decided: EXECUTING although tables are missing, or RELEASED without having been run."""

    lock: Lock


@dataclass(frozen=True, slots=True)
class Close:
    """Delete the lock."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for these tables while the lock gathers; if all are empty, for the owner or for tables that continue.
    ``contradicting``: an operator must decide about these tables."""

    missing: tuple[LockMember, ...] = ()
    conflicts: tuple[LockMember, ...] = ()
    contradicting: tuple[LockMember, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nothing:
    """There is no lock, and none is needed."""


Change = Open | LetOwnerExecute | ChangeOwner | TakeBack | ReleaseTables | Unlock | Close
Step = Change | Wait | Nothing


def choose(situation: Situation, now: float, generation: str) -> Lock | None:
    """The lock to open: for the statement that was reached first among those without a conflict, else among all."""
    offers = [
        Lock(
            generation,
            first.source,
            parked.statement,
            parked.form,
            first.structure,
            parked.after,
            now,
            reuses_names=parked.reuses_names,
        )
        for first, parked in _first_of_each_form(situation.members())
    ]
    free = (offer for offer in offers if not situation.in_state(offer, ShardState.CONFLICTING))
    return next(free, next(iter(offers), None))


def resolve(situation: Situation, now: float, generation: str) -> Step:
    """The next step. ``generation`` was never used before; a lock that is opened gets it, and ``now`` as since."""
    lock = situation.lock
    if lock is None:
        chosen = choose(situation, now, generation)
        return Open(chosen) if chosen else Nothing()
    match lock.stage:
        case LockStage.GATHERING:
            return _gather(situation, lock, now, generation)
        case LockStage.EXECUTING:
            if situation.has_run(lock):
                return ReleaseTables(replace(lock, stage=LockStage.RELEASED))
            if situation.is_declined(lock):
                return TakeBack(replace(lock, stage=LockStage.GATHERING))
            if lock.owner in situation.reports and lock.owner not in situation.unable:
                return Wait()
            # Whether the owner has run it is unknown: the next owner finds that out at the target.
            ready = situation.in_state(lock, ShardState.READY)
            heir = _first(situation.able(ready))
            if heir is None and lock.owner not in situation.reports:
                heir = _first(ready)
            if heir is not None:
                return ChangeOwner(replace(lock, owner=heir.source))
            return Wait() if lock.owner in situation.reports else Close()
        case LockStage.RELEASED:
            return Wait() if situation.in_state(lock, ShardState.READY) else Close()


def _gather(situation: Situation, lock: Lock, now: float, generation: str) -> Step:
    ready = situation.in_state(lock, ShardState.READY)
    conflicts = situation.in_state(lock, ShardState.CONFLICTING)
    chosen = choose(situation, now, generation)
    if not ready:
        return Open(chosen) if chosen else Close()
    if conflicts and chosen and not situation.in_state(chosen, ShardState.CONFLICTING):
        return Open(chosen)
    able = situation.able(ready)
    if all(member.source != lock.owner for member in able or ready):
        return ChangeOwner(replace(lock, owner=min(able or ready, key=_arrival).source))
    missing = situation.in_state(lock, ShardState.MISSING)
    contradicting = situation.contradicting(lock)
    unknown = situation.unknown()
    if missing or conflicts or contradicting or unknown or situation.is_declined(lock):
        return Wait(missing, conflicts, contradicting, unknown)
    return LetOwnerExecute(replace(lock, stage=LockStage.EXECUTING))


def unlock(lock: Lock, owner: str = "") -> Unlock:
    """The operator lets ``owner`` run the statement without the missing tables; "": no source runs it, and parked
    tables continue."""
    if owner:
        return Unlock(replace(lock, owner=owner, stage=LockStage.EXECUTING, forced=True))
    return Unlock(replace(lock, stage=LockStage.RELEASED, forced=True))


def violations(situation: Situation, step: Step) -> tuple[str, ...]:
    """The violations of the four invariants that ``step`` would cause; empty when there are none."""
    old = situation.lock
    match step:
        case Wait() | Nothing():
            return ()
        case Close():
            return tuple(_broken_by_close(situation, old))
        case Open(lock):
            return tuple(_broken_by_open(situation, old, lock))
        case _:
            return tuple(_broken_by_move(situation, old, step))


def _broken_by_open(situation: Situation, old: Lock | None, lock: Lock) -> Iterable[str]:
    if old is not None and (old.stage is not LockStage.GATHERING or old.generation == lock.generation):
        yield f"lock {old.generation} is {old.stage.value} and would be replaced by {lock.generation}"
    if lock.stage is not LockStage.GATHERING or lock.forced or not _ready_at(situation, lock):
        yield f"lock {lock.generation} does not begin as a gathering lock"


def _broken_by_move(
    situation: Situation, old: Lock | None, step: LetOwnerExecute | ChangeOwner | TakeBack | ReleaseTables | Unlock
) -> Iterable[str]:
    lock = step.lock
    if old is None or _same(old) != _same(lock):
        yield f"lock {lock.generation} is not the existing one"
        return
    if old.stage is LockStage.RELEASED:
        yield f"lock {lock.generation} would be taken back after its release"
    if lock.stage is not LockStage.RELEASED and not _ready_at(situation, lock):
        yield f"owner {lock.owner} is not parked at the statement of lock {lock.generation}"
    match step:
        case LetOwnerExecute():
            not_ready = situation.in_state(lock, ShardState.MISSING, ShardState.CONFLICTING)
            not_ready += situation.contradicting(lock)
            if old.stage is not LockStage.GATHERING or not_ready or situation.unknown():
                yield f"lock {lock.generation} would execute without {not_ready or situation.unknown()}"
            if situation.is_declined(lock):
                yield f"owner {lock.owner} has declined to run the statement of lock {lock.generation}"
        case ChangeOwner():
            if (
                old.stage is LockStage.EXECUTING
                and old.owner in situation.reports
                and old.owner not in situation.unable
            ):
                yield f"owner {old.owner} may be running the statement of lock {lock.generation}"
        case TakeBack():
            if old.stage is not LockStage.EXECUTING or not situation.is_declined(lock):
                yield f"owner {old.owner} may be running the statement of lock {lock.generation}"
        case ReleaseTables():
            if old.stage is not LockStage.EXECUTING or not situation.has_run(lock):
                yield f"lock {lock.generation} would be released before its statement was run"
        case Unlock():
            if not lock.forced:
                yield f"lock {lock.generation} would be moved by the operator without a trace"


def _broken_by_close(situation: Situation, old: Lock | None) -> Iterable[str]:
    if old is None:
        yield "there is no lock to close"
    elif situation.in_state(old, ShardState.READY):
        yield f"tables are parked at the statement of lock {old.generation}"
    elif old.stage is LockStage.EXECUTING and old.owner in situation.reports:
        yield f"owner {old.owner} may be running the statement of lock {old.generation}"


def _same(lock: Lock) -> tuple[object, ...]:
    return lock.generation, lock.statement, lock.form, lock.before, lock.after, lock.reuses_names, lock.since


def _ready_at(situation: Situation, lock: Lock) -> bool:
    """Whether a table of the owner is parked at the statement."""
    return any(member.source == lock.owner for member in situation.in_state(lock, ShardState.READY))


def _first_of_each_form(members: Iterable[LockMember]) -> list[tuple[LockMember, ReportedStatement]]:
    """For each statement at which tables are parked, the table that reached it first; in that order."""
    found: dict[str, tuple[LockMember, ReportedStatement]] = {}
    for member in sorted(members, key=_arrival):
        if member.parked is not None:
            found.setdefault(member.parked.form, (member, member.parked))
    return list(found.values())


def _first(members: Iterable[LockMember]) -> LockMember | None:
    return min(members, key=_arrival, default=None)


def _arrival(member: LockMember) -> tuple[float, str, str, str]:
    """Sort key for the order of arrival; the names decide between equal times."""
    return member.parked.since if member.parked else 0.0, member.source, member.schema, member.table
