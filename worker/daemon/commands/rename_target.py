"""`dmctl update-task --rename-target`: checks and runs the rename of a target table, for all sources of a task."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.proto import config_pb2, errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, quote_name, rows, text_of
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.records import ddl_progress, parked_tables, subtask_record
from shardmerge.worker.target.records.history import interrupted_copies
from shardmerge.worker.target.records.partitioning import Partitioning, partitioning_for
from shardmerge.worker.target.records.schema import ensure_meta
from shardmerge.worker.target.records.subtask_record import Phase
from shardmerge.worker.target.renames import target_renames
from shardmerge.worker.target.renames.rename_target import (
    exists,
    rename_lock,
    rename_locked,
    rename_statement,
    settle,
    settle_locked,
)
from shardmerge.worker.target.renames.target_renames import PartitioningChange, RenameState, TargetTableRename
from shardmerge.worker.target.tables import deferred_index_store
from shardmerge.worker.unit.contract import Epochs

_MOST_NAMED = 20

_Pair = tuple[TargetTable, TargetTable]


def rename_target(
    session: Session, subtasks: Sequence[config_pb2.SubTaskConfig], epoch: int, epochs: Epochs
) -> pb.WorkerRenameTargetResponse:
    """Rename the target table that ``subtasks``, the new configurations of all of the task's sources, name differently.

    ``epoch``: of a moment at which all of the task's runs had ended; 0: only check. Raises RENAME_*, the rules' errors,
    those of ``epochs`` and ``pymysql.MySQLError``.
    """
    schema, task = subtasks[0].meta_schema, subtasks[0].task
    if not epoch:
        settle(session, schema, task)
        answer = _answer(session, _checked(session, subtasks))
        epochs.rise_above(subtask_record.read_highest_epoch(session, schema, task))
        return answer
    ensure_meta(session, schema)
    with rename_lock(session, schema, task):
        settle_locked(session, schema, task)
        rename = _checked(session, subtasks)
        answer = _answer(session, rename)
        if rename.state is RenameState.BEGUN:
            rename_locked(session, schema, rename, epoch)
        return answer


def _checked(session: Session, subtasks: Sequence[config_pb2.SubTaskConfig]) -> TargetTableRename:
    """What is to be renamed; or the rename that lacks only the task's file, MOVED."""
    schema, task = subtasks[0].meta_schema, subtasks[0].task
    survey = _Survey.read(session, subtasks)
    pair = survey.pair()
    if pair is not None:
        survey.check(session, pair)
        return TargetTableRename(task, *pair, RenameState.BEGUN, survey.changes(pair))
    left = target_renames.read(session, schema, task)
    if left is None:
        raise errors.master.RENAME_NOTHING(task=task)
    return left


