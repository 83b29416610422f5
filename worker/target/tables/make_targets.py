"""Builds a subtask's table plans from structures and rules, and creates or checks each merged target table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType

import pymysql
from pymysql.constants import ER

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.information_schema import list_tables, list_views, read_tables
from shardmerge.worker.core.mysql.server_errors import errno_of
from shardmerge.worker.core.mysql.show_create import CreateStatement, read_shard_statements
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules import Rules, check_partitions
from shardmerge.worker.target.tables.deferred_index import Defer
from shardmerge.worker.target.tables.target_table import MergedRows, TargetFacts, ensure_target, needs_one_lane

log = get_logger()

_ATTEMPTS = 10


def read_structures(session: Session, rules: Rules, source_id: str) -> tuple[Table, ...]:
    """The structures of all tables that the rules let through, without views. Raises as :func:`read_tables`."""
    views = [f"{schema}.{name}" for schema, name in list_views(session) if rules.route(schema, name) is not None]
    if views:
        log.info("views are left out", source=source_id, views=views)
    names = [(schema, name) for schema, name in list_tables(session) if rules.route(schema, name) is not None]
    return tuple(read_tables(session, names, source=source_id))


def read_structures_and_creations(
    session: Session, rules: Rules, source_id: str, between: Callable[[], None] = lambda: None
) -> tuple[tuple[Table, ...], tuple[CreateStatement, ...]]:
    """:func:`read_structures` and each table's CREATE TABLE. Both match: if a table changed in between, all are read
    again. ``between`` is called before each attempt to read the texts: at the last call, the tables have the structures
    that are returned. Raises TABLES_CHANGE too."""
    tables = read_structures(session, rules, source_id)
    for _ in range(_ATTEMPTS):
        between()
        creations: list[CreateStatement] = []
        try:
            creations = read_shard_statements(session, [(table.schema, table.name) for table in tables])
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


def plans_for(
    rules: Rules, source_id: str, tables: tuple[Table, ...], shards: frozenset[int] | None = None
) -> list[TablePlan]:
    """One plan per table that the rules let through, of those numbered in ``shards`` (None: of all). Pure.

    A table's number is its index among all tables of the subtask, also of those that the rules no longer let through.
    Raises the rules' errors.
    """
    return [
        rules.plan(shard, source_id, table)
        for shard, table in enumerate(tables)
        if (shards is None or shard in shards) and rules.route(table.schema, table.name) is not None
    ]


def recorded_plans(
    rules: Rules, source_id: str, tables: tuple[Table, ...], shards: frozenset[int], one_lane: frozenset[str]
) -> tuple[TablePlan, ...]:
    """As :func:`plans_for`, with the targets' recorded facts (which use ``one_lane``). Needs no server."""
    made = plans_for(rules, source_id, tables, shards)
    return tuple(replace(plan, one_lane=plan.target_name in one_lane) for plan in made)


def _by_target(plans: Iterable[TablePlan]) -> Iterator[list[TablePlan]]:
    """The plans of each target table."""
    for _, group in groupby(sorted(plans, key=lambda plan: plan.target_name), key=lambda plan: plan.target_name):
        yield list(group)


def unchecked_plans(
    rules: Rules,
    source_id: str,
    tables: tuple[Table, ...],
    target: Session,
    shards: frozenset[int],
    one_lane: frozenset[str],
) -> tuple[TablePlan, ...]:
    """As :func:`make_plans` while a statement has begun: its targets may have the structure before or after it, so they
    are not checked. ``one_lane``: names of targets that have one lane in any case. Raises ``pymysql.MySQLError`` and
    the rules' errors."""
    made: list[TablePlan] = []
    for same in _by_target(plans_for(rules, source_id, tables, shards)):
        alone = same[0].target_name in one_lane or needs_one_lane(target, same)
        made.extend(replace(plan, one_lane=alone) for plan in same)
    return tuple(sorted(made, key=lambda plan: plan.shard))


def make_plans(
    rules: Rules,
    source_id: str,
    tables: tuple[Table, ...],
    source: Session,
    target: Session,
    merged: MergedRows,
    meta_schema: str,
    shards: frozenset[int] | None = None,
    *,
    defer: Defer = Defer.NEVER,
    after_load: bool = False,
    widen: Callable[[TablePlan], None] | None = None,
    recorded: Mapping[int, CreateStatement] = MappingProxyType({}),
) -> tuple[TablePlan, ...]:
    """As :func:`plans_for`, with every target created or checked. ``merged``, ``defer``, ``after_load``: see
    :func:`ensure_target`. ``widen``: may change a target so that it fits. ``recorded``: by number, the CREATE TABLE
    from which a missing target is created; for other tables, the source's current one.

    Raises the rules' and the target's coded errors, and what ``widen`` raises."""
    plans = plans_for(rules, source_id, tables, shards)
    check_partitions(plans)
    made: list[TablePlan] = []
    for same in _by_target(plans):

        def ensure(same: list[TablePlan] = same) -> TargetFacts:
            return ensure_target(
                source,
                target,
                same,
                merged,
                meta_schema=meta_schema,
                defer=defer,
                after_load=after_load,
                recorded=recorded.get(same[0].shard),
            )

        try:
            facts = ensure()
        except ShardmergeError as error:
            if widen is None or error.spec is not errors.replicate.TARGET_TABLE_DIFFERS:
                raise
            for plan in same:
                widen(plan)
            facts = ensure()
        made.extend(replace(plan, one_lane=facts.one_lane) for plan in same)
    return tuple(sorted(made, key=lambda plan: plan.shard))
