"""Runs the pre-checks of a source and of a subtask that the master requests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pymysql

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, connect, dialect_of
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.rules import Rules
from shardmerge.worker.snapshot.table_planner import needs_lock
from shardmerge.worker.verify.precheck.estimates import copy_seconds, size_of
from shardmerge.worker.verify.precheck.filters import check_filter_rules
from shardmerge.worker.verify.precheck.findings import (
    EVERY_ITEM,
    NOT_APPLICABLE,
    READ_SECONDS,
    Checklist,
    failed,
    not_applicable,
    passed,
    query_failed,
)
from shardmerge.worker.verify.precheck.id_ranges import check_ids
from shardmerge.worker.verify.precheck.recorded import as_recorded
from shardmerge.worker.verify.precheck.references import check_references
from shardmerge.worker.verify.precheck.server_capacity import check_connections, check_free_space
from shardmerge.worker.verify.precheck.server_differences import check_collations, check_sql_mode
from shardmerge.worker.verify.precheck.source.binlog_retention import Binlogs, check_gtids, check_retention
from shardmerge.worker.verify.precheck.source.server import (
    ConnectedSource,
    check_filters,
    check_position,
    check_server,
    open_source,
)
from shardmerge.worker.verify.precheck.source.table_locks import ReadModes, check_locks, read_modes
from shardmerge.worker.verify.precheck.start_and_stop import check_ends
from shardmerge.worker.verify.precheck.tables import Derives, TablesView, check_tables, read_view, with_cascades_marked
from shardmerge.worker.verify.precheck.target.existing_rows import StartRequest, check_rows, check_version
from shardmerge.worker.verify.precheck.target.extracted_columns import check_extracted_columns
from shardmerge.worker.verify.precheck.target.indexes import check_indexes
from shardmerge.worker.verify.precheck.target.server import check_target_server
from shardmerge.worker.verify.precheck.target.session_proxy import session_proxied
from shardmerge.worker.verify.precheck.target.triggers import check_triggers
from shardmerge.worker.verify.precheck.worker_capacity import WorkerView, check_clocks, check_relay_disk, check_spark

log = get_logger()

_RELAY_KEY = "`relay-binlog-name`/`relay-binlog-gtid`"


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The circumstances under which a subtask is checked.

    ``as_recorded``: the subtask continues from its records, so the target must fit the tables as they are recorded;
    later changes of the source follow with its DDL. ``family``: the subtasks of all of the task's sources, () for this
    one alone. ``together``: the sources that are started by the same command. ``master_clock``: the master's clock when
    it sent the request, ``arrived``: this machine's clock at its arrival; 0.0: unknown. ``worker``: None: the worker
    itself is not checked.
    """

    as_recorded: bool = False
    family: Sequence[config.SubTaskConfig] = ()
    together: frozenset[str] = frozenset()
    master_clock: float = 0.0
    arrived: float = 0.0
    worker: WorkerView | None = None


def from_request(request: pb.CheckSubTaskRequest, worker: WorkerView) -> CheckRequest:
    """The master's request; it arrives now."""
    return CheckRequest(
        request.as_recorded,
        tuple(request.family),
        frozenset(request.together),
        request.master_clock,
        time.time(),
        worker,
    )


def check_source(source: config.SourceConfig) -> list[pb.CheckResult]:
    """Run every check of a source server. Raises nothing: a query that fails is a failed item."""
    checklist = Checklist.of(source.source_id, (), of_task=False)
    with ExitStack() as sessions:
        view = _open_source(checklist, source, sessions)
        if view is not None:
            # A slow or malicious server must not block this thread for longer.
            sessions.enter_context(view.session.within_deadline(READ_SECONDS))
            check_server(checklist, view)
            start = SourcePosition.from_proto(source.relay_start)
            check_position(checklist, view, start, _RELAY_KEY)
    return checklist.results