def _answer(session: Session, rename: TargetTableRename) -> pb.WorkerRenameTargetResponse:
    return pb.WorkerRenameTargetResponse(
        before=rename.before.quoted,
        after=rename.after.quoted,
        statement=rename_statement(rename.before, rename.after),
        mentions=list(_mentions(session, rename.before))[:_MOST_NAMED],
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """The records of one source. ``before``, ``after``: the plans of its shard tables by number, as recorded and under
    the new rules; a table that these do not let through has none. ``rules``: the new ones, as they are recorded."""

    partitioning: Partitioning
    recorded: str
    before: Mapping[int, TablePlan]
    after: Mapping[int, TablePlan]
    rules: str

    def has_other_rules(self) -> bool:
        """Whether other rules than the routes differ."""
        was, now = (json.loads(text) for text in (self.partitioning.rules, self.rules))
        return {**was, "routes": None} != {**now, "routes": None}


@dataclass(frozen=True, slots=True)
class _Survey:
    schema: str
    task: str
    sources: Mapping[str, _Source]

    @staticmethod
    def read(session: Session, subtasks: Sequence[config_pb2.SubTaskConfig]) -> _Survey:
        """Raises RENAME_BUSY, the rules' errors and ``pymysql.MySQLError``."""
        schema, task = subtasks[0].meta_schema, subtasks[0].task
        survey = _Survey(schema, task, {})
        found: dict[str, _Source] = {}
        for subtask in subtasks:
            source = subtask.source_id
            who = SubtaskKey(schema, task, source)
            row = subtask_record.read_row(session, who)
            recorded = Partitioning.from_json(row.partitioning) if row is not None else None
            if row is None or recorded is None or row.phase is not Phase.REPLICATE:
                raise survey.busy(f"source {source} does not replicate all tables yet")
            if row.joining or parked_tables.read(session, who):
                raise survey.busy(f"tables of source {source} join, or wait before a DDL")
            rules = Rules.from_config(subtask)
            tables = subtask_record.read_tables(session, who)
            found[source] = _Source(
                recorded,
                row.partitioning,
                {plan.shard: plan for plan in recorded.plans(source, tables)},
                {
                    number: rules.plan(number, source, tables[number])
                    for number in recorded.shards
                    if rules.route(tables[number].schema, tables[number].name) is not None
                },
                partitioning_for(subtask, recorded.lanes, ()).rules,
            )
        return _Survey(schema, task, found)

    def pair(self) -> _Pair | None:
        """The target table that gets another name, and this name; None if none does. Raises RENAME_NOT_ALONE."""
        found: set[_Pair] = set()
        kept: set[TargetTable] = set()
        for source, its in self.sources.items():
            for number, plan in its.before.items():
                now = its.after.get(number)
                if now is None or (now.columns, now.key, now.transform) != (plan.columns, plan.key, plan.transform):
                    raise self.not_alone(f"the rules of {plan.table.full_name} at source {source} change")
                if now.target == plan.target:
                    kept.add(plan.target)
                else:
                    found.add((plan.target, now.target))
        if not found:
            return None
        if len(found) > 1 or kept & {one for pair in found for one in pair}:
            listed = ", ".join(f"{was.quoted} to {now.quoted}" for was, now in sorted(found)[:_MOST_NAMED])
            raise self.not_alone(f"not all shard tables of exactly one target table move to a new one: {listed}")
        return next(iter(found))

    def check(self, session: Session, pair: _Pair) -> None:
        """Raises RENAME_* and ``pymysql.MySQLError``."""
        before, after = pair
        others = read_target_members(session, SubtaskKey(self.schema, self.task, "")).other_tasks
        if any(plan.target in pair for plan in others):
            raise errors.master.RENAME_SHARED(task=self.task, before=before.quoted, after=after.quoted)
        if exists(session, after):
            raise errors.master.RENAME_EXISTS(task=self.task, before=before.quoted, after=after.quoted)
        kind = rows(
            session,
            "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            before.names,
        )
        if [text_of(row[0]) for row in kind] != ["BASE TABLE"]:
            raise self.busy(f"{before.quoted} is not a base table of the target")
        for reason in self._pending(session, before):
            raise self.busy(reason)

    def _pending(self, session: Session, before: TargetTable) -> Iterator[str]:
        """What must end first: each of these names the table, or is about to change it."""
        if deferred_index_store.read_owed(session, self.schema, before):
            yield "indexes of the table are still being added after its load"
        held = rows(
            session,
            f"SELECT 1 FROM {quote_name(self.schema)}.`held_change` "
            "WHERE `task` = %s AND `target_schema` = %s AND `target_table` = %s LIMIT 1",
            (self.task, *before.names),
        )
        if held:
            yield "changes of its rows are held in quarantine"
        for source, its in self.sources.items():
            who = SubtaskKey(self.schema, self.task, source)
            if its.has_other_rules():
                yield f"an earlier update has not taken effect at source {source}, or the file changes other rules"
            if ddl_progress.has_begun_statement(session, who):
                yield f"a statement of source {source} runs at the target"
            if interrupted_copies.read(session, who, its.partitioning.shards):
                yield f"a copy of source {source} was interrupted by a statement and is not complete"
            numbers = {number for number, plan in its.before.items() if plan.target == before}
            if any({key.parent, key.child} & numbers for key in its.partitioning.cascades):
                yield f"source {source} derives rows of its tables from foreign keys (cascades: derive)"

    def changes(self, pair: _Pair) -> dict[str, PartitioningChange]:
        return {
            source: PartitioningChange(
                its.recorded,
                its.partitioning.with_renamed(pair[0], pair[0], its.partitioning.rules).to_json(),
                its.partitioning.with_renamed(*pair, its.rules).to_json(),
            )
            for source, its in self.sources.items()
        }

    def busy(self, reason: str) -> ShardmergeError:
        return errors.master.RENAME_BUSY(task=self.task, reason=reason)

    def not_alone(self, reason: str) -> ShardmergeError:
        return errors.master.RENAME_NOT_ALONE(task=self.task, reason=reason)


def _mentions(session: Session, target: TargetTable) -> Iterator[str]:
    """What at the target names the table, by the text of its definition. RENAME TABLE changes none of it, except that a
    trigger of the table stays with the table. Raises ``pymysql.MySQLError``."""
    for kind, query, args in (
        (
            "view",
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.VIEWS WHERE LOCATE(%s, VIEW_DEFINITION) > 0",
            (quote_name(target.table),),
        ),
        (
            "trigger of the table",
            "SELECT TRIGGER_SCHEMA, TRIGGER_NAME FROM information_schema.TRIGGERS "
            "WHERE EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s",
            target.names,
        ),
        (
            "trigger of another table",
            "SELECT TRIGGER_SCHEMA, TRIGGER_NAME FROM information_schema.TRIGGERS "
            "WHERE NOT (EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s) AND LOCATE(%s, ACTION_STATEMENT) > 0",
            (*target.names, target.table),
        ),
        (
            "routine",
            "SELECT ROUTINE_SCHEMA, ROUTINE_NAME FROM information_schema.ROUTINES "
            "WHERE LOCATE(%s, ROUTINE_DEFINITION) > 0 AND ROUTINE_SCHEMA NOT IN ('sys', 'mysql')",
            (target.table,),
        ),
        (
            "event",
            "SELECT EVENT_SCHEMA, EVENT_NAME FROM information_schema.EVENTS WHERE LOCATE(%s, EVENT_DEFINITION) > 0",
            (target.table,),
        ),
    ):
        for schema, name in rows(session, query, args):
            yield f"{kind} {quote_name(text_of(schema))}.{quote_name(text_of(name))}"
