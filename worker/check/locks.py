"""Whether the source's user may lock the tables that can only be read at one position under a lock.

That depends on the target, too: a further unique key there makes a table be read at one position. So it is asked
when both servers have been looked at; the findings belong to the item `dump_privilege`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pymysql

from proto import errors
from proto.errors import ShardmergeError
from worker.check.findings import Checklist, broken, failed, some
from worker.check.grants import Grants
from worker.check.source import SourceView
from worker.connection import Session
from worker.plan import TablePlan
from worker.snapshot.plan import needs_lock
from worker.snapshot.watermarks import open_consistent
from worker.target_table import compare_target

_ITEM = "dump_privilege"
_LOCK = "LOCK TABLES"


@dataclass(frozen=True, slots=True)
class Reads:
    """How the source's tables will be read. ``tells_position``: see :func:`needs_lock`."""

    grants: Grants
    tells_position: bool
    plans: tuple[TablePlan, ...]


def look_at_reads(checklist: Checklist, view: SourceView, plans: tuple[TablePlan, ...]) -> Reads | None:
    """Ask the source; None, and a finding, when it refuses."""
    if not checklist.wants(_ITEM):
        return None
    try:
        tells_position = open_consistent(view.session) is not None
        view.session.rollback()
    except pymysql.MySQLError as error:
        checklist.results.append(failed(_ITEM, view.source_id, broken(view.source_id, error)))
        return None
    return Reads(view.grants, tells_position, plans)


def check_locks(checklist: Checklist, reads: Reads, target: Session | None) -> None:
    """``target``: None when it cannot be reached; then only what does not depend on it is asked for."""
    locked: dict[str, list[str]] = {}
    for plan in _as_merged(reads.plans, target):
        table = plan.table
        # The privilege exists for whole schemas only.
        if needs_lock(plan, tells_position=reads.tells_position) and not reads.grants.has(_LOCK, table.schema):
            locked.setdefault(table.schema, []).append(f"{table.schema}.{table.name}")
    if not locked:
        return
    names = [name for in_schema in locked.values() for name in in_schema]
    missing = errors.check.PRIVILEGE(
        server=f"source {checklist.source}",
        user=reads.grants.account,
        missing=f"{_LOCK}, which reading {some(names)} at one position takes",
        grant="\n".join(reads.grants.schema_statement([_LOCK], schema) for schema in locked),
    )
    checklist.results.append(failed(_ITEM, checklist.source, missing))


def _as_merged(plans: tuple[TablePlan, ...], target: Session | None) -> Iterator[TablePlan]:
    """The plans with their targets' further unique keys, as worker/plans.py will make them."""
    groups: dict[str, list[TablePlan]] = {}
    for plan in plans:
        groups.setdefault(plan.target_name, []).append(plan)
    for group in groups.values():
        one_lane = target is not None and _one_lane(target, group)
        yield from (replace(plan, one_lane=one_lane) for plan in group)


def _one_lane(target: Session, group: list[TablePlan]) -> bool:
    """Of a target table that exists; of one that will be made like the first shard table."""
    try:
        facts = compare_target(target, group)
    except (ShardmergeError, pymysql.MySQLError):
        return False  # such a target is a finding of its own, and no task begins with it
    return group[0].one_lane if facts is None else facts.one_lane
