"""Removes the rows of an earlier run, before start-task --remove-meta deletes its records and copies again."""

from __future__ import annotations

from contextlib import ExitStack

from shardmerge.proto import config_pb2, errors, failpoints
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import (
    Session,
    current_position,
    execute,
    quote_name,
    rows,
    server_info,
)
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.daemon.subtask.phases.begin import LOCATE_SECONDS
from shardmerge.worker.daemon.subtask.run_resources import RunResources
from shardmerge.worker.ddl.execute.run_once import check_epoch
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.records.subtask_record import SubTaskRow
from shardmerge.worker.target.tables.earlier_rows import earlier_rows
from shardmerge.worker.target.tables.row_ownership import KeyRange
from shardmerge.worker.target.tables.target_table import find_target

log = get_logger()

_DELETE_ROWS = 10_000


def remove_earlier_rows(
    resources: RunResources, target: Session, rules: Rules, epoch: int, row: SubTaskRow, stop: StopSignal
) -> bool:
    """Remove the rows that only this subtask has written; False when ``stop`` came first.

    The records stay until all are removed, so a run that is killed here is repeated. A task that copies nothing keeps
    its rows. Raises ROWS_HALF_REMOVED, EARLIER_ROWS_MIXED and FENCED.
    """
    config = resources.config
    if config.mode == config_pb2.TASK_MODE_INCREMENTAL:
        if row.removal_begun:
            raise errors.check_data.ROWS_HALF_REMOVED(task=config.task, source=resources.source_id)
        return True
    _check_that_copy_can_begin(resources, stop)
    with resources.coded_target_errors():
        members = read_target_members(target, *resources.who)
        found = earlier_rows(members.own.values(), (*members.same_task, *members.other_tasks), rules)
        present: dict[str, TargetTable | None] = {}

        def place(plan: TablePlan) -> TargetTable | None:
            if plan.target_name not in present:
                table = find_target(target, plan)
                present[plan.target_name] = None if table is None else TargetTable(table.schema, table.name)
            return present[plan.target_name]

        for kept in found.unremovable if row.removal_begun else ():
            at = place(kept.plan)
            if at is not None and kept.rows is not None and _has_rows(target, at, kept.rows):
                # The rules have changed since the removal began: the copy would leave these rows.
                raise errors.check_data.EARLIER_ROWS_MIXED(
                    task=config.task, source=resources.source_id, target=kept.plan.target_name, why=kept.why
                )
        for one in found.removable:
            at = place(one.plan)
            if at is not None and not _delete(resources, target, at, one.rows, epoch, stop):
                return False
    return True


def _check_that_copy_can_begin(resources: RunResources, stop: StopSignal) -> None:
    """Raises the errors of the source and of its relay log. Without this check the target would lack the rows for as
    long as the copy cannot begin: for example while another task still needs a binlog that the source has removed."""
    host = resources.host
    host.relay.start()
    with ExitStack() as sessions:
        source = resources.source(sessions)
        with resources.coded_source_errors():
            now = current_position(source, server_info(source))
            host.relay.ensure_from(now, fresh=not host.needed_by_others(resources.config.task))
    host.relay.locate(now, LOCATE_SECONDS, stop)


def _has_rows(target: Session, table: TargetTable, owned: KeyRange) -> bool:
    return bool(rows(target, f"SELECT 1 FROM {table.quoted} WHERE {owned.condition} LIMIT 1"))


def _delete(
    resources: RunResources, target: Session, table: TargetTable, owned: KeyRange, epoch: int, stop: StopSignal
) -> bool:
    """Delete in parts, each in one transaction that checks the epoch: an older process deletes no newer row (I3)."""
    text = f"DELETE FROM {table.quoted} WHERE {owned.condition} ORDER BY {quote_name(owned.column)} "
    count = 0
    while not stop.is_set:
        target.begin()
        check_epoch(target, resources.who, epoch, lock=True)
        deleted = execute(target, f"{text}LIMIT {_DELETE_ROWS}")
        target.commit()
        failpoints.hit("start_over.deleted")
        count += deleted
        if not deleted:
            if count:
                log.info(
                    "removed the rows of an earlier run",
                    task=resources.config.task,
                    source=resources.source_id,
                    table=table.quoted,
                    rows=count,
                    where=owned.condition,
                )
            return True
    return False
