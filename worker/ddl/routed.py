"""Which statements of the binlog concern a unit's tables: pure, by its rules."""

from __future__ import annotations

from worker.ddl.scope import StatementScope, classify, touches
from worker.ddl.tables import TableScope
from worker.relay.model import Statement


class RoutedScope:
    """Holds for a statement that touches, or may touch, a table of the scope.

    Names count as they are written and in lower case: a server with ``lower_case_table_names=1`` logs a statement
    with the names as they were typed, while its tables, and so the rules, have them in lower case. Calling raises
    what :meth:`TableScope.holds` raises.
    """

    def __init__(self, scope: TableScope, *, beside: bool = False) -> None:
        """``beside``: also for one that touches a table that an online schema change makes beside one of them."""
        self._tables = scope
        self._is_ours = scope.concerns if beside else scope.holds

    def __call__(self, statement: Statement) -> bool:
        return touches(_scope(statement), self._routes, self._may_hold)

    def _routes(self, schema: str, table: str) -> bool:
        names = {(schema, table), (schema.lower(), table.lower())}
        return any(self._is_ours(*name) for name in names)

    def _may_hold(self, schema: str) -> bool:
        return any(map(self._tables.may_hold, {schema, schema.lower()}))


def touched(statement: Statement) -> str:
    """The tables (or schemas) that a statement names, for messages."""
    scope = _scope(statement)
    return ", ".join(f"{schema}.{table}" for schema, table in scope.tables) or ", ".join(scope.schemas) or "(unknown)"


def shown(statement: Statement) -> str:
    """The statement in one line, its beginning, for messages."""
    return " ".join(statement.text.split())[:_SHOWN_CHARACTERS]


_SHOWN_CHARACTERS = 500


def _scope(statement: Statement) -> StatementScope:
    return classify(statement.text, statement.schema, statement.sql_mode)
