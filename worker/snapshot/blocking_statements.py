"""Decides which statements a chunk's fix-up must not ignore, by a unit's rules. Pure.

A fix-up knows rows, not statements. If a statement may have changed the chunk's rows or their structure between the
chunk's two watermarks, the chunk is read again. The exception is TRUNCATE under a filter that skips it: the rows that
were read before it stay, like the rows that are at the target already. If a filter's verdict on the statement is to
stop the task, the snapshot stops too: a chunk that is read again would have its watermarks after the statement, and the
stream could then begin after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope, short_text
from shardmerge.worker.ddl.sql.ddl_event_names import events_of
from shardmerge.worker.ddl.sql.statement import TruncateTable, parse_ddl
from shardmerge.worker.ddl.sql.statement_scope import classify
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.event_filter import Verdict
from shardmerge.worker.rules.table_scope import TableName, TableScope


@dataclass(frozen=True, slots=True)
class BlockingStatements:
    """Is true for a statement that makes a chunk's fix-up impossible. Calling it raises STATEMENT_FILTERED, and what
    :meth:`TableScope.holds` raises."""

    scope: TableScope
    task: str
    source: str

    def __call__(self, statement: Statement) -> bool:
        if not RoutedScope(self.scope)(statement):
            return False
        filters = self.scope.rules.events
        ddl = parse_ddl(statement.text, statement.schema, statement.sql_mode) if filters.rules else None
        if ddl is None:
            return True
        events = events_of(ddl, statement.text)
        verdicts = {place: filters.ddl(*place, events, statement.text) for place in self._places(statement)}
        for (schema, table), verdict in verdicts.items():
            if verdict is Verdict.STOP:
                raise errors.ddl.STATEMENT_FILTERED(
                    source=self.source,
                    task=self.task,
                    position=statement.position,
                    statement=short_text(statement),
                    table=f"{schema}.{table}" if table else schema,
                )
        is_skipped = all(verdict is Verdict.SKIP for verdict in verdicts.values())
        return not (isinstance(ddl, TruncateTable) and is_skipped)

    def _places(self, statement: Statement) -> Iterator[TableName]:
        """The tables of the scope that the statement changes; for a schema, its name and ""."""
        found = classify(statement.text, statement.schema, statement.sql_mode)
        for schema, table in found.tables:
            for place in ((schema, table), (schema.lower(), table.lower())):
                if self.scope.holds(*place):
                    yield place
                    break
        yield from ((schema, "") for schema in found.schemas)
