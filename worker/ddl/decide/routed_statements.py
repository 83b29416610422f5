"""Decides by the rules which statements of the binlog concern a unit's tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.ddl.sql.statement_scope import StatementScope, classify, touches
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableName, TableScope


class RoutedScope:
    """True for a statement that changes, or may change, a table of the scope, and for one that may change which names
    belong to the scope: a table gets its name, or is created like a table, and the one is of the scope and the other
    is not; or, in the main stream, a table of another stream is dropped.

    Names match as written and in lower case: a server with ``lower_case_table_names=1`` logs statements with the names
    as typed, while its tables, and so the rules, have lower-case names. Calling raises what :meth:`TableScope.holds`
    raises.
    """

    def __init__(self, scope: TableScope, *, with_shadow_tables: bool = False) -> None:
        """``with_shadow_tables``: also for statements on shadow tables of online schema changes of these tables."""
        self._tables = scope
        self._is_ours = scope.concerns if with_shadow_tables else scope.holds

    def __call__(self, statement: Statement) -> bool:
        scope = _scope(statement)
        return touches(scope, self._routes, self._may_hold) or (scope.changes_names and self._moves_names(scope))

    def _moves_names(self, scope: StatementScope) -> bool:
        """Whether the statement, which names no table of the scope, gives a name that the rules let through to a table
        of another unit, or to one that is created like a table of this unit, or drops a table of another unit."""
        tables = self._tables
        if tables.only is None:
            named = scope.tables if tables.others else ()
            return any(name in tables.others for table in named for name in _forms(*table))
        if scope.like is None or tables.owned_name(*scope.like) is None:
            return False
        return any(tables.rules.route(*name) is not None for table in scope.tables for name in _forms(*table))

    def _routes(self, schema: str, table: str) -> bool:
        return any(self._is_ours(*name) for name in _forms(schema, table))

    def _may_hold(self, schema: str) -> bool:
        return any(map(self._tables.may_hold, {schema, schema.lower()}))


def names_looked_up(statement: Statement, rules: Rules) -> frozenset[TableName] | None:
    """The names that :class:`RoutedScope` looks up in the names of its scope; None: it looks at all of them."""
    scope = _scope(statement)
    if scope.kind == "unknown" or scope.schemas:
        return None
    named = (*scope.tables, *((scope.like,) if scope.like is not None else ()))
    names = {form for table in named for form in _forms(*table)}
    owners = {form for schema, table in names if (own := rules.online.own(table)) for form in _forms(schema, own)}
    return frozenset(names | owners)


def first_ddl(statements: Iterable[Statement], scope: TableScope, before: RelayOffset) -> Statement | None:
    """The first of ``statements`` that is DDL on a table of the scope or on a shadow table of one, and begins before
    relay offset ``before``. Raises what :meth:`TableScope.holds` raises."""
    concerns = RoutedScope(scope, with_shadow_tables=True)
    for statement in statements:
        if statement.group_start >= before:
            return None
        if _scope(statement).kind == "ddl" and concerns(statement):
            return statement
    return None


def tables_text(statement: Statement) -> str:
    """The tables (or schemas) that a statement names, as text for messages."""
    scope = _scope(statement)
    return ", ".join(f"{schema}.{table}" for schema, table in scope.tables) or ", ".join(scope.schemas) or "(unknown)"


def short_text(statement: Statement) -> str:
    """The beginning of the statement in one line, for messages."""
    return " ".join(statement.text.split())[:_SHOWN_CHARACTERS]


_SHOWN_CHARACTERS = 500


def _scope(statement: Statement) -> StatementScope:
    return classify(statement.text, statement.schema, statement.sql_mode)


def _forms(schema: str, table: str) -> frozenset[TableName]:
    return frozenset(((schema, table), (schema.lower(), table.lower())))
