"""Gives the plans of a subtask the structures that it has recorded, with which it would continue."""

from __future__ import annotations

from dataclasses import replace

import pymysql

from shardmerge.proto import config_pb2 as config
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.structure.recorded_structures import RecordedStructures
from shardmerge.worker.rules import Rules

log = get_logger()


def as_recorded(session: Session, subtask: config.SubTaskConfig, plans: tuple[TablePlan, ...]) -> tuple[TablePlan, ...]:
    """``plans`` with the recorded structures; unchanged if nothing is recorded, if the task will read the structures
    again, or if the records cannot be read."""
    try:
        found = RecordedStructures.read(session, subtask)
    except (pymysql.MySQLError, ShardmergeError) as error:
        log.warning("records are not read for a check", task=subtask.task, source=subtask.source_id, error=str(error))
        found = None
    if found is None or found.row.is_before_copy:
        return plans
    known = {
        (plan.table.schema, plan.table.name): plan.table
        for number, plan in found.plans.items()
        if number not in found.resets
    }
    rules = Rules.from_config(subtask)
    return tuple(
        replace(
            rules.plan(plan.shard, plan.source, known.get((plan.table.schema, plan.table.name), plan.table)),
            text_as_utf8=plan.text_as_utf8,
        )
        for plan in plans
    )
