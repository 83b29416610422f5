"""Gives an error whose way out copies one source again a way out that the task can go.

Where the rows of the source cannot be removed alone, the printed command would be refused after the task was stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shardmerge.proto import config_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.listed_names import listed
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.tables.earlier_rows import earlier_rows
from shardmerge.worker.unit.run_context import at_target, who_of

log = get_logger()

_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class MixedRows:
    """Why the rows of a source cannot be removed alone, and from which target tables."""

    why: str
    targets: str


def read_mixed_rows(session: Session, config: config_pb2.SubTaskConfig) -> MixedRows | None:
    """From the records at the target, as start-task --remove-meta would read them; None: the rows can be removed.
    Raises ``pymysql.MySQLError`` and the rules' errors."""
    members = read_target_members(session, who_of(config))
    others = (*members.same_task, *members.other_tasks)
    kept = earlier_rows(members.own.values(), others, Rules.from_config(config)).unremovable
    if not kept:
        return None
    targets = sorted({f"{one.plan.target_schema}.{one.plan.target_table}" for one in kept})
    return MixedRows(kept[0].why, listed(targets, _MOST_NAMED))


def with_checked_way_out(error: ShardmergeError, configs: Iterable[config_pb2.SubTaskConfig]) -> ShardmergeError:
    """The error with the way out of the first of ``configs`` whose source cannot be copied alone. ``configs``: the
    subtasks that the error concerns. Unchanged if the target does not answer."""
    if not error.spec.copies_one_source:
        return error
    for config in configs:
        try:
            mixed = at_target(config, lambda session, config=config: read_mixed_rows(session, config))
        except ShardmergeError as why:
            log.warning("cannot look whose rows are at the target", error=str(why), task=config.task)
            continue
        if mixed is not None:
            return error.of_mixed_rows(config.task, config.source_id, mixed.why, mixed.targets)
    return error
