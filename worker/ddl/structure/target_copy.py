"""Computes target tables after statements that do not run there: the statements run on empty copies."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardmerge.worker.core.mysql.connection import Session, execute
from shardmerge.worker.core.mysql.show_create import CreateStatement, read_create_statement
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.structure.schema_tracker import SchemaTracker
from shardmerge.worker.ddl.structure.structure_after import runner
from shardmerge.worker.target.records.statement_session import StatementSession


@dataclass(frozen=True, slots=True)
class CopyStatement:
    """A statement for a target, with the tracker's name instead of the target's. ``session``: its session settings."""

    text: str
    session: StatementSession


@dataclass(frozen=True, slots=True)
class TargetCopies:
    """For one thread. Methods raise ``pymysql.MySQLError``, also when the server refuses a statement."""

    tracker: SchemaTracker
    _sent: dict[TargetTable, tuple[CopyStatement, ...]] = field(
        default_factory=dict[TargetTable, tuple[CopyStatement, ...]]
    )

    @property
    def place(self) -> TargetTable:
        """The table that a statement must name."""
        return TargetTable(*self.tracker.place)

    def creation(self, target: TargetTable, more: CopyStatement | None = None) -> CreateStatement:
        """The target after the statements sent so far, and ``more``."""
        sent = (*self._sent.get(target, ()), *((more,) if more is not None else ()))
        if not sent:
            return read_create_statement(self.tracker.session, *target.names)

        def run(session: Session) -> None:
            execute(session, f"CREATE TABLE {self.place.quoted} LIKE {target.quoted}")
            for each in sent:
                runner(each.text, each.session)(session)

        return self.tracker.created(*target.names, run).creation

    def send(self, target: TargetTable, sent: CopyStatement | None) -> None:
        """Treat ``sent`` as executed in the dry run; None: no statement."""
        if sent is not None:
            self._sent[target] = (*self._sent.get(target, ()), sent)
