"""Which statements a chunk's fix-up must not pass over: pure, by a unit's rules.

A fix-up knows rows, not statements: where one may have changed the chunk's rows, or their form, between its two
watermarks, the chunk is read again. But for TRUNCATE under a filter that passes it over: the rows that were read before
it stay, as those that are at the target already do. What a filter stops before is stopped before here too: the chunk
that is read again would lie behind the statement, and with it maybe the place where the stream begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from proto import errors
from worker.ddl.events import events_of
from worker.ddl.routed import RoutedScope, shown
from worker.ddl.scope import classify
from worker.ddl.statement import TruncateTable, parse_ddl
from worker.ddl.tables import TableName, TableScope
from worker.relay.model import Statement
from worker.rules.event_filter import Verdict


@dataclass(frozen=True, slots=True)
class UnderChunk:
    """Holds for a statement under which no chunk can be read. Calling raises STATEMENT_FILTERED, and what
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
                    statement=shown(statement),
                    table=f"{schema}.{table}" if table else schema,
                )
        passed_over = all(verdict is Verdict.PASS_OVER for verdict in verdicts.values())
        return not (isinstance(ddl, TruncateTable) and passed_over)

    def _places(self, statement: Statement) -> Iterator[TableName]:
        """The tables of the scope that the statement changes; of a schema, its name and ""."""
        found = classify(statement.text, statement.schema, statement.sql_mode)
        for schema, table in found.tables:
            for place in ((schema, table), (schema.lower(), table.lower())):
                if self.scope.holds(*place):
                    yield place
                    break
        yield from ((schema, "") for schema in found.schemas)
