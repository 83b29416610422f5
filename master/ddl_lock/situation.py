"""What a lock's next step is decided from: the shard tables, the reports of their sources, and the lock. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardmerge.proto import ddl_lock_rule
from shardmerge.proto.ddl_lock_rule import ShardState


class LockStage(enum.Enum):
    GATHERING = "gathering"
    EXECUTING = "executing"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class ReportedStatement:
    """The statement at which a table is parked; see ``ParkedAt``. ``since``: Unix seconds. ``reason``: why its target
    could not apply it at once, under ``shard-mode: optimistic``; ``contradicts``: no lock may let the table continue as
    long as its source reports that: other tables, its own further statements or an operator must end it. ``after_run``:
    see :class:`shardmerge.proto.ddl_lock_rule.ParkedTableStatement`. ``reuses_names``: columns get names that it takes
    from other columns: their values are others, whatever the structures show."""

    statement: str
    form: str
    after: str
    position: str = ""
    since: float = 0.0
    reason: str = ""
    contradicts: bool = False
    after_run: str = ""
    reuses_names: bool = False


@dataclass(frozen=True, slots=True)
class LockMember:
    """A shard table of the target; ``structure`` is a digest."""

    source: str
    schema: str
    table: str
    structure: str
    parked: ReportedStatement | None = None


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What a source reports. ``executed``: generation of the last lock whose statement it has run. ``declined``: of the
    lock whose statement it, as the owner, does not run now: a table is not where another report has it."""

    members: tuple[LockMember, ...] = ()
    executed: str = ""
    declined: str = ""


@dataclass(frozen=True, slots=True)
class Lock:
    """``before`` and ``after`` are structure digests of the table that arrived first. ``since``: Unix seconds.
    ``reuses_names``: see :class:`ReportedStatement`."""

    generation: str
    owner: str
    statement: str
    form: str
    before: str
    after: str
    since: float
    stage: LockStage = LockStage.GATHERING
    forced: bool = False
    reuses_names: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """One target table, as it was read. ``reports``: by source of the task; None: the source has not reported yet.
    ``unable``: sources that cannot run a statement now: their subtask is paused, or no live worker has them."""

    reports: Mapping[str, SourceReport | None]
    lock: Lock | None = None
    unable: frozenset[str] = frozenset()

    def members(self) -> tuple[LockMember, ...]:
        return tuple(member for report in self.reports.values() if report for member in report.members)

    def unknown(self) -> tuple[str, ...]:
        """Sources that have not reported."""
        return tuple(source for source, report in self.reports.items() if report is None)

    def in_state(self, lock: Lock, *wanted: ShardState) -> tuple[LockMember, ...]:
        """Tables that have one of the ``wanted`` states with respect to ``lock``."""
        return tuple(member for member in self.members() if shard_state(member, lock) in wanted)

    def contradicting(self, lock: Lock) -> tuple[LockMember, ...]:
        """Tables that are parked at the lock's statement and must not continue by themselves."""
        ready = self.in_state(lock, ShardState.READY)
        return tuple(member for member in ready if member.parked and member.parked.contradicts)

    def is_declined(self, lock: Lock) -> bool:
        """Whether the owner reports that it does not run the statement now. It does not, and has not, as long as it
        reports that. An operator's decision cannot be declined."""
        report = self.reports.get(lock.owner)
        return not lock.forced and report is not None and report.declined == lock.generation

    def able(self, members: Iterable[LockMember]) -> tuple[LockMember, ...]:
        """Those of ``members`` whose source can run a statement now."""
        return tuple(member for member in members if member.source not in self.unable)

    def has_run(self, lock: Lock) -> bool:
        """Whether a source reports that it has run the statement."""
        return any(report.executed == lock.generation for report in self.reports.values() if report)


def is_parked_at(member: LockMember, lock: Lock) -> bool:
    """See :func:`shardmerge.proto.ddl_lock_rule.is_parked_at`."""
    return ddl_lock_rule.is_parked_at(member.structure, member.parked, lock)


def shard_state(member: LockMember, lock: Lock) -> ShardState:
    """See :func:`shardmerge.proto.ddl_lock_rule.shard_state`."""
    return ddl_lock_rule.shard_state(member.structure, member.parked, lock)
