"""Checks whether the source's user may lock the tables that can be read at one position only under a lock.

This depends on the target too: because of a further unique key there, a table is read at one position. So the check
runs after both servers were queried; its findings belong to the item `dump_privilege`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pymysql

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.snapshot.source.watermarks import committed_position
from shardmerge.worker.snapshot.table_planner import needs_lock
from shardmerge.worker.target.tables.target_table import check_existing_target
from shardmerge.worker.verify.precheck.findings import Checklist, abbreviated, failed, query_failed
from shardmerge.worker.verify.precheck.source.grants import Grants
from shardmerge.worker.verify.precheck.source.server import ConnectedSource

_ITEM = "dump_privilege"
_LOCK = "LOCK TABLES"


@dataclass(frozen=True, slots=True)
class ReadModes:
    """How the source's tables will be read. ``reports_position``: see :func:`needs_lock`."""

    grants: Grants
    reports_position: bool
    plans: tuple[TablePlan, ...]


def read_modes(checklist: Checklist, view: ConnectedSource, plans: tuple[TablePlan, ...]) -> ReadModes | None:
    """Query the source; None, and a finding, if it refuses."""
    if not checklist.wants(_ITEM):
        return None
    try:
        reports_position = committed_position(view.session, view.info) is not None
    except pymysql.MySQLError as error:
        checklist.results.append(failed(_ITEM, view.source_id, query_failed(view.source_id, error)))
        return None
    return ReadModes(view.grants, reports_position, plans)


def check_locks(checklist: Checklist, reads: ReadModes, target: Session | None) -> None:
    """``target``: None if it cannot be reached; then only what does not depend on it is checked."""
    locked: dict[str, list[str]] = {}
    for plan in _as_merged(reads.plans, target):
        table = plan.table
        # The privilege exists for whole schemas only.
        if needs_lock(plan, reports_position=reads.reports_position) and not reads.grants.has(_LOCK, table.schema):
            locked.setdefault(table.schema, []).append(f"{table.schema}.{table.name}")
    if not locked:
        return
    names = [name for in_schema in locked.values() for name in in_schema]
    missing = errors.check.PRIVILEGE(
        server=f"source {checklist.source}",
        user=reads.grants.account,
        missing=f"{_LOCK}, which reading {abbreviated(names)} at one position takes",
        grant="\n".join(reads.grants.schema_statement([_LOCK], schema) for schema in locked),
    )
    checklist.results.append(failed(_ITEM, checklist.source, missing))


def _as_merged(plans: tuple[TablePlan, ...], target: Session | None) -> Iterator[TablePlan]:
    """The plans with their targets' further unique keys, like those of worker/target/tables/make_targets.py."""
    groups: dict[str, list[TablePlan]] = {}
    for plan in plans:
        groups.setdefault(plan.target_name, []).append(plan)
    for group in groups.values():
        one_lane = target is not None and _one_lane(target, group)
        yield from (replace(plan, one_lane=one_lane) for plan in group)


def _one_lane(target: Session, group: list[TablePlan]) -> bool:
    """``TablePlan.one_lane`` for a target table that exists, or that will be created like the first shard table."""
    try:
        facts = check_existing_target(target, group)
    except (ShardmergeError, pymysql.MySQLError):
        return False  # another item reports such a target, and no task can start with it
    return group[0].one_lane if facts is None else facts.one_lane
