"""`binlog-schema list|update|delete`: what is recorded of one shard table's structure, told or replaced by an operator.

update, delete   while no run of the subtask is under way, nor begins; under an epoch of its own, so that what an
                 earlier run has left behind can commit nothing any more
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import Protocol

import pymysql

from proto import config_pb2, errors, worker_pb2
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker import meta
from worker.connection import Endpoint, Session, Side, coding, connect, rows, server_info, text_of
from worker.context import who_of
from worker.ddl import forgotten, records
from worker.ddl.behind import refusal_of, runs
from worker.ddl.creation import read_creation
from worker.ddl.dialect import Dialect
from worker.ddl.operator import split
from worker.ddl.recorded import Recorded, as_now, gone, unknown
from worker.ddl.session import PLAIN
from worker.ddl.statement import CreateTable, parse_ddl
from worker.ddl.tabletext import table_text
from worker.ddl.tracker import Tracked, open_tracker
from worker.ddl.versioned import Server, unwrapped
from worker.host import Epochs
from worker.plan import TablePlan, TargetTable
from worker.position import RelayOffset, SourcePosition
from worker.relay.model import Statement
from worker.target_table import find_stand_ins, find_target

log = get_logger()

_ANSWER_SECONDS = 300.0
_SHOWN = 200
_NOWHERE = RelayOffset(0, 0)
_Request = worker_pb2.WorkerSchemaRequest


class Resting(Protocol):
    """The subtask whose records are meant."""

    @property
    def config(self) -> config_pb2.SubTaskConfig: ...

    def at_rest(self) -> AbstractContextManager[str]:
        """In the block no run is under way, nor begins; gives the meta token under which it would. Raises
        SCHEMA_RUNNING."""
        ...


def operate_schema(
    request: worker_pb2.WorkerSchemaRequest, subtask: Resting, source: config_pb2.SourceConfig, epochs: Epochs
) -> worker_pb2.WorkerSchemaResponse:
    """The structure as it is recorded behind the operation.

    Raises the SCHEMA_* errors, those of a structure that does not fit, coded errors of both servers.
    """
    target = Endpoint.from_proto(subtask.config.target)
    with (
        closing(connect(target, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)) as session,
        coding(target, Side.TARGET, "target"),
    ):
        if request.op == worker_pb2.SCHEMA_OP_LIST:
            return _told(session, _recorded(session, subtask.config, request), request)
        with subtask.at_rest() as meta_token:
            _change(session, request, subtask.config, source, epochs, meta_token)
            return _told(session, _recorded(session, subtask.config, request), request)


def _recorded(session: Session, config: config_pb2.SubTaskConfig, request: _Request) -> Recorded:
    found = Recorded.read(session, config)
    if found is None:
        raise unknown(request.task, request.source, request.database, request.table)
    return found


def _told(session: Session, recorded: Recorded, request: _Request) -> worker_pb2.WorkerSchemaResponse:
    plan = recorded.find(request.database, request.table)
    creation = records.read_creation(session, *recorded.who, plan.shard)
    found = find_target(session, plan)
    at_target = "" if found is None else read_creation(session, found.schema, found.name).text
    note = ""
    if plan.shard in recorded.forgotten:
        note = "deleted: it is read from the source, as the table is there then, when the task is resumed"
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
    _recorded(session, config, request).find(request.database, request.table)
    epoch = epochs.acquire(request.task, request.source)
    meta.ensure_meta(session, config.meta_schema)
    meta.take_over(session, *who, epoch, meta_token)
    # Read again: from here on nobody else changes it.
    recorded = _recorded(session, config, request)
    plan = recorded.find(request.database, request.table)
    recorded.check_free(session, plan)
    if request.op == worker_pb2.SCHEMA_OP_DELETE:
        meta.pass_statement(session, *who, epoch, {}, {}, lambda inner: forgotten.write(inner, *who, plan.shard))
    else:
        recorded.replace(session, epoch, plan.shard, _wanted(session, request, plan, config, source, epoch))
    log.info(
        "an operator has changed a recorded structure",
        task=request.task,
        source=request.source,
        table=plan.table.full_name,
        op=worker_pb2.SchemaOp.Name(request.op),
        epoch=epoch,
    )


def _wanted(
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
        now = None if found is None else as_now(session, found.schema, found.name, request.task, request.source)
        if now is None:
            raise gone(plan, request.task, "target", plan.target_name)
        return replace(now, table=replace(now.table, schema=table.schema, name=table.name))
    endpoint = Endpoint.from_proto(getattr(source, "from"))
    with (
        closing(connect(endpoint, Side.SOURCE, name=source.source_id, read_timeout=_ANSWER_SECONDS)) as at_source,
        coding(endpoint, Side.SOURCE, source.source_id),
    ):
        if request.from_source:
            now = as_now(at_source, table.schema, table.name, request.task, request.source)
            if now is None:
                raise gone(plan, request.task, "source", table.full_name)
            return now
        info = server_info(at_source)
        server = Server(info.is_mariadb, info.version)
        default = _default_collation(at_source, table.schema)
    return _given(session, request, plan, config, server, default, epoch)


def _default_collation(at_source: Session, schema: str) -> str:
    """The schema's, "" when it is gone."""
    found = rows(
        at_source, "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s", (schema,)
    )
    return text_of(found[0][0]) if found else ""


def _given(
    session: Session,
    request: _Request,
    plan: TablePlan,
    config: config_pb2.SubTaskConfig,
    server: Server,
    collation: str,
    epoch: int,
) -> Tracked:
    """The structure that the request's CREATE TABLE makes, whatever name it gives, asked of a tracker. ``server``: the
    source's; ``collation``: the default of the table's schema there."""
    table = plan.table
    text, ddl = only_create_table(request, unwrapped(request.schema, 0, server), table.schema)
    found = table_text(text, ddl, 0)
    if found is None:
        raise _no_create_table(request, text, "it does not list the columns")
    dialect = Dialect(server.is_mariadb, server_info(session).is_mariadb, lambda names: find_stand_ins(session, names))
    tracker = open_tracker(session, who_of(config), "schema", epoch)
    moved = dialect.spelt(found.named(TargetTable(*tracker.place).quoted, "" if found.has_charset else collation), 0)
    try:
        tracked = tracker.created(table.schema, table.name, runs(moved, PLAIN))
    except pymysql.MySQLError as error:
        raise refusal_of(error, table.full_name, _refused(request, text)) from error
    statement = Statement(_NOWHERE, _NOWHERE, _NOWHERE, SourcePosition("", 0), table.schema, text, 0)
    return replace(tracked, table=dialect.as_declared(tracked.table, statement))


def only_create_table(request: _Request, text: str, schema: str) -> tuple[str, CreateTable]:
    """The one statement of ``text``. Pure. Raises SCHEMA_STATEMENT."""
    found = tuple(split(text, 0))
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
