"""The plans of a subtask: structures and rules together, with the facts of the merged target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType

import pymysql
from pymysql.constants import ER

from proto import errors
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.connection import Session
from worker.ddl.creation import Creation, read_creations
from worker.plan import TablePlan
from worker.rules import Rules, check_partitions
from worker.schema import list_tables, list_views, read_tables
from worker.table import Table
from worker.target_table import ensure_target
from worker.trouble import errno_of

log = get_logger()

_ATTEMPTS = 10


def read_structures(session: Session, rules: Rules, source_id: str) -> tuple[Table, ...]:
    """The structures of every table the rules let through; views are left out. Raises as :func:`read_tables`."""
    views = [f"{schema}.{name}" for schema, name in list_views(session) if rules.route(schema, name) is not None]
    if views:
        log.info("views are left out", source=source_id, views=views)
    names = [(schema, name) for schema, name in list_tables(session) if rules.route(schema, name) is not None]
    return tuple(read_tables(session, names, source=source_id))


def read_described(session: Session, rules: Rules, source_id: str) -> tuple[tuple[Table, ...], tuple[Creation, ...]]:
    """:func:`read_structures`, and each table's CREATE TABLE. Both belong together: what changed in between is read
    again. Raises TABLES_CHANGE too."""
    tables = read_structures(session, rules, source_id)
    for _ in range(_ATTEMPTS):
        creations: list[Creation] = []
        try:
            creations = read_creations(session, [(table.schema, table.name) for table in tables])
        except pymysql.MySQLError as error:
            if errno_of(error) != ER.NO_SUCH_TABLE:
                raise
        again = read_structures(session, rules, source_id)
        if len(creations) == len(again) and [table.structure for table in again] == [
            table.structure for table in tables
        ]:
            return tables, tuple(creations)
        tables = again
    raise errors.check.TABLES_CHANGE(source=source_id)


def planned(
    rules: Rules, source_id: str, tables: tuple[Table, ...], shards: frozenset[int] | None = None
) -> list[TablePlan]:
    """One plan per table that the rules let through, of those numbered in ``shards`` (None: of all). Pure.

    A table's number is its place among all of the subtask's, whatever the rules say now. Raises the rules' errors.
    """
    return [
        rules.plan(shard, source_id, table)
        for shard, table in enumerate(tables)
        if (shards is None or shard in shards) and rules.route(table.schema, table.name) is not None
    ]


def recorded_plans(
    rules: Rules, source_id: str, tables: tuple[Table, ...], shards: frozenset[int], one_lane: frozenset[str]
) -> tuple[TablePlan, ...]:
    """As :func:`planned`, with the targets' facts as recorded: those that keep to ``one_lane``. Asks no server."""
    made = planned(rules, source_id, tables, shards)
    return tuple(replace(plan, one_lane=plan.target_name in one_lane) for plan in made)


def make_plans(
    rules: Rules,
    source_id: str,
    tables: tuple[Table, ...],
    source: Session,
    target: Session,
    meta_schema: str,
    shards: frozenset[int] | None = None,
    *,
    defer: bool = False,
    widen: Callable[[TablePlan], None] | None = None,
    recorded: Mapping[int, Creation] = MappingProxyType({}),
) -> tuple[TablePlan, ...]:
    """As :func:`planned`, every target made or checked; ``defer``: of :func:`ensure_target`. ``widen``: may make a
    target fit that does not. ``recorded``: by number, what a target that is missing is made of; of tables without one,
    as the source has them now.

    Raises the rules' and the target's coded errors, and what ``widen`` raises."""
    plans = planned(rules, source_id, tables, shards)
    check_partitions(plans)
    made: list[TablePlan] = []
    for _, group in groupby(sorted(plans, key=lambda plan: plan.target_name), key=lambda plan: plan.target_name):
        merged = list(group)
        try:
            first = recorded.get(merged[0].shard)
            facts = ensure_target(source, target, merged, meta_schema=meta_schema, defer=defer, recorded=first)
        except ShardmergeError as error:
            if widen is None or error.spec is not errors.replicate.TARGET_TABLE_DIFFERS:
                raise
            for plan in merged:
                widen(plan)
            facts = ensure_target(source, target, merged, meta_schema=meta_schema, defer=defer)
        made.extend(replace(plan, one_lane=facts.one_lane) for plan in merged)
    return tuple(sorted(made, key=lambda plan: plan.shard))
