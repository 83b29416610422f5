"""Removes the rows of an earlier run, before start-task --remove-meta deletes its records and copies again."""

from __future__ import annotations

from collections.abc import Iterator
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
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.daemon.subtask.phases.begin import LOCATE_SECONDS
from shardmerge.worker.daemon.subtask.run_resources import RunResources
from shardmerge.worker.ddl.execute.remove_rows import parts_of
from shardmerge.worker.ddl.execute.run_once import check_epoch
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.records.subtask_record import SubTaskRow
from shardmerge.worker.target.tables.earlier_rows import earlier_rows
from shardmerge.worker.target.tables.row_ownership import ExtractedTexts, KeyRange
from shardmerge.worker.target.tables.target_table import find_target

log = get_logger()

_DELETE_ROWS = 10_000


def remove_earlier_rows(
    resources: RunResources, target: Session, rules: Rules, epoch: int, row: SubTaskRow, stop: StopSignal
) -> bool:
    """Remove the rows that only this subtask has written; False when ``stop`` came first.

    The records stay until all are removed, so a run that is killed here is repeated. A task that copies nothing keeps
    its rows. Raises ROWS_HALF_REMOVED, EARLIER_ROWS_MIXED, TEXTS_NOT_KNOWN_YET and FENCED.
    """
    config = resources.config
    if config.mode == config_pb2.TASK_MODE_INCREMENTAL:
        if row.removal_begun:
            raise errors.check_data.ROWS_HALF_REMOVED(task=config.task, source=resources.source_id)
        return True
    _check_that_copy_can_begin(resources, stop)
    with resources.coded_target_errors():
        members = read_target_members(target, resources.who)
        found = earlier_rows(members.own.values(), (*members.same_task, *members.other_tasks), rules)
        by_texts = any(isinstance(one.rows, ExtractedTexts) for one in found.removable)
        if by_texts and members.unrecorded_sources:
            raise errors.check_data.TEXTS_NOT_KNOWN_YET(
                task=config.task, source=resources.source_id, other=members.unrecorded_sources[0]
            )
        present: dict[str, Table | None] = {}

        def place(plan: TablePlan) -> Table | None:
            if plan.target_name not in present:
                present[plan.target_name] = find_target(target, plan)
            return present[plan.target_name]

        for kept in found.unremovable if row.removal_begun else ():
            at = place(kept.plan)
            if at is not None and kept.rows is not None and _has_rows(target, at, kept.rows, stop):
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


def _parts(
    target: Session, table: Table, owned: KeyRange | ExtractedTexts, stop: StopSignal
) -> Iterator[tuple[str, str]]:
    """Conditions that together are those of the rows, each with the columns by which its rows are ordered. Rows with
    the same texts are everywhere in the table, so it is read by its key, part by part."""
    if isinstance(owned, KeyRange):
        yield owned.condition, quote_name(owned.column)
        return
    order = ", ".join(quote_name(column.name) for column in table.key_columns)
    for part in parts_of(target, TargetTable(table.schema, table.name), table, stop):
        yield f"{owned.condition}{part}", order


def _has_rows(target: Session, table: Table, owned: KeyRange | ExtractedTexts, stop: StopSignal) -> bool:
    at = TargetTable(table.schema, table.name).quoted
    return any(
        rows(target, f"SELECT 1 FROM {at} WHERE {condition} LIMIT 1")
        for condition, _ in _parts(target, table, owned, stop)
    )


def _delete(
    resources: RunResources,
    target: Session,
    table: Table,
    owned: KeyRange | ExtractedTexts,
    epoch: int,
    stop: StopSignal,
) -> bool:
    """Delete in parts, each in one transaction that checks the epoch: an older process deletes no newer row (I3)."""
    at = TargetTable(table.schema, table.name).quoted
    count = 0
    for condition, order in _parts(target, table, owned, stop):
        text = f"DELETE FROM {at} WHERE {condition}{f' ORDER BY {order}' if order else ''} LIMIT {_DELETE_ROWS}"
        deleted = _DELETE_ROWS
        while deleted and not stop.is_set:
            target.begin()
            check_epoch(target, resources.who, epoch, lock=True)
            deleted = execute(target, text)
            target.commit()
            failpoints.hit("start_over.deleted")
            count += deleted
    if stop.is_set:
        return False
    if count:
        log.info(
            "removed the rows of an earlier run",
            task=resources.config.task,
            source=resources.source_id,
            table=at,
            rows=count,
            where=owned.condition,
        )
    return True
