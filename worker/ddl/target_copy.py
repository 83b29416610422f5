"""Target tables as they would be behind statements that never run there: empty copies answer for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from worker.connection import Session, execute
from worker.ddl.behind import runs
from worker.ddl.creation import Creation, read_creation
from worker.ddl.session import StatementSession
from worker.ddl.tracker import Tracker
from worker.plan import TargetTable


@dataclass(frozen=True, slots=True)
class Sent:
    """A statement for a target, with the tracker's name in its place. ``given``: its session."""

    text: str
    given: StatementSession


@dataclass(frozen=True, slots=True)
class TargetCopies:
    """For one thread. Methods raise ``pymysql.MySQLError``, also for what the copy's server refuses."""

    tracker: Tracker
    _sent: dict[TargetTable, tuple[Sent, ...]] = field(default_factory=dict[TargetTable, tuple[Sent, ...]])

    @property
    def place(self) -> TargetTable:
        """Which table a statement has to name."""
        return TargetTable(*self.tracker.place)

    def creation(self, target: TargetTable, more: Sent | None = None) -> Creation:
        """The target behind what was sent so far, and ``more``."""
        sent = (*self._sent.get(target, ()), *((more,) if more is not None else ()))
        if not sent:
            return read_creation(self.tracker.session, *target.names)

        def run(session: Session) -> None:
            execute(session, f"CREATE TABLE {self.place.quoted} LIKE {target.quoted}")
            for each in sent:
                runs(each.text, each.given)(session)

        return self.tracker.created(*target.names, run).creation

    def send(self, target: TargetTable, sent: Sent | None) -> None:
        """``sent`` has run, as far as the rehearsal goes; None: nothing has."""
        if sent is not None:
            self._sent[target] = (*self._sent.get(target, ()), sent)
