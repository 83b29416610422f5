"""Computes what update-task would change at one subtask, from its servers; changes nothing."""

from __future__ import annotations

from contextlib import closing

import pymysql
from pymysql.constants import ER

from shardmerge.proto import config_pb2, errors, worker_pb2
from shardmerge.proto.config import position
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.mysql.connection import Endpoint, Side, coded_errors, connect, errno_of, to_coded
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.daemon.commands.rows_before_copy import rows_before_copy
from shardmerge.worker.replicate.join.table_changes import Change, Joins, Leaves, Moves, Remaps, changes_of
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.records import parked_tables, subtask_record
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.partitioning import Partitioning
from shardmerge.worker.target.tables.make_targets import read_structures
from shardmerge.worker.verify.precheck.findings import EVERY_ITEM

_ANSWER_SECONDS = 120.0


def preview_update(
    source: config_pb2.SourceConfig, subtask: config_pb2.SubTaskConfig
) -> worker_pb2.PreviewUpdateResponse:
    """The tables that would join, leave, move or be refused under the rules of ``subtask``.

    Raises UPDATE_TOO_EARLY, the rules' errors and coded errors of the servers.
    """
    rules = Rules.from_config(subtask)
    who = SubtaskKey(subtask.meta_schema, subtask.task, source.source_id)
    target = Endpoint.from_proto(subtask.target)
    too_early = errors.replicate.UPDATE_TOO_EARLY(task=subtask.task, source=source.source_id)
    with closing(connect(target, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)) as session:
        try:
            row = subtask_record.read_row(session, who)
            recorded = None if row is None else Partitioning.from_json(row.partitioning)
            if row is None or recorded is None:
                raise too_early
            tables = subtask_record.read_tables(session, who)
            waiting = parked_tables.read(session, who)
        except pymysql.MySQLError as error:
            if errno_of(error) in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
                raise too_early from error  # nothing has begun there yet
            raise to_coded(error, target, Side.TARGET, "target") from error
    endpoint = Endpoint.from_proto(getattr(source, "from"))
    with (
        closing(connect(endpoint, Side.SOURCE, name=source.source_id, read_timeout=_ANSWER_SECONDS)) as session,
        coded_errors(endpoint, Side.SOURCE, source.source_id),
    ):
        found = read_structures(session, rules, source.source_id)
    joining = Joining.from_json(row.joining)
    changes = changes_of(source.source_id, tables, recorded.with_tables(waiting), joining, rules, found)
    added = [plan for change in changes if (plan := _copied(change)) is not None]
    if subtask.HasField("stop_at") and added:
        raise errors.replicate.UPDATE_OF_ENDING(
            task=subtask.task, source=source.source_id, stop=position.shown(subtask.stop_at)
        )
    answer = worker_pb2.PreviewUpdateResponse(tables=[_table_change(change) for change in changes])
    if added and not {EVERY_ITEM, "downstream_table_empty"} & {*subtask.ignore_checking_items}:
        with (
            closing(connect(target, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)) as session,
            coded_errors(target, Side.TARGET, "target"),
        ):
            refusal = rows_before_copy(session, who, tables, added)
        if refusal is not None:
            answer.refusal.CopyFrom(error_to_proto(refusal))
    return answer


def _copied(change: Change) -> TablePlan | None:
    match change:
        case Joins(plan=plan) | Moves(after=plan):
            return plan
        case _:
            return None


def _table_change(change: Change) -> worker_pb2.TableChange:
    match change:
        case Joins(plan=plan):
            kind, before, after = worker_pb2.TableChange.JOINS, None, plan
        case Leaves(plan=plan):
            kind, before, after = worker_pb2.TableChange.LEAVES, plan, None
        case Moves(before=before, after=after):
            kind = worker_pb2.TableChange.MOVES
        case Remaps(before=before, after=after):
            kind = worker_pb2.TableChange.REMAPS
    shown = after or before
    return worker_pb2.TableChange(
        kind=kind,
        source_table=shown.table.full_name if shown is not None else "",
        before=before.target_name if before is not None else "",
        after=after.target_name if after is not None else "",
        row_estimate=after.table.row_estimate if after is not None else 0,
    )
