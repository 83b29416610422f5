"""The pre-checks of a source and of a subtask, as the master asks for them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pymysql

from proto import config_pb2 as config
from proto import errors
from proto import worker_pb2 as pb
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.check.around import WorkerView, check_clocks, check_relay_disk, check_spark
from worker.check.differences import check_collations, check_sql_mode
from worker.check.downstream import Start, check_rows, check_version
from worker.check.ends import check_ends
from worker.check.estimates import copy_seconds, size_of
from worker.check.filters import check_filter_rules
from worker.check.findings import EVERY_ITEM, NOT_HERE, READ_SECONDS, Checklist, broken, failed, not_here, passed
from worker.check.history import Binlogs, check_gtids, check_retention
from worker.check.ids import check_ids
from worker.check.locks import Reads, check_locks, look_at_reads
from worker.check.room import check_connections, check_free_space
from worker.check.source import SourceView, check_filters, check_position, check_server, look_at
from worker.check.tables import TablesView, check_tables, look_at_tables
from worker.check.target import check_target
from worker.connection import Endpoint, Session, Side, connect
from worker.ddl.recorded import Recorded
from worker.plan import TablePlan
from worker.position import SourcePosition
from worker.rules import Rules
from worker.snapshot.plan import needs_lock

log = get_logger()

_RELAY_KEY = "`relay-binlog-name`/`relay-binlog-gtid`"


@dataclass(frozen=True, slots=True)
class Question:
    """What a check of a subtask is to know besides it.

    ``as_recorded``: it goes on from its records, so that the target is to fit the tables as they are recorded; what the
    source has beyond that comes with its DDL. ``family``: the subtasks of all of the task's sources, () for this one
    alone; ``together``: the sources that are started by the same command. ``master_clock``: what the master's clock
    showed when it asked, ``came``: this machine's then; 0.0: not told. ``worker``: None: nothing is asked of it.
    """

    as_recorded: bool = False
    family: Sequence[config.SubTaskConfig] = ()
    together: frozenset[str] = frozenset()
    master_clock: float = 0.0
    came: float = 0.0
    worker: WorkerView | None = None


def question_of(request: pb.CheckSubTaskRequest, worker: WorkerView) -> Question:
    """As the master asks, now."""
    return Question(
        request.as_recorded,
        tuple(request.family),
        frozenset(request.together),
        request.master_clock,
        time.time(),
        worker,
    )


def check_source(source: config.SourceConfig) -> list[pb.CheckResult]:
    """Every check of a source server; raises nothing: what cannot be asked is a failed item."""
    checklist = Checklist.of(source.source_id, ())
    with ExitStack() as sessions:
        view = _look(checklist, source, sessions)
        if view is not None:
            # A slow or malicious server must not block this thread for longer.
            sessions.enter_context(view.session.within_deadline(READ_SECONDS))
            check_server(checklist, view)
            start = SourcePosition.from_proto(source.relay_start)
            check_position(checklist, view, start, _RELAY_KEY)
    return checklist.results


def check_subtask(
    source: config.SourceConfig, subtask: config.SubTaskConfig, question: Question | None = None
) -> list[pb.CheckResult]:
    """Every check of one subtask: its source, its tables, its target, the worker. The item `duplicate_keys` is not
    among them: for it the master asks several workers.

    Items named in ``ignore_checking_items`` do not run, with "all" none. Raises nothing: what cannot be asked
    is a failed item. Nothing is made or changed at either server.
    """
    checklist = Checklist.of(source.source_id, subtask.ignore_checking_items)
    if EVERY_ITEM in checklist.ignored:
        return []
    with ExitStack() as sessions:
        _SubTaskCheck(checklist, source, subtask, question or Question()).run(sessions)
    return checklist.results


class _SubTaskCheck:
    """One run of all items; both sessions stay open until its end."""

    def __init__(
        self,
        checklist: Checklist,
        source: config.SourceConfig,
        subtask: config.SubTaskConfig,
        question: Question,
    ) -> None:
        self._list = checklist
        self._source, self._subtask, self._question = source, subtask, question
        self._copies = subtask.mode != config.TASK_MODE_INCREMENTAL

    def run(self, sessions: ExitStack) -> None:
        checklist = self._list
        view = _look(checklist, self._source, sessions)
        tables: TablesView | None = None
        reads: Reads | None = None
        binlogs: Binlogs | None = None
        if view is not None:
            check_server(checklist, view)
            check_ends(checklist, view, self._subtask)
            tables = _tables(checklist, view, self._subtask, self._question.family)
            binlogs = self._history(view, tables)
            if self._copies and tables is not None:
                reads = look_at_reads(checklist, view, tables.plans)
        target = _target(checklist, self._subtask, sessions)
        self._at_target(view, target, tables, reads)
        self._around(view, target, reads, binlogs, tables)
        for item in NOT_HERE:
            if checklist.wants(item):
                checklist.results.append(not_here(item, checklist.source))

    def _history(self, view: SourceView, tables: TablesView | None) -> Binlogs | None:
        checklist, subtask = self._list, self._subtask
        start = SourcePosition.from_proto(subtask.start) if not self._copies else SourcePosition("", 0)
        if not self._copies:
            check_position(checklist, view, start, "`meta`")
        check_gtids(checklist, view, start, "`meta`")
        return check_retention(checklist, view, self._seconds(tables))

    def _seconds(self, tables: TablesView | None) -> float:
        """How long the copy may take."""
        if tables is None or not self._copies:
            return 0.0
        return copy_seconds(size_of(tables.tables), self._subtask.snapshot)

    def _at_target(
        self, view: SourceView | None, target: Session | None, tables: TablesView | None, reads: Reads | None
    ) -> None:
        checklist, subtask, question = self._list, self._subtask, self._question
        if target is None:
            if reads is not None:
                check_locks(checklist, reads, None)
            return
        plans = () if tables is None else tables.plans
        check_version(checklist, target)
        fitting = _as_recorded(target, subtask, plans) if question.as_recorded else plans
        check_target(checklist, target, fitting, subtask)
        check_rows(checklist, target, plans, Start(subtask, question.as_recorded, question.together))
        check_collations(checklist, target, fitting)
        if view is not None:
            check_sql_mode(checklist, view, target)
        if reads is not None:
            check_locks(checklist, reads, target)
        if tables is not None and self._copies:
            check_free_space(checklist, target, size_of(tables.tables))

    def _around(
        self,
        view: SourceView | None,
        target: Session | None,
        reads: Reads | None,
        binlogs: Binlogs | None,
        tables: TablesView | None,
    ) -> None:
        checklist, question = self._list, self._question
        source = None if view is None else view.session
        locks = reads is not None and any(needs_lock(plan, tells_position=reads.tells_position) for plan in reads.plans)
        family = question.family or (self._subtask,)
        check_connections(checklist, self._subtask, family, source, target, locks=locks)
        check_clocks(checklist, source, target, question.master_clock, question.came)
        if question.worker is not None:
            check_spark(checklist, question.worker, self._subtask)
            seconds = self._seconds(tables)
            check_relay_disk(checklist, question.worker, self._source.purge, binlogs, seconds)


def _look(checklist: Checklist, source: config.SourceConfig, sessions: ExitStack) -> SourceView | None:
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
        return look_at(source, session)
    except pymysql.MySQLError as error:
        checklist.results.append(failed("version", source.source_id, broken(source.source_id, error)))
        return None


def _target(checklist: Checklist, subtask: config.SubTaskConfig, sessions: ExitStack) -> Session | None:
    try:
        session = connect(Endpoint.from_proto(subtask.target), Side.TARGET, name="target", read_timeout=READ_SECONDS)
    except ShardmergeError as error:
        reason = errors.check.TARGET_CONNECTION(reason=error, way_out=error.workaround)
        checklist.results.append(failed("target_connection", checklist.source, reason))
        return None
    sessions.callback(session.close)
    checklist.results.append(passed("target_connection", checklist.source))
    return session


def _tables(
    checklist: Checklist, view: SourceView, subtask: config.SubTaskConfig, family: Sequence[config.SubTaskConfig]
) -> TablesView | None:
    try:
        rules = Rules.from_config(subtask)
        tables = look_at_tables(view, rules)
    except pymysql.MySQLError as error:
        checklist.results.append(failed("table_schema", view.source_id, broken(view.source_id, error)))
        return None
    except ShardmergeError as error:
        reason = errors.check.RULES(reason=str(error), way_out=error.workaround)
        checklist.results.append(failed("table_schema", view.source_id, reason))
        return None
    check_filters(checklist, view, tables.schemas)
    check_tables(checklist, view, tables, snapshot=subtask.mode != config.TASK_MODE_INCREMENTAL)
    check_ids(checklist, view, tables.plans)
    check_filter_rules(checklist, rules, tables, [one for one in family if one.source_id != subtask.source_id])
    return tables


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
