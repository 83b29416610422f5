"""The pre-checks of a source and of a subtask, as the master asks for them."""

from __future__ import annotations

import pymysql

from proto import config_pb2 as config
from proto import errors
from proto import worker_pb2 as pb
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.check.ends import check_ends
from worker.check.findings import EVERY_ITEM, Checklist, broken, failed, passed
from worker.check.locks import Reads, check_locks, look_at_reads
from worker.check.source import SourceView, check_filters, check_position, check_server, look_at
from worker.check.tables import TablesView, check_tables, look_at_tables
from worker.check.target import check_target
from worker.connection import Endpoint, Session, Side, connect
from worker.ddl.recorded import Recorded
from worker.plan import TablePlan
from worker.position import SourcePosition
from worker.rules import Rules

log = get_logger()

READ_SECONDS = 120
"""How long one question of a check may take."""


def check_source(source: config.SourceConfig) -> list[pb.CheckResult]:
    """Every check of a source server; raises nothing: what cannot be asked is a failed item."""
    checklist = Checklist.of(source.source_id, ())
    session = _connect_source(checklist, source)
    if session is None:
        return checklist.results
    with session:
        view = _look(checklist, source, session)
        if view is not None:
            check_server(checklist, view)
            start = SourcePosition.from_proto(source.relay_start)
            check_position(checklist, view, start, "`relay-binlog-name`/`relay-binlog-gtid`")
    return checklist.results


def check_subtask(
    source: config.SourceConfig, subtask: config.SubTaskConfig, *, as_recorded: bool = False
) -> list[pb.CheckResult]:
    """Every check of one subtask: its source, its tables, its target.

    ``as_recorded``: it goes on from its records, so that the target is to fit the tables as they are recorded; what the
    source has beyond that comes with its DDL.

    Items named in ``ignore_checking_items`` do not run, with "all" none. Raises nothing: what cannot be asked
    is a failed item. Nothing is made or changed at either server.
    """
    checklist = Checklist.of(source.source_id, subtask.ignore_checking_items)
    if EVERY_ITEM in checklist.ignored:
        return []
    tables: TablesView | None = None
    reads: Reads | None = None
    session = _connect_source(checklist, source)
    if session is not None:
        with session:
            view = _look(checklist, source, session)
            if view is not None:
                check_server(checklist, view)
                check_ends(checklist, view, subtask)
                tables = _check_tables(checklist, view, subtask)
                if subtask.mode == config.TASK_MODE_INCREMENTAL:
                    check_position(checklist, view, SourcePosition.from_proto(subtask.start), "`meta`")
                elif tables is not None:
                    reads = look_at_reads(checklist, view, tables.plans)
    _check_target(checklist, subtask, tables, reads, as_recorded=as_recorded)
    return checklist.results


def _connect_source(checklist: Checklist, source: config.SourceConfig) -> Session | None:
    endpoint = Endpoint.from_proto(getattr(source, "from"))
    try:
        session = connect(endpoint, Side.SOURCE, name=source.source_id, read_timeout=READ_SECONDS)
    except ShardmergeError as error:
        reason = errors.check.SOURCE_CONNECTION(source=source.source_id, reason=error, way_out=error.workaround)
        checklist.results.append(failed("connection", source.source_id, reason))
        return None
    checklist.results.append(passed("connection", source.source_id))
    return session


def _look(checklist: Checklist, source: config.SourceConfig, session: Session) -> SourceView | None:
    try:
        return look_at(source, session)
    except pymysql.MySQLError as error:
        checklist.results.append(failed("version", source.source_id, broken(source.source_id, error)))
        return None


def _check_tables(checklist: Checklist, view: SourceView, subtask: config.SubTaskConfig) -> TablesView | None:
    try:
        tables = look_at_tables(view, Rules.from_config(subtask))
    except pymysql.MySQLError as error:
        checklist.results.append(failed("table_schema", view.source_id, broken(view.source_id, error)))
        return None
    except ShardmergeError as error:
        reason = errors.check.RULES(reason=str(error), way_out=error.workaround)
        checklist.results.append(failed("table_schema", view.source_id, reason))
        return None
    check_filters(checklist, view, tables.schemas)
    check_tables(checklist, view, tables, snapshot=subtask.mode != config.TASK_MODE_INCREMENTAL)
    return tables


def _check_target(
    checklist: Checklist,
    subtask: config.SubTaskConfig,
    tables: TablesView | None,
    reads: Reads | None,
    *,
    as_recorded: bool,
) -> None:
    source = checklist.source
    try:
        session = connect(Endpoint.from_proto(subtask.target), Side.TARGET, name="target", read_timeout=READ_SECONDS)
    except ShardmergeError as error:
        reason = errors.check.TARGET_CONNECTION(reason=error, way_out=error.workaround)
        checklist.results.append(failed("target_connection", source, reason))
        if reads is not None:
            check_locks(checklist, reads, None)
        return
    checklist.results.append(passed("target_connection", source))
    with session:
        plans = () if tables is None else tables.plans
        if as_recorded:
            plans = _as_recorded(session, subtask, plans)
        check_target(checklist, session, plans, subtask.meta_schema or "dm_meta")
        if reads is not None:
            check_locks(checklist, reads, session)


def _as_recorded(
    session: Session, subtask: config.SubTaskConfig, plans: tuple[TablePlan, ...]
) -> tuple[TablePlan, ...]:
    """``plans`` with the recorded structures; as they are where nothing is recorded, or it cannot be read."""
    try:
        found = Recorded.read(session, subtask)
    except (pymysql.MySQLError, ShardmergeError) as error:
        log.warning("records are not read for a check", task=subtask.task, source=subtask.source_id, error=str(error))
        found = None
    if found is None:
        return plans
    known = {
        (plan.table.schema, plan.table.name): plan.table
        for number, plan in found.plans.items()
        if number not in found.forgotten
    }
    rules = Rules.from_config(subtask)
    return tuple(
        rules.plan(plan.shard, plan.source, known.get((plan.table.schema, plan.table.name), plan.table))
        for plan in plans
    )
