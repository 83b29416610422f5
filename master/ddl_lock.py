"""The lock of one target table's sharding DDL (pessimistic): what the leader does next, from what it has read. Pure.

A shard table that comes to a DDL waits before it; its source tells. From the first table that waits until the last
one has gone on there is a lock::

    GATHERING ──every table READY or PASSED──▶ EXECUTING ──the owner has run it──▶ RELEASED ──nobody waits──▶ gone
        └─ while it gathers, another statement may take its place

What always holds (:func:`violations` after each step; tests/unit/master/test_ddl_lock_model.py for all histories):

1. (I6) a statement is given to its owner once per lock, and only when every source has told and each of its tables
   is READY or PASSED, unless the operator said so;
2. nobody is let go before the statement was run, unless the operator said so;
3. a lock stays the same one (generation, statement) until it goes; only one that gathers is replaced;
4. a lock goes only when nobody waits before its statement and nobody may still be running it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from master.ddl_lock_values import Lock, Member, Parked, Situation, Stage, Standing


@dataclass(frozen=True, slots=True)
class Open:
    """A new lock; it takes the place of one that gathers."""

    lock: Lock


@dataclass(frozen=True, slots=True)
class Execute:
    """The owner is to run the statement."""

    lock: Lock


@dataclass(frozen=True, slots=True)
class Reowner:
    """Another source is the owner."""

    lock: Lock


@dataclass(frozen=True, slots=True)
class Release:
    """It has been run: whoever waits before it goes on."""

    lock: Lock


@dataclass(frozen=True, slots=True)
class Unlock:
    """What the operator decided: EXECUTING although tables are missing, or RELEASED without having been run."""

    lock: Lock


@dataclass(frozen=True, slots=True)
class Close:
    """The lock goes."""


@dataclass(frozen=True, slots=True)
class Wait:
    """For these, while it gathers; for the owner or for tables that go on, when all are empty. ``contradicting``: an
    operator must decide."""

    missing: tuple[Member, ...] = ()
    conflicts: tuple[Member, ...] = ()
    contradicting: tuple[Member, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nothing:
    """No lock is there, none is needed."""


Change = Open | Execute | Reowner | Release | Unlock | Close
Step = Change | Wait | Nothing


def choose(situation: Situation, now: float, generation: str) -> Lock | None:
    """The lock to open: the statement that was come to first among those without a conflict, else among all."""
    offers = [
        Lock(generation, first.source, parked.statement, parked.form, first.structure, parked.after, now)
        for first, parked in _first_of_each_form(situation.members())
    ]
    free = (offer for offer in offers if not situation.standing(offer, Standing.CONFLICTING))
    return next(free, next(iter(offers), None))


def resolve(situation: Situation, now: float, generation: str) -> Step:
    """The next step. ``generation`` was never used before; a lock that is opened gets it, and ``now`` as since."""
    lock = situation.lock
    if lock is None:
        chosen = choose(situation, now, generation)
        return Open(chosen) if chosen else Nothing()
    match lock.stage:
        case Stage.GATHERING:
            return _gather(situation, lock, now, generation)
        case Stage.EXECUTING:
            if situation.has_run(lock):
                return Release(replace(lock, stage=Stage.RELEASED))
            if lock.owner in situation.reports:
                return Wait()
            # Whether the owner that left has run it is not known: running it again does no harm.
            heir = _first(situation.standing(lock, Standing.READY))
            return Reowner(replace(lock, owner=heir.source)) if heir else Close()
        case Stage.RELEASED:
            return Wait() if situation.standing(lock, Standing.READY) else Close()


def _gather(situation: Situation, lock: Lock, now: float, generation: str) -> Step:
    ready = situation.standing(lock, Standing.READY)
    conflicts = situation.standing(lock, Standing.CONFLICTING)
    chosen = choose(situation, now, generation)
    if not ready:
        return Open(chosen) if chosen else Close()
    if conflicts and chosen and not situation.standing(chosen, Standing.CONFLICTING):
        return Open(chosen)
    if all(member.source != lock.owner for member in ready):
        return Reowner(replace(lock, owner=min(ready, key=_came).source))
    missing = situation.standing(lock, Standing.MISSING)
    contradicting = situation.contradicting(lock)
    unknown = situation.unknown()
    if missing or conflicts or contradicting or unknown:
        return Wait(missing, conflicts, contradicting, unknown)
    return Execute(replace(lock, stage=Stage.EXECUTING))


def unlock(lock: Lock, owner: str = "") -> Unlock:
    """The operator lets ``owner`` run the statement, whoever is missing; "": nobody runs it, whoever waits goes on."""
    if owner:
        return Unlock(replace(lock, owner=owner, stage=Stage.EXECUTING, forced=True))
    return Unlock(replace(lock, stage=Stage.RELEASED, forced=True))


def violations(situation: Situation, step: Step) -> tuple[str, ...]:
    """What ``step`` would break of the four invariants; empty when all is well."""
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
    if old is not None and (old.stage is not Stage.GATHERING or old.generation == lock.generation):
        yield f"lock {old.generation} is {old.stage.value} and would be replaced by {lock.generation}"
    if lock.stage is not Stage.GATHERING or lock.forced or not _ready_at(situation, lock):
        yield f"lock {lock.generation} does not begin as one"


def _broken_by_move(
    situation: Situation, old: Lock | None, step: Execute | Reowner | Release | Unlock
) -> Iterable[str]:
    lock = step.lock
    if old is None or _same(old) != _same(lock):
        yield f"lock {lock.generation} is not the one that was there"
        return
    if old.stage is Stage.RELEASED:
        yield f"lock {lock.generation} would be taken back after its release"
    if lock.stage is not Stage.RELEASED and not _ready_at(situation, lock):
        yield f"owner {lock.owner} does not wait before the statement of lock {lock.generation}"
    match step:
        case Execute():
            apart = situation.standing(lock, Standing.MISSING, Standing.CONFLICTING)
            apart += situation.contradicting(lock)
            if old.stage is not Stage.GATHERING or apart or situation.unknown():
                yield f"lock {lock.generation} would execute without {apart or situation.unknown()}"
        case Reowner():
            if old.stage is Stage.EXECUTING and old.owner in situation.reports:
                yield f"owner {old.owner} may be running the statement of lock {lock.generation}"
        case Release():
            if old.stage is not Stage.EXECUTING or not situation.has_run(lock):
                yield f"lock {lock.generation} would be released before its statement was run"
        case Unlock():
            if not lock.forced:
                yield f"lock {lock.generation} would be moved by the operator without a trace"


def _broken_by_close(situation: Situation, old: Lock | None) -> Iterable[str]:
    if old is None:
        yield "there is no lock to close"
    elif situation.standing(old, Standing.READY):
        yield f"tables wait before the statement of lock {old.generation}"
    elif old.stage is Stage.EXECUTING and old.owner in situation.reports:
        yield f"owner {old.owner} may be running the statement of lock {old.generation}"


def _same(lock: Lock) -> tuple[object, ...]:
    return lock.generation, lock.statement, lock.form, lock.before, lock.after, lock.since


def _ready_at(situation: Situation, lock: Lock) -> bool:
    """Whether a table of the owner waits before the statement."""
    return any(member.source == lock.owner for member in situation.standing(lock, Standing.READY))


def _first_of_each_form(members: Iterable[Member]) -> list[tuple[Member, Parked]]:
    """For each statement that is waited before, the table that came to it first; in that order."""
    found: dict[str, tuple[Member, Parked]] = {}
    for member in sorted(members, key=_came):
        if member.parked is not None:
            found.setdefault(member.parked.form, (member, member.parked))
    return list(found.values())


def _first(members: Iterable[Member]) -> Member | None:
    return min(members, key=_came, default=None)


def _came(member: Member) -> tuple[float, str, str, str]:
    """Order of coming; the names decide between equal times."""
    return member.parked.since if member.parked else 0.0, member.source, member.schema, member.table
