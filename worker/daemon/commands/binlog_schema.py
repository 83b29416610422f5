"""`binlog-schema list|update|delete`: shows or replaces the recorded structure of one shard table.

update, delete   while no run of the subtask is in progress or begins; under an epoch of their own, so that remaining
                 transactions of an earlier run can no longer commit
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import Protocol

import pymysql

from shardmerge.proto import config_pb2, errors, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import (
    Endpoint,
    Session,
    Side,
    coded_errors,
    connect,
    dialect_of,
    rows,
    server_info,
    text_of,
)
from shardmerge.worker.core.mysql.show_create import read_create_statement
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.operator_override import split_statements
from shardmerge.worker.ddl.sql.create_body import read_create_body
from shardmerge.worker.ddl.sql.dialect import Dialect
from shardmerge.worker.ddl.sql.statement import CreateTable, parse_ddl
from shardmerge.worker.ddl.sql.version_comments import Server, expand_version_comments
from shardmerge.worker.ddl.structure.recorded_structures import (
    RecordedStructures,
    missing_error,
    read_current,
    unknown_table_error,
)
from shardmerge.worker.ddl.structure.schema_tracker import Tracked, open_tracker
from shardmerge.worker.ddl.structure.structure_after import refusal_of, runner
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.target.records import ddl_progress, subtask_record
from shardmerge.worker.target.records.schema import ensure_meta
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION
from shardmerge.worker.target.tables.target_table import find_fallback_collations, find_target
from shardmerge.worker.unit.contract import Epochs
from shardmerge.worker.unit.run_context import who_of

log = get_logger()

_ANSWER_SECONDS = 300.0
_SHOWN = 200
_NOWHERE = RelayOffset(0, 0)
_Request = worker_pb2.WorkerSchemaRequest


class PausedSubtask(Protocol):
    """The subtask whose records are changed."""

    @property
    def config(self) -> config_pb2.SubTaskConfig: ...

    def while_paused(self) -> AbstractContextManager[str]:
        """During the block no run is in progress or begins; yields the meta token of the next run. Raises
        SCHEMA_RUNNING."""
        ...


def operate_schema(
    request: worker_pb2.WorkerSchemaRequest, subtask: PausedSubtask, source: config_pb2.SourceConfig, epochs: Epochs
) -> worker_pb2.WorkerSchemaResponse:
    """Run the operation; returns the structure as it is recorded afterwards.

    Raises the SCHEMA_* errors, those of a structure that does not fit, coded errors of both servers.
    """
    target = Endpoint.from_proto(subtask.config.target)
    with (
        closing(connect(target, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)) as session,
        coded_errors(target, Side.TARGET, "target"),
    ):
        if request.op == worker_pb2.SCHEMA_OP_LIST:
            return _response(session, _read_recorded(session, subtask.config, request), request)
        with subtask.while_paused() as meta_token:
            _change(session, request, subtask.config, source, epochs, meta_token)
            return _response(session, _read_recorded(session, subtask.config, request), request)


def _read_recorded(session: Session, config: config_pb2.SubTaskConfig, request: _Request) -> RecordedStructures:
    found = RecordedStructures.read(session, config)
    if found is None:
        raise unknown_table_error(request.task, request.source, request.database, request.table)
    return found


def _response(session: Session, recorded: RecordedStructures, request: _Request) -> worker_pb2.WorkerSchemaResponse:
    plan = recorded.find(request.database, request.table)
    creation = ddl_progress.read_creation(session, recorded.who, plan.shard)
    found = find_target(session, plan)
    at_target = "" if found is None else read_create_statement(session, found.schema, found.name).text
    note = ""
    if plan.shard in recorded.resets:
        note = "deleted: when the task is resumed, the structure that the table then has at the source is read"
    return worker_pb2.WorkerSchemaResponse(
        schema="" if creation is None else f"CREATE TABLE {plan.table.full_name}{creation.body}",
        target=plan.target_name,
        target_schema=at_target,
        note=note,
    )


def _change(
    session: Session,
    request: _Request,
    config: config_pb2.SubTaskConfig,
    source: config_pb2.SourceConfig,
    epochs: Epochs,
    meta_token: str,
) -> None:
    who = who_of(config)
    _read_recorded(session, config, request).find(request.database, request.table)
    ensure_meta(session, config.meta_schema)
    taken = subtask_record.take_over(
        session, who, lambda above: epochs.acquire(request.task, request.source, above), meta_token
    )
    if taken.starts_over:
        # The next run deletes these records.
        raise unknown_table_error(request.task, request.source, request.database, request.table)
    epoch = taken.epoch
    # Read again: from here on no other run changes it.
    recorded = _read_recorded(session, config, request)
    plan = recorded.find(request.database, request.table)
    recorded.check_replaceable(session, plan)
    if request.op == worker_pb2.SCHEMA_OP_DELETE:
        subtask_record.record_statement(
            session, who, epoch, {}, {}, lambda inner: ddl_progress.write_reset(inner, who, plan.shard)
        )
    else:
        recorded.replace(session, epoch, plan.shard, _wanted_structure(session, request, plan, config, source, epoch))
    log.info(
        "an operator has changed a recorded structure",
        task=request.task,
        source=request.source,
        table=plan.table.full_name,
        op=worker_pb2.SchemaOp.Name(request.op),
        epoch=epoch,
    )


def _wanted_structure(
    session: Session,
    request: _Request,
    plan: TablePlan,
    config: config_pb2.SubTaskConfig,
    source: config_pb2.SourceConfig,
    epoch: int,
) -> Tracked:
    table = plan.table
    if request.from_target:
        found = find_target(session, plan)
        now = None if found is None else read_current(session, found.schema, found.name, request.task, request.source)
        if now is None:
            raise missing_error(plan, request.task, "target", plan.target_name)
        return replace(now, table=replace(now.table, schema=table.schema, name=table.name))
    endpoint = Endpoint.from_proto(getattr(source, "from"))
    with (
        closing(connect(endpoint, Side.SOURCE, name=source.source_id, read_timeout=_ANSWER_SECONDS)) as at_source,
        coded_errors(endpoint, Side.SOURCE, source.source_id),
    ):
        if request.from_source:
            now = read_current(at_source, table.schema, table.name, request.task, request.source)
            if now is None:
                raise missing_error(plan, request.task, "source", table.full_name)
            return now
        info = server_info(at_source)
        server = Server(info.is_mariadb, info.version)
        default = _default_collation(at_source, table.schema)
    return _structure_from_text(session, request, plan, config, server, default, epoch)


def _default_collation(at_source: Session, schema: str) -> str:
    """The default collation of the schema; "" if it no longer exists."""
    found = rows(
        at_source, "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s", (schema,)
    )
    return text_of(found[0][0]) if found else ""


def _structure_from_text(
    session: Session,
    request: _Request,
    plan: TablePlan,
    config: config_pb2.SubTaskConfig,
    server: Server,
    collation: str,
    epoch: int,
) -> Tracked:
    """The structure that the request's CREATE TABLE gives in a schema tracker, whatever table name it contains.
    ``server``: the source's; ``collation``: the default of the table's schema there."""
    table = plan.table
    text, ddl = only_create_table(request, expand_version_comments(request.schema, 0, server), table.schema)
    found = read_create_body(text, ddl, 0)
    if found is None:
        raise _no_create_table(request, text, "it does not list the columns")
    dialect = Dialect(server.is_mariadb, dialect_of(session), lambda names: find_fallback_collations(session, names))
    tracker = open_tracker(session, who_of(config), "schema", epoch)
    moved = dialect.for_target(
        found.create_statement(TargetTable(*tracker.place).quoted, "" if found.has_charset else collation), 0
    )
    try:
        tracked = tracker.created(table.schema, table.name, runner(moved, UNKNOWN_SESSION))
    except pymysql.MySQLError as error:
        raise refusal_of(error, table.full_name, _refused(request, text)) from error
    statement = Statement(_NOWHERE, _NOWHERE, _NOWHERE, SourcePosition("", 0), table.schema, text, 0)
    return Tracked(
        dialect.as_declared(tracked.table, statement, collation),
        dialect.default_after(tracked.creation, collation, statement),
    )


def only_create_table(request: _Request, text: str, schema: str) -> tuple[str, CreateTable]:
    """The one statement of ``text``. Pure. Raises SCHEMA_STATEMENT."""
    found = tuple(split_statements(text, 0))
    if len(found) != 1:
        raise _no_create_table(request, text, f"this is not one statement but {len(found)}")
    ddl = parse_ddl(found[0], schema, 0)
    if not isinstance(ddl, CreateTable):
        raise _no_create_table(request, text, "this is no CREATE TABLE, or it is not understood")
    return found[0], ddl


def _no_create_table(request: _Request, text: str, reason: str) -> ShardmergeError:
    return errors.ddl.SCHEMA_STATEMENT(source=request.source, task=request.task, reason=reason, statement=_short(text))


def _refused(request: _Request, text: str) -> Callable[[str, object, int], ShardmergeError]:
    def refused(table: str, reason: object, errno: int) -> ShardmergeError:
        return errors.ddl.SCHEMA_REFUSED(
            source=request.source,
            task=request.task,
            table=table,
            reason=reason,
            errno=errno,
            statement=_short(text),
        )

    return refused


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN else f"{flat[:_SHOWN]}…"
