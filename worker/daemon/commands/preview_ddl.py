"""`shard-ddl preview`: dry run of a sharding DDL on the records at the target; see worker/ddl/dry_run/dry_run.py."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import pymysql
from pymysql.constants import ER

from shardmerge.proto import config_pb2, errors, worker_pb2
from shardmerge.proto.listed_names import listed
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.mysql.connection import (
    Endpoint,
    Session,
    Side,
    coded_errors,
    connect,
    dialect_of,
    errno_of,
    rows,
)
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.ddl.dry_run.dry_run import DryRun
from shardmerge.worker.ddl.dry_run.model import Answer, ShardTable, SimulatedWait, tables_in_scope
from shardmerge.worker.ddl.sql.dialect import Dialect
from shardmerge.worker.ddl.structure.schema_tracker import open_tracker
from shardmerge.worker.ddl.structure.structure_after import parked_structure_after, reparse
from shardmerge.worker.ddl.structure.target_copy import TargetCopies
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.records import ddl_progress, dropped_columns, parked_tables, subtask_record
from shardmerge.worker.target.records.dropped_columns import Member
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import Partitioning
from shardmerge.worker.target.tables.target_table import find_fallback_collations

_ANSWER_SECONDS = 300.0
_LOCK_SECONDS = 30
_LISTED = 10
_MARIADB_GTIDS = re.compile(r"\d+-\d+-\d+")


def preview_ddl(request: worker_pb2.WorkerPreviewDDLRequest) -> worker_pb2.WorkerPreviewDDLResponse:
    """The answers, one per shard table, in the order of the request.

    Raises PREVIEW_*, the rules' errors and coded errors of the target.
    """
    wanted = tables_in_scope(request.statement, request.tables)
    config = request.subtask
    target = Endpoint.from_proto(config.target)
    with (
        closing(connect(target, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)) as session,
        coded_errors(target, Side.TARGET, "target"),
    ):
        _lock_preview(session, config.task)
        rehearsal = _dry_run(session, config, request.task_sources)
        answers: list[Answer] = []
        for name in wanted:
            for member in _members(rehearsal.tables, name, config.task, request.sources or request.task_sources):
                answers.append(rehearsal.apply(member, request.statement))
    return worker_pb2.WorkerPreviewDDLResponse(tables=map(_preview, answers))


def _lock_preview(session: Session, task: str) -> None:
    """Allow one dry run of a task at a time, because it has one tracker. The lock is held until the session ends.
    Raises PREVIEW_BUSY."""
    name = f"shardmerge.p{hashlib.sha256(task.encode()).hexdigest()[:24]}"
    [(held,)] = rows(session, "SELECT GET_LOCK(%s, %s)", (name, _LOCK_SECONDS))
    if held != 1:
        raise errors.ddl.PREVIEW_BUSY(task=task)


def _members(
    tables: Mapping[Member, ShardTable], name: TableName, task: str, sources: Sequence[str]
) -> tuple[Member, ...]:
    """The shard tables of that name at these sources, by source. Raises PREVIEW_TABLE_UNKNOWN."""
    asked = {member: each for member, each in sorted(tables.items()) if member[0] in sources}
    for wanted in (name, (name[0].lower(), name[1].lower())):  # see shardmerge.worker.ddl.decide.actions.Scene.find
        found = tuple(at for at, each in asked.items() if (each.plan.table.schema, each.plan.table.name) == wanted)
        if found:
            return found
    known = sorted({f"{each.plan.table.schema}.{each.plan.table.name}" for each in asked.values()})
    raise errors.ddl.PREVIEW_TABLE_UNKNOWN(
        table=".".join(name),
        task=task,
        where=f" at source(s) {', '.join(sources)}",
        known=listed(known, _LISTED) if known else "none that is recorded at the target yet",
    )


def _dry_run(session: Session, config: config_pb2.SubTaskConfig, sources: Sequence[str]) -> DryRun:
    schema, task = config.meta_schema, config.task
    target = dialect_of(session)

    def dialect(source: bool) -> Dialect:
        return Dialect(source, target, lambda names: find_fallback_collations(session, names))

    # For the whole task, whichever worker runs the preview.
    copies = TargetCopies(open_tracker(session, SubtaskKey(schema, task, ""), "preview", 0))
    routed: dict[str, Rules] = {}
    tables: dict[Member, ShardTable] = {}
    waiting: dict[Member, Parked] = {}
    silent: tuple[str, ...] = ()
    try:
        found = read_target_members(session, SubtaskKey(schema, task, config.source_id), sources, of_task_alone=True)
        asked = subtask_record.read_row(session, SubtaskKey(schema, task, config.source_id))
        silent = (
            found.unrecorded_sources
            if asked is not None and asked.partitioning
            else (*found.unrecorded_sources, config.source_id)
        )
        silent = tuple(source for source in silent if source in sources)
        gone = dropped_columns.read(session, schema, task)
        for source in sorted({plan.source for plan in (*found.own.values(), *found.same_task)}):
            who = SubtaskKey(schema, task, source)
            row = subtask_record.read_row(session, who)
            partitioning = None if row is None else Partitioning.from_json(row.partitioning)
            routed[source] = partitioning.compiled_rules() if partitioning is not None else Rules.from_config(config)
            creations = ddl_progress.read_creations(session, who)
            held = parked_tables.read(session, who)
            by_mariadb = target.is_mariadb if row is None or row.start is None else _is_mariadb(row.start)
            for plan in (*found.own.values(), *found.same_task):
                if plan.source == source:
                    at = source, plan.shard
                    tables[at] = ShardTable(plan, creations.get(plan.shard), gone.get(at, frozenset()), by_mariadb)
            waiting |= {(source, number): item for number, item in held.items() if not item.released}
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
            raise  # else nothing has begun there yet
    for at, item in waiting.items():
        if at in tables:
            tables[at] = _with_wait(tables[at], item, copies, task)
    return DryRun(
        task,
        config.shard_mode,
        tables,
        frozenset(sources),
        silent,
        copies,
        dialect,
        lambda source, schema, table: routed[source].route(schema, table) is not None,
    )


def _is_mariadb(start: SourcePosition) -> bool:
    """Whether a source's server is a MariaDB: those have no UUID
    (shardmerge.worker.core.mysql.connection.ServerInfo.identity)."""
    return start.server.startswith("server-id ") or bool(_MARIADB_GTIDS.match(start.gtid_set))


def _with_wait(table: ShardTable, item: Parked, copies: TargetCopies, task: str) -> ShardTable:
    """``table``, parked at ``item``'s statement."""
    if table.creation is None:
        return table
    statement, ddl = reparse(item)
    tracked = parked_structure_after(copies.tracker, table.plan, table.creation, item, task)
    waits = SimulatedWait(statement, ddl, item.text, item.session, tracked, item.since, item.why, item.contradicts)
    return replace(table, waits=waits)


def _preview(answer: Answer) -> worker_pb2.DDLPreview:
    table = answer.plan.table
    return worker_pb2.DDLPreview(
        source=answer.plan.source,
        schema=table.schema,
        table=table.name,
        target=answer.plan.target_name,
        outcome=answer.outcome,
        statement=answer.statement,
        reason=answer.reason,
        contradicts=answer.contradicts,
        owner=answer.owner,
        missing=[
            worker_pb2.ShardTableName(source=each.source, schema=each.table.schema, table=each.table.name)
            for each in answer.missing
        ],
        risks=answer.risks,
        error=None if answer.error is None else error_to_proto(answer.error),
    )
