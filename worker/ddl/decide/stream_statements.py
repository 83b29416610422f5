"""Decides which statements concern a stream that shard tables enter at later places of it. Pure."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.worker.ddl.decide.routed_statements import RoutedScope, names_looked_up
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import name_of
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules import Rules


class StreamStatements:
    """True for a statement that concerns ``tables`` under ``rules`` where the stream reaches it: not for one on a table
    that enters the stream later.

    Thousands of released shard tables may enter one stream, each after its own statement. A statement is decided by the
    names in it, without a loop over those tables: RoutedScope with a union of names is true if it is true with one of
    the parts. Calling raises what :class:`RoutedScope` raises.
    """

    def __init__(self, tables: StreamTables, rules: Rules) -> None:
        self.tables, self._rules = tables, rules
        self._anywhere = self._routed(tables.statements.only)
        self._at_begin = self._routed(tables.scope.only)
        self._entered = {name_of(track.plan): track.offset for track in tables.entering.values()}

    def __call__(self, statement: Statement) -> bool:
        if not self._anywhere(statement):
            return False
        if not self._entered or self._at_begin(statement):
            return True
        names, place = names_looked_up(statement, self._rules), statement.offset
        if names is None:
            return self._routed(self.tables.at_barrier(place).scope.only)(statement)
        entered = frozenset(name for name in names if (at := self._entered.get(name)) is not None and at <= place)
        return bool(entered) and self._routed(entered)(statement)

    def _routed(self, only: frozenset[tuple[str, str]] | None) -> RoutedScope:
        return RoutedScope(replace(self.tables.scope, rules=self._rules, only=only), with_shadow_tables=True)
