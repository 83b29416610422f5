"""Checks what becomes of the secondary indexes of existing, empty target tables while these are loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pymysql
from pymysql.constants import ER

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, dialect_of
from shardmerge.worker.core.mysql.server_errors import errno_of
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.target.tables.defer_existing import deferrable_now, is_empty
from shardmerge.worker.target.tables.deferred_index import Defer, worth_deferring
from shardmerge.worker.target.tables.target_table import check_existing_target, find_target
from shardmerge.worker.verify.precheck.findings import Checklist, abbreviated, failed, passed, warned
from shardmerge.worker.verify.precheck.source.server import read_grants
from shardmerge.worker.verify.precheck.target.server import INDEXES

_ITEM = "target_indexes"


def check_indexes(
    checklist: Checklist, target: Session, plans: Sequence[TablePlan], subtask: config.SubTaskConfig
) -> None:
    """For a task that copies. A table that does not exist, has rows, or is filled quickly costs one query at most."""
    defer = Defer.of(subtask.load)
    checklist.run(_ITEM, lambda: _indexes(checklist.source, target, plans, defer), privilege_of="target_privilege")


def _indexes(source: str, session: Session, plans: Sequence[TablePlan], defer: Defer) -> Iterator[pb.CheckResult]:
    if defer is Defer.NEVER:
        yield passed(_ITEM, source, "not with `defer-indexes: never`")
        return
    if not dialect_of(session).defers_indexes:
        yield passed(_ITEM, source, "the target loads faster with its indexes")
        return
    groups: dict[TargetTable, list[TablePlan]] = {}
    for plan in plans:
        groups.setdefault(plan.target, []).append(plan)
    found = {target: names for target, group in groups.items() if (names := _deferrable(session, target, group))}
    if not found:
        return
    if defer is Defer.CREATED:
        for target, names in found.items():
            finding = errors.check_data.TARGET_INDEXES_KEPT(target=".".join(target.names), indexes=abbreviated(names))
            yield warned(_ITEM, source, finding)
        return
    grants = read_grants(session)
    lacking = {target: grants.lacks(INDEXES, *target.names) if grants.lines else [] for target in found}
    for target, privileges in lacking.items():
        if privileges:
            finding = errors.check_data.PRIVILEGE_FOR_INDEXES(
                target=".".join(target.names),
                user=grants.account,
                missing=", ".join(privileges),
                indexes=abbreviated(found[target]),
                grant=grants.schema_statement(privileges, target.schema),
            )
            yield failed(_ITEM, source, finding)
    if not any(lacking.values()):
        shown = "; ".join(f"{'.'.join(target.names)}: {abbreviated(names)}" for target, names in found.items())
        yield passed(_ITEM, source, f"dropped before the load and added after it: {shown}")


def _deferrable(session: Session, target: TargetTable, group: Sequence[TablePlan]) -> list[str]:
    """The names of the indexes that `defer-indexes: empty` drops."""
    if not worth_deferring(plan.table.row_estimate for plan in group):
        return []
    try:
        if not is_empty(session, target):
            return []
        facts = check_existing_target(session, group)
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR):
            raise
        return []
    except ShardmergeError:
        return []  # the item `schema_of_shard_tables` reports it
    found = find_target(session, group[0])
    if found is None or facts is None or not facts.key or found.key_hidden:
        return []
    return [index.name for index in deferrable_now(session, target, found)]
