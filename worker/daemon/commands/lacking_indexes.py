"""The deferred indexes that target tables of a stopped task lack: found, and added where no run will add them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from shardmerge.proto import config_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Endpoint, Session
from shardmerge.worker.core.stop_signal import StopSignal, running_thread
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.target.tables import deferred_index_store
from shardmerge.worker.target.tables.deferred_index import AddIndexes, adding_statement, next_step
from shardmerge.worker.target.tables.index_adder import IndexAdder

log = get_logger()

ADD_SECONDS = 180.0
"""How long a command adds indexes. The target completes a statement that has begun, but not the following ones."""


def lacking_indexes(session: Session, meta: str, of_others: Collection[TargetTable]) -> Mapping[TargetTable, str]:
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


def add_lacking(subtask: config_pb2.SubTaskConfig, targets: Iterable[TargetTable]) -> None:
    """Add the indexes of the tables, one table after the other. What the target refuses, or has not done within
    ``ADD_SECONDS``, stays in the record."""
    stop, endpoint = StopSignal(), Endpoint.from_proto(subtask.target)

    def limit(ended: StopSignal) -> None:
        if not ended.wait(ADD_SECONDS):
            stop.set()

    with running_thread("limit", limit, StopSignal()):
        for target in targets:
            if stop.is_set:
                return
            try:
                IndexAdder(endpoint, subtask.meta_schema, subtask.task, [target], patient=False).add(stop)
            except ShardmergeError as error:
                log.warning("indexes are not added", table=target.quoted, error=str(error))
