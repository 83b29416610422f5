"""What a lock of a sharding DDL is decided from: the shard tables, what their sources tell, the lock itself. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class Stage(enum.Enum):
    GATHERING = "gathering"
    EXECUTING = "executing"
    RELEASED = "released"


class Standing(enum.Enum):
    """How a shard table stands towards a lock's statement."""

    READY = "ready"
    """It waits before it."""
    PASSED = "passed"
    """It has it behind it."""
    MISSING = "missing"
    """Its rows flow, and it has not come to it."""
    CONFLICTING = "conflicting"
    """It waits before another statement, with this one not behind it."""


@dataclass(frozen=True, slots=True)
class Parked:
    """Before which statement a table waits; see ``ParkedAt``. ``since``: Unix seconds. ``reason``: why its target could
    not take it at once, under ``shard-mode: optimistic``; ``contradicts``: and no coming of the others makes it right:
    only an operator lets it go on."""

    statement: str
    form: str
    after: str
    position: str = ""
    since: float = 0.0
    reason: str = ""
    contradicts: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A shard table of the target; ``structure`` is a digest."""

    source: str
    schema: str
    table: str
    structure: str
    parked: Parked | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a source tells. ``executed``: generation of the last lock whose statement it has run."""

    members: tuple[Member, ...] = ()
    executed: str = ""


@dataclass(frozen=True, slots=True)
class Lock:
    """``before`` and ``after`` are structures of the table that came first. ``since``: Unix seconds."""

    generation: str
    owner: str
    statement: str
    form: str
    before: str
    after: str
    since: float
    stage: Stage = Stage.GATHERING
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """One target table, as it was read. ``reports``: by source of the task; None: it has not told yet."""

    reports: Mapping[str, Report | None]
    lock: Lock | None = None

    def members(self) -> tuple[Member, ...]:
        return tuple(member for report in self.reports.values() if report for member in report.members)

    def unknown(self) -> tuple[str, ...]:
        """Sources that have not told."""
        return tuple(source for source, report in self.reports.items() if report is None)

    def standing(self, lock: Lock, *wanted: Standing) -> tuple[Member, ...]:
        """Tables that stand so towards ``lock``."""
        return tuple(member for member in self.members() if standing(member, lock) in wanted)

    def contradicting(self, lock: Lock) -> tuple[Member, ...]:
        """Tables that wait before the lock's statement and must not go on by themselves."""
        ready = self.standing(lock, Standing.READY)
        return tuple(member for member in ready if member.parked and member.parked.contradicts)

    def has_run(self, lock: Lock) -> bool:
        """Whether some source tells that it has run the statement."""
        return any(report.executed == lock.generation for report in self.reports.values() if report)


def waits_before(member: Member, lock: Lock) -> bool:
    """Whether ``member`` waits before the lock's statement, so that RELEASED lets it go on.

    The same words once more behind it (``ADD INDEX (c)`` twice) are another statement.
    """
    parked = member.parked
    if parked is None or parked.form != lock.form:
        return False
    return member.structure != lock.after or parked.after == lock.after


def standing(member: Member, lock: Lock) -> Standing:
    """A statement that leaves the structure as it is cannot be seen to have been passed: its tables must all come."""
    if waits_before(member, lock):
        return Standing.READY
    if member.structure == lock.after != lock.before:
        return Standing.PASSED
    return Standing.MISSING if member.parked is None else Standing.CONFLICTING