def check_subtask(
    source: config.SourceConfig, subtask: config.SubTaskConfig, request: CheckRequest | None = None
) -> list[pb.CheckResult]:
    """Run every check of one subtask: its source, its tables, its target, the worker. The item `duplicate_keys` is not
    among them, because the master needs several workers for it.

    Items named in ``ignore_checking_items`` do not run, with "all" none. Raises nothing: a query that fails is a failed
    item. Nothing is created or changed at either server.
    """
    checklist = Checklist.of(source.source_id, subtask.ignore_checking_items)
    if EVERY_ITEM in checklist.ignored:
        return []
    with ExitStack() as sessions:
        _SubTaskCheck(checklist, source, subtask, request or CheckRequest()).run(sessions)
    return checklist.results


class _SubTaskCheck:
    """One run of all items; both sessions stay open until its end."""

    def __init__(
        self,
        checklist: Checklist,
        source: config.SourceConfig,
        subtask: config.SubTaskConfig,
        request: CheckRequest,
    ) -> None:
        self._list = checklist
        self._source, self._subtask, self._request = source, subtask, request
        self._copies = subtask.mode != config.TASK_MODE_INCREMENTAL

    def run(self, sessions: ExitStack) -> None:
        checklist = self._list
        view = _open_source(checklist, self._source, sessions)
        tables: TablesView | None = None
        reads: ReadModes | None = None
        binlogs: Binlogs | None = None
        if view is not None:
            check_server(checklist, view)
            check_ends(checklist, view, self._subtask)
            tables = _check_tables(checklist, view, self._subtask, self._request.family)
            binlogs = self._check_binlogs(view, tables)
            if self._copies and tables is not None:
                reads = read_modes(checklist, view, tables.plans)
        target = _open_target(checklist, self._subtask, sessions)
        self._check_target(view, target, tables, reads)
        self._check_capacity(view, target, reads, binlogs, tables)
        for item in NOT_APPLICABLE:
            if checklist.wants(item):
                checklist.results.append(not_applicable(item, checklist.source))

    def _check_binlogs(self, view: ConnectedSource, tables: TablesView | None) -> Binlogs | None:
        checklist, subtask = self._list, self._subtask
        start = SourcePosition.from_proto(subtask.start) if not self._copies else SourcePosition("", 0)
        if not self._copies:
            check_position(checklist, view, start, "`meta`")
        check_gtids(checklist, view, start, "`meta`")
        return check_retention(checklist, view, self._copy_seconds(tables))

    def _copy_seconds(self, tables: TablesView | None) -> float:
        """The estimated duration of the copy; 0.0 without one."""
        if tables is None or not self._copies:
            return 0.0
        return copy_seconds(size_of(tables.tables), self._subtask.snapshot)

    def _check_target(
        self, view: ConnectedSource | None, target: Session | None, tables: TablesView | None, reads: ReadModes | None
    ) -> None:
        checklist, subtask, request = self._list, self._subtask, self._request
        if target is None:
            if reads is not None:
                check_locks(checklist, reads, None)
            return
        plans = () if tables is None else tables.plans
        check_version(checklist, target)
        plans = tuple(replace(plan, text_as_utf8=not dialect_of(target).has_charsets) for plan in plans)
        fitting = as_recorded(target, subtask, plans) if request.as_recorded else plans
        check_target_server(checklist, target, fitting, subtask)
        if self._copies:
            check_indexes(checklist, target, fitting, subtask)
        start = StartRequest(subtask, request.as_recorded, request.together)
        check_extracted_columns(checklist, view, target, plans, start, sources=len(request.family) or 1)
        check_rows(checklist, target, plans, start)
        check_triggers(checklist, view, target, plans)
        check_collations(checklist, target, fitting)
        if view is not None:
            check_sql_mode(checklist, view, target)
        if reads is not None:
            check_locks(checklist, reads, target)
        if tables is not None and self._copies:
            check_free_space(checklist, target, size_of(tables.tables))

    def _check_capacity(
        self,
        view: ConnectedSource | None,
        target: Session | None,
        reads: ReadModes | None,
        binlogs: Binlogs | None,
        tables: TablesView | None,
    ) -> None:
        checklist, request = self._list, self._request
        source = None if view is None else view.session
        locks = reads is not None and any(
            needs_lock(plan, reports_position=reads.reports_position) for plan in reads.plans
        )
        family = request.family or (self._subtask,)
        check_connections(checklist, self._subtask, family, source, target, locks=locks)
        check_clocks(checklist, source, target, request.master_clock, request.arrived)
        if request.worker is not None:
            check_spark(checklist, request.worker, self._subtask)
            seconds = self._copy_seconds(tables)
            check_relay_disk(checklist, request.worker, self._source.purge, binlogs, seconds)


