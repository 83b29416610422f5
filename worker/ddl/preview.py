"""`shard-ddl preview`: rehearses a sharding DDL on what is recorded at the target; see worker/ddl/rehearsal.py."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import pymysql
from pymysql.constants import ER

from proto import config_pb2, errors, rpc, worker_pb2
from worker import meta
from worker.connection import Endpoint, Session, Side, coding, connect, errno_of, rows, server_info
from worker.ddl import dropped, parked, records
from worker.ddl.behind import behind_parked, read_again
from worker.ddl.dialect import Dialect
from worker.ddl.dropped import Member
from worker.ddl.everyone import everyone
from worker.ddl.parked import Parked
from worker.ddl.rehearsal import Rehearsal
from worker.ddl.rehearsed import Answer, ShardTable, Waits, asked_tables
from worker.ddl.tables import TableName
from worker.ddl.target_copy import TargetCopies
from worker.ddl.tracker import open_tracker
from worker.position import SourcePosition
from worker.replicate.dealing import Dealing
from worker.rules import Rules
from worker.target_table import find_stand_ins

_ANSWER_SECONDS = 300.0
_LOCK_SECONDS = 30
_LISTED = 10
_MARIADB_GTIDS = re.compile(r"\d+-\d+-\d+")


def preview_ddl(request: worker_pb2.WorkerPreviewDDLRequest) -> worker_pb2.WorkerPreviewDDLResponse:
    """The answers, one per shard table and in the order in which they are asked about.

    Raises PREVIEW_*, the rules' errors and coded errors of the target.
    """
    wanted = asked_tables(request.statement, request.tables)
    config = request.subtask
    target = Endpoint.from_proto(config.target)
    with (
        closing(connect(target, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)) as session,
        coding(target, Side.TARGET, "target"),
    ):
        _alone(session, config.task)
        rehearsal = _rehearsal(session, config, request.task_sources)
        answers: list[Answer] = []
        for name in wanted:
            for member in _members(rehearsal.tables, name, config.task, request.sources):
                answers.append(rehearsal.take(member, request.statement))
    return worker_pb2.WorkerPreviewDDLResponse(tables=map(_told, answers))


def _alone(session: Session, task: str) -> None:
    """One rehearsal of a task at a time, for it has one tracker. Held until the session ends. Raises PREVIEW_BUSY."""
    name = f"shardmerge.p{hashlib.sha256(task.encode()).hexdigest()[:24]}"
    [(held,)] = rows(session, "SELECT GET_LOCK(%s, %s)", (name, _LOCK_SECONDS))
    if held != 1:
        raise errors.ddl.PREVIEW_BUSY(task=task)


def _members(
    tables: Mapping[Member, ShardTable], name: TableName, task: str, sources: Sequence[str]
) -> tuple[Member, ...]:
    """The shard tables of that name, by source. Raises PREVIEW_TABLE_UNKNOWN."""
    asked = {member: each for member, each in sorted(tables.items()) if not sources or member[0] in sources}
    for wanted in (name, (name[0].lower(), name[1].lower())):  # see worker.ddl.plan.Scene.find
        found = tuple(at for at, each in asked.items() if (each.plan.table.schema, each.plan.table.name) == wanted)
        if found:
            return found
    known = sorted({f"{each.plan.table.schema}.{each.plan.table.name}" for each in asked.values()})
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    raise errors.ddl.PREVIEW_TABLE_UNKNOWN(
        table=".".join(name),
        task=task,
        where=f" at source(s) {', '.join(sources)}" if sources else "",
        known=", ".join(known[:_LISTED]) + more if known else "none that is recorded at the target yet",
    )


def _rehearsal(session: Session, config: config_pb2.SubTaskConfig, sources: Sequence[str]) -> Rehearsal:
    schema, task = config.meta_schema, config.task
    is_mariadb = server_info(session).is_mariadb

    def dialect(source: bool) -> Dialect:
        return Dialect(source, is_mariadb, lambda names: find_stand_ins(session, names))

    # Of the whole task: whichever worker is asked.
    copies = TargetCopies(open_tracker(session, (schema, task, ""), "preview", 0))
    routed: dict[str, Rules] = {}
    tables: dict[Member, ShardTable] = {}
    waiting: dict[Member, Parked] = {}
    silent: tuple[str, ...] = ()
    try:
        found = everyone(session, schema, task, config.source_id, sources)
        asked = meta.read_row(session, schema, task, config.source_id)
        silent = found.silent if asked is not None and asked.dealing else (*found.silent, config.source_id)
        gone = dropped.read(session, schema, task)
        for source in sorted({plan.source for plan in (*found.mine.values(), *found.others)}):
            row = meta.read_row(session, schema, task, source)
            dealing = None if row is None else Dealing.from_json(row.dealing)
            routed[source] = dealing.compiled_rules() if dealing is not None else Rules.from_config(config)
            creations = records.read_creations(session, schema, task, source)
            held = parked.read(session, schema, task, source)
            by_mariadb = is_mariadb if row is None or row.start is None else _is_mariadb(row.start)
            for plan in (*found.mine.values(), *found.others):
                if plan.source == source:
                    at = source, plan.shard
                    tables[at] = ShardTable(
                        plan,
                        creations.get(plan.shard),
                        gone.get(at, frozenset()),
                        by_mariadb,
                        is_held=plan.shard in held,
                    )
            waiting |= {(source, number): item for number, item in held.items() if not item.released}
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
            raise  # else nothing has begun there yet
    for at, item in waiting.items():
        if at in tables:
            tables[at] = _waiting(tables[at], item, copies, task)
    return Rehearsal(
        task,
        config.shard_mode,
        tables,
        silent,
        copies,
        dialect,
        lambda source, schema, table: routed[source].route(schema, table) is not None,
    )


def _is_mariadb(start: SourcePosition) -> bool:
    """Whether a source's server is one: those have no UUID (worker.connection.ServerInfo.identity)."""
    return start.server.startswith("server-id ") or bool(_MARIADB_GTIDS.match(start.gtid_set))


def _waiting(table: ShardTable, item: Parked, copies: TargetCopies, task: str) -> ShardTable:
    """``table``, which waits before ``item``'s statement."""
    if table.creation is None:
        return table
    statement, ddl = read_again(item)
    tracked = behind_parked(copies.tracker, table.plan, table.creation, item, task)
    waits = Waits(statement, ddl, item.text, item.given, tracked, item.since, item.why, item.contradicts)
    return replace(table, waits=waits)


def _told(answer: Answer) -> worker_pb2.DDLPreview:
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
        error=None if answer.error is None else rpc.error_to_proto(answer.error),
    )
