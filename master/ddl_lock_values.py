"""What a lock of a sharding DDL is decided from: the shard tables, what their sources tell, the lock itself. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from proto import ddl_standing
from proto.ddl_standing import Standing


class Stage(enum.Enum):
    GATHERING = "gathering"
    EXECUTING = "executing"
    RELEASED = "released"


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
    """See :func:`proto.ddl_standing.waits_before`."""
    return ddl_standing.waits_before(member.structure, member.parked, lock)


def standing(member: Member, lock: Lock) -> Standing:
    """See :func:`proto.ddl_standing.standing`."""
    return ddl_standing.standing(member.structure, member.parked, lock)
