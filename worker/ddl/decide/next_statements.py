"""Finds the next statement of each released shard table, while no stream applies its rows yet. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope
from shardmerge.worker.ddl.sql.statement_scope import classify
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableName, TableScope


@dataclass(frozen=True, slots=True)
class WaitingTable:
    """A shard table whose rows wait from group end ``begin`` on."""

    name: TableName
    begin: RelayOffset


def next_statements(
    rules: Rules, waiting: Mapping[int, WaitingTable], statements: Iterable[Statement]
) -> dict[int, Statement]:
    """The first statement of each waiting table after its ``begin``, by number, in the order of the statements.

    It ends before a statement that concerns these tables and is not DDL on exactly one of them under its name: what
    that changes, and for which tables, is decided where a stream reaches it. ``statements``: from the lowest ``begin``
    on, in the order of the relay log.
    """
    numbers = {table.name: number for number, table in waiting.items()}
    concerns = RoutedScope(TableScope(rules, only=frozenset(numbers)), with_shadow_tables=True)
    found: dict[int, Statement] = {}
    for statement in statements:
        try:
            if not concerns(statement):
                continue
        except ShardmergeError:
            break  # it is raised again when a stream has reached the statement
        scope = classify(statement.text, statement.schema, statement.sql_mode)
        is_single = scope.kind == "ddl" and len(scope.tables) == 1 and not scope.schemas and not scope.changes_names
        number = numbers.get(scope.tables[0]) if is_single else None
        if number is None:
            break
        if number not in found and statement.group_start >= waiting[number].begin:
            found[number] = statement
            if len(found) == len(waiting):
                break
    return found
