"""Adds a new shard table's columns to an existing target (``shard-mode: optimistic``).

Each shard table's structure is an input of the schema join, also when the task starts and when a table is created
later. Here the target represents all other shard tables: it keeps its columns, and gets those that the new table has in
addition or with a wider type.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.show_create import CreateStatement, read_create_statement
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.execute.optimistic import STRICT
from shardmerge.worker.ddl.execute.run_once import (
    OneRun,
    finish_computed,
    join_subject,
    run_once,
    subject_lock,
    subject_of,
)
from shardmerge.worker.ddl.schema_join.collations import with_target_collations
from shardmerge.worker.ddl.schema_join.join import SchemaJoin, join
from shardmerge.worker.ddl.schema_join.model import NotJoinable, ShardSchema
from shardmerge.worker.ddl.sql.column_definition import ColumnDefinition
from shardmerge.worker.ddl.sql.common_type import common_type
from shardmerge.worker.ddl.sql.table_definition import TableDefinition, parse_table_definition
from shardmerge.worker.ddl.structure.schema_tracker import open_tracker
from shardmerge.worker.ddl.structure.structure_digest import CanonicalCreates
from shardmerge.worker.target.records import ddl_progress
from shardmerge.worker.target.tables.target_table import find_target

log = get_logger()


@dataclass(frozen=True, slots=True)
class TargetWidener:
    """``session``: at the target, in no transaction."""

    session: Session
    who: SubtaskKey
    epoch: int
    stop: StopSignal

    def widen(self, plan: TablePlan, creation: CreateStatement) -> None:
        """Add the columns; what cannot be joined is left unchanged: the next check of the target reports what does not
        fit.

        Raises FENCED, DDL_REFUSED and ``pymysql.MySQLError``.
        """
        session, who, target = self.session, self.who, plan.target
        with subject_lock(session, who, self.epoch, join_subject(target), [target], self.stop, lambda _: None) as held:
            if not held or find_target(session, plan) is None:
                return
            finish_computed(session, who, target, STRICT, self.stop)
            if self.stop.is_set:
                return
            try:
                answer = self._answer(plan, creation)
            except UnreadableCreateTable as error:
                answer = NotJoinable(str(error))
            if isinstance(answer, NotJoinable):
                log.warning(
                    "the target cannot take a shard table's columns",
                    task=who.task,
                    source=who.source,
                    table=plan.table.full_name,
                    reason=answer.reason,
                )
                return
            if answer.clauses:
                text = f"ALTER TABLE {target.quoted} {', '.join(answer.clauses)}"
                one = OneRun([target], text, STRICT, computed=True)
                run_once(session, who, self.epoch, one, self.stop, lambda _: None)
            if not self.stop.is_set:
                session.begin()
                ddl_progress.delete_begun(session, who, subject_of([target]))
                session.commit()

    def _answer(self, plan: TablePlan, creation: CreateStatement) -> SchemaJoin | NotJoinable:
        tracker = open_tracker(self.session, self.who, "widening", self.epoch)
        # Columns only: indexes do not decide whether rows fit, and those of a new target may be deferred.
        own = replace(parse_table_definition(CanonicalCreates().canonical(plan.table, creation, tracker)), indexes=())
        target = parse_table_definition(read_create_statement(self.session, *plan.target.names))
        # No shard table has the columns that the route extracts from names.
        extracted = {name.lower() for name in plan.constant_columns}
        columns = tuple(column for column in target.columns if column.key not in extracted)
        target = replace(target, columns=columns, indexes=())
        own = with_target_collations(own, target)
        before = ShardSchema(plan.table.full_name, replace(own, columns=_as_in_table(target.columns, own)))
        return join(target, [ShardSchema("the target", target)], before, own, strict=True)


def _as_in_table(columns: tuple[ColumnDefinition, ...], own: TableDefinition) -> tuple[ColumnDefinition, ...]:
    """The target's columns with the table's types, where the target's hold all their values: the table is new to the
    target, so that it has narrowed nothing. AUTO_INCREMENT is the target's alone: the tracker has printed ``own``
    without it."""

    def typed(column: ColumnDefinition) -> ColumnDefinition:
        now = own.column(column.key)
        if now is None:
            return column
        unnumbered = tuple(each for each in column.rest if not each.upper().startswith("AUTO_INCREMENT"))
        if unnumbered == now.rest:
            column = replace(column, rest=now.rest)
        return replace(column, type=now.type) if common_type((column.type, now.type)) == column.type else column

    return tuple(map(typed, columns))
