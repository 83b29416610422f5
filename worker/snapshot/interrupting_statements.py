"""Decides which statements interrupt the copy of a table, and which make a chunk's fix-up impossible. Pure.

A DDL statement on a table may change its structure or its rows. All chunks of one table are copied with one structure:
chunks that were read before the statement are kept, and no chunk that was read after it is. The exception is TRUNCATE
under a filter that skips it: the rows that were read before it stay, like the rows that are at the target already.

A fix-up knows rows, not statements. If a statement that is not DDL may have changed the chunk's rows between the
chunk's two watermarks (DML that the source logged as a statement), the chunk is read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shardmerge.worker.ddl.decide.routed_statements import RoutedScope
from shardmerge.worker.ddl.sql.ddl_event_names import events_of
from shardmerge.worker.ddl.sql.statement import TruncateTable, parse_ddl
from shardmerge.worker.ddl.sql.statement_scope import classify
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.event_filter import FilterDecision
from shardmerge.worker.rules.table_scope import TableName, TableScope


@dataclass(frozen=True, slots=True)
class InterruptingStatements:
    """``shards``: the numbers of the tables that are copied, by name."""

    scope: TableScope
    shards: Mapping[TableName, int]
    _by_schema: dict[str, list[int]] = field(init=False, default_factory=dict[str, list[int]])

    def __post_init__(self) -> None:
        for (schema, _), number in self.shards.items():
            self._by_schema.setdefault(schema, []).append(number)

    def interrupted_by(self, statement: Statement) -> frozenset[int]:
        """The tables whose copy the statement interrupts."""
        found = classify(statement.text, statement.schema, statement.sql_mode)
        if found.kind != "ddl":
            return frozenset()
        names = {name: number for table in found.tables for name, number in self._found(table)}
        numbers = set(names.values())
        for schema in found.schemas:
            numbers.update(number for each in {schema, schema.lower()} for number in self._by_schema.get(each, ()))
        if numbers and self._is_skipped_truncate(statement, names):
            return frozenset()
        return frozenset(numbers)

    def blocks_fix_up(self, statement: Statement) -> bool:
        """Whether a chunk is read again that was read while the statement ran. Raises what :meth:`TableScope.holds`
        raises."""
        found = classify(statement.text, statement.schema, statement.sql_mode)
        return found.kind in ("dml", "unknown") and RoutedScope(self.scope)(statement)

    def _found(self, table: TableName) -> Iterator[tuple[TableName, int]]:
        schema, name = table
        for each in (table, (schema.lower(), name.lower())):
            if each in self.shards:
                yield each, self.shards[each]
                return

    def _is_skipped_truncate(self, statement: Statement, names: Mapping[TableName, int]) -> bool:
        filters = self.scope.rules.events
        ddl = parse_ddl(statement.text, statement.schema, statement.sql_mode) if filters.rules else None
        if not isinstance(ddl, TruncateTable):
            return False
        events = events_of(ddl, statement.text)
        return all(filters.ddl(*name, events, statement.text) is FilterDecision.SKIP for name in names)