def _open_source(checklist: Checklist, source: config.SourceConfig, sessions: ExitStack) -> ConnectedSource | None:
    try:
        endpoint = Endpoint.from_proto(getattr(source, "from"))
        session = connect(endpoint, Side.SOURCE, name=source.source_id, read_timeout=READ_SECONDS)
    except ShardmergeError as error:
        reason = errors.check.SOURCE_CONNECTION(source=source.source_id, reason=error, way_out=error.workaround)
        checklist.results.append(failed("connection", source.source_id, reason))
        return None
    sessions.callback(session.close)
    checklist.results.append(passed("connection", source.source_id))
    try:
        return open_source(source, session)
    except pymysql.MySQLError as error:
        found = query_failed(source.source_id, error, of_task=checklist.of_task)
        checklist.results.append(failed("version", source.source_id, found))
        return None


def _open_target(checklist: Checklist, subtask: config.SubTaskConfig, sessions: ExitStack) -> Session | None:
    try:
        session = connect(Endpoint.from_proto(subtask.target), Side.TARGET, name="target", read_timeout=READ_SECONDS)
    except ShardmergeError as error:
        error = error.completed(task=subtask.task, source=checklist.source)
        reason = errors.check.TARGET_CONNECTION(reason=error, way_out=error.workaround)
        checklist.results.append(failed("target_connection", checklist.source, reason))
        return None
    sessions.callback(session.close)
    try:
        proxied = session_proxied(session)
    except pymysql.MySQLError as error:
        checklist.results.append(failed("target_connection", checklist.source, query_failed("target", error)))
        return session
    if proxied is not None:
        checklist.results.append(failed("target_connection", checklist.source, proxied))
    else:
        checklist.results.append(passed("target_connection", checklist.source))
    return session


def _check_tables(
    checklist: Checklist, view: ConnectedSource, subtask: config.SubTaskConfig, family: Sequence[config.SubTaskConfig]
) -> TablesView | None:
    try:
        rules = Rules.from_config(subtask)
        tables = read_view(view, rules)
    except pymysql.MySQLError as error:
        checklist.results.append(failed("table_schema", view.source_id, query_failed(view.source_id, error)))
        return None
    except ShardmergeError as error:
        reason = errors.check.RULES(reason=str(error), way_out=error.workaround)
        checklist.results.append(failed("table_schema", view.source_id, reason))
        return None
    check_filters(checklist, view, tables.schemas)
    derives = Derives(subtask.case_sensitive) if subtask.derive_cascades else None
    check_tables(checklist, view, tables, snapshot=subtask.mode != config.TASK_MODE_INCREMENTAL, derives=derives)
    check_references(checklist, view, rules, tables.plans, proposes=not subtask.no_references)
    check_ids(checklist, view, tables.plans)
    check_filter_rules(checklist, rules, tables, [one for one in family if one.source_id != subtask.source_id])
    if derives is not None:
        tables = _with_cascades_marked(view, tables, derives)
    return tables


def _with_cascades_marked(view: ConnectedSource, tables: TablesView, derives: Derives) -> TablesView:
    """``tables`` unchanged if that fails: the item `table_schema` shows why."""
    try:
        return with_cascades_marked(view, tables, derives)
    except (pymysql.MySQLError, UnreadableCreateTable) as error:
        log.warning("cascades are not read for a check", source=view.source_id, error=str(error))
        return tables
