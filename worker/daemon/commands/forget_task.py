"""`dmctl stop-task --remove-meta`: removes a stopped task's records at the target, and reports which rows stay."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import pymysql
from pymysql.constants import ER

from shardmerge.proto import config_pb2, failpoints
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Endpoint, Session, errno_of, quote_name, rows, text_of
from shardmerge.worker.core.stop_signal import StopSignal, running_thread
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.daemon.mixed_rows import read_mixed_rows
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.quarantine import held_store
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.schema import ensure_meta
from shardmerge.worker.target.renames.rename_target import settle
from shardmerge.worker.target.tables import deferred_index_store
from shardmerge.worker.target.tables.deferred_index import AddIndexes, adding_statement, next_step
from shardmerge.worker.target.tables.index_adder import IndexAdder
from shardmerge.worker.unit.contract import Epochs

_COUNTED_ROWS = 100_000
log = get_logger()

_ADD_SECONDS = 180.0
"""How long a command adds indexes. The target completes a statement that has begun, but not the following ones."""


def forget_task(
    session: Session, subtask: config_pb2.SubTaskConfig, epoch: int, epochs: Epochs
) -> pb.WorkerForgetTaskResponse:
    """Remove the records of all of the task's sources; no row of a merged table changes. Before, the deferred indexes
    that its target tables lack are added: no run of it will do that.

    ``epoch``: of a moment at which the task did not exist; 0: change nothing. The answer describes what was there
    before the removal. Raises RECORDS_OF_NEWER_START, errors of ``epochs`` and ``pymysql.MySQLError``.
    """
    meta, task = subtask.meta_schema, subtask.task
    if not _has_records(session, meta):
        return pb.WorkerForgetTaskResponse()
    if not epoch:
        epochs.rise_above(subtask_record.read_highest_epoch(session, meta, task))
    else:
        ensure_meta(session, meta)
        settle(session, meta, task)
        members = _Members.read(session, meta, task)
        _add_lacking(subtask, _lacking_indexes(session, meta, members.of_others))
    answer = _describe(session, meta, task)
    if epoch:
        failpoints.hit("forget_task.described")
        subtask_record.forget_task(session, meta, task, epoch)
        failpoints.hit("forget_task.removed")
    return answer


def mixed_rows(session: Session, subtask: config_pb2.SubTaskConfig) -> pb.WorkerForgetTaskResponse:
    """Whether the rows of the subtask's source could be removed alone. Raises ``pymysql.MySQLError``."""
    found = read_mixed_rows(session, subtask) if _has_records(session, subtask.meta_schema) else None
    return pb.WorkerForgetTaskResponse(
        mixed_rows="" if found is None else found.why, mixed_targets="" if found is None else found.targets
    )


def _has_records(session: Session, meta: str) -> bool:
    """False: no task has begun there."""
    text = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = 'subtask'"
    return bool(rows(session, text, (meta,)))


def _describe(session: Session, meta: str, task: str) -> pb.WorkerForgetTaskResponse:
    members = _Members.read(session, meta, task)
    lacking = _lacking_indexes(session, meta, members.of_others)
    answer = pb.WorkerForgetTaskResponse(
        sources=_recorded_sources(session, meta, task), add_indexes=[one for one in lacking.values() if one]
    )
    answer.held_keys = sum(held_store.count_keys(session, SubtaskKey(meta, task, source)) for source in answer.sources)
    for target in sorted(members.targets, key=lambda one: one.names):
        count = _count(session, target)
        if count:
            answer.remaining.add(
                target=".".join(target.names),
                rows=min(count, _COUNTED_ROWS),
                at_least=count > _COUNTED_ROWS,
                is_shared=target in members.shared,
                lacks_indexes=target in lacking,
            )
    return answer


@dataclass(frozen=True, slots=True)
class _Members:
    """``targets``: the task's target tables, as far as they are recorded; ``shared``: those of other tasks."""

    targets: frozenset[TargetTable]
    shared: frozenset[TargetTable]

    @staticmethod
    def read(session: Session, meta: str, task: str) -> _Members:
        members = read_target_members(session, SubtaskKey(meta, task, ""))
        own = {plan.target for plan in members.same_task} | _copied_into(session, meta, task)
        return _Members(frozenset(own), frozenset(plan.target for plan in members.other_tasks))

    @property
    def of_others(self) -> frozenset[TargetTable]:
        return self.shared - self.targets


def _recorded_sources(session: Session, meta: str, task: str) -> list[str]:
    found = rows(
        session,
        f"SELECT `source` FROM {quote_name(meta)}.`subtask` WHERE `task` = %s AND `meta_token` <> %s ORDER BY `source`",
        (task, subtask_record.FORGOTTEN),
    )
    return [text_of(source) for (source,) in found]


def _copied_into(session: Session, meta: str, task: str) -> set[TargetTable]:
    """The targets of all copies, also those of shard tables that have left the task."""
    try:
        found = rows(
            session,
            f"SELECT DISTINCT `target_schema`, `target_table` FROM {quote_name(meta)}.`snapshot_table` "
            "WHERE `task` = %s",
            (task,),
        )
    except pymysql.MySQLError as error:
        if errno_of(error) != ER.NO_SUCH_TABLE:
            raise
        return set()
    return {TargetTable(text_of(schema), text_of(table)) for schema, table in found}


def _count(session: Session, target: TargetTable) -> int:
    """The number of rows, counted to one more than ``_COUNTED_ROWS``; 0 without the table."""
    try:
        text = f"SELECT COUNT(*) FROM (SELECT 1 FROM {target.quoted} LIMIT {_COUNTED_ROWS + 1}) counted"
        return int(text_of(rows(session, text)[0][0]))
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
            raise
        return 0


def _lacking_indexes(session: Session, meta: str, of_others: Collection[TargetTable]) -> Mapping[TargetTable, str]:
    """The tables that lack indexes, each with the statement that adds them ("": it lacks its AUTO_INCREMENT alone).

    From the record of all tables: a run that ended before its first chunk has no other record of its targets.
    ``of_others``: tables of other tasks alone. Raises ``pymysql.MySQLError``.
    """
    found: dict[TargetTable, str] = {}
    for target in deferred_index_store.read_tables(session, meta):
        if target in of_others:
            continue
        owed = deferred_index_store.read_owed(session, meta, target)
        match next_step(owed, deferred_index_store.read_present(session, target), (), patient=False):
            case AddIndexes(indexes=indexes):
                found[target] = adding_statement(target.quoted, indexes)
            case _:
                pass
    return found


def _add_lacking(subtask: config_pb2.SubTaskConfig, targets: Iterable[TargetTable]) -> None:
    """Add the indexes of the tables, one table after the other. What the target refuses, or has not done within
    ``_ADD_SECONDS``, stays in the record."""
    stop, endpoint = StopSignal(), Endpoint.from_proto(subtask.target)

    def limit(ended: StopSignal) -> None:
        if not ended.wait(_ADD_SECONDS):
            stop.set()

    with running_thread("limit", limit, StopSignal()):
        for target in targets:
            if stop.is_set:
                return
            try:
                IndexAdder(endpoint, subtask.meta_schema, subtask.task, [target], patient=False).add(stop)
            except ShardmergeError as error:
                log.warning("indexes are not added", table=target.quoted, error=str(error))
