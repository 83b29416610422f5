"""Decides which of a statement's actions event filters skip.

A skipped action does not run at the target and takes no part in a lock. The shard table's structure still follows the
source, as for a statement that an operator skips (worker/ddl/execute/executor.py). A statement with several
clauses is skipped as a whole or not at all, table by table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.ddl.decide.actions import Action, Alter, Create, DdlContext, Rename, ShardTarget, actions_of
from shardmerge.worker.ddl.sql.ddl_event_names import events_of
from shardmerge.worker.ddl.sql.statement import Ddl, DropSchema, names
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.ddl_events import STRUCTURAL, DdlEvents
from shardmerge.worker.rules.event_filter import EventFilterRules, FilterDecision
from shardmerge.worker.rules.table_scope import TableName

Structures = Callable[[ShardTarget], tuple[CreateStatement, CreateStatement | None]]
"""An altered table's structures before and after the statement; None: it has no effect on merged tables."""


@dataclass(frozen=True, slots=True)
class FilteredActions:
    """``run``: the actions to execute. ``skipped``: executed at the source only."""

    run: tuple[Action, ...]
    skipped: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True)
class FilteredStatement:
    """Applies the event filters to one statement. ``structures``: called only where a filter depends on them."""

    filters: EventFilterRules
    ddl: Ddl
    statement: Statement
    context: DdlContext
    structures: Structures

    def filter(self) -> FilteredActions:
        """Raises what :func:`actions_of` raises for actions to run, STATEMENT_FILTERED, and what ``structures``
        raises."""
        if not self.filters.rules:
            return FilteredActions(actions_of(self.ddl, self.statement, self.context))
        try:
            actions = actions_of(self.ddl, self.statement, self.context)
        except ShardmergeError:
            if self._passes_over_all():
                return FilteredActions(())
            raise
        done: list[Action] = []
        over: list[Action] = []
        for action in (part for whole in actions for part in _one_by_one(whole)):
            (over if self._is_passed_over(action) else done).append(action)
        return FilteredActions(tuple(_together(done)), tuple(_together(over)))

    # --- parts

    def _passes_over_all(self) -> bool:
        concerned = [name for name in names(self.ddl) if self.context.find(name) or self.context.is_routed(name)]
        return bool(concerned) and all(
            self._verdict(name.name, self._events(None)) is FilterDecision.SKIP for name in concerned
        )

    def _is_passed_over(self, action: Action) -> bool:
        name = _name(action)
        place = (name[0], "") if isinstance(self.ddl, DropSchema) else name
        verdict = self._verdict(place, self._events(action))
        if verdict is FilterDecision.STOP:
            raise self.context.refusal(errors.ddl.STATEMENT_FILTERED, self.statement, table=".".join(name))
        return verdict is FilterDecision.SKIP

    def _verdict(self, place: TableName, events: DdlEvents) -> FilterDecision:
        return self.filters.ddl(*place, events, self.statement.text)

    def _events(self, action: Action | None) -> DdlEvents:
        text = self.statement.text
        if isinstance(action, Alter) and self.filters.names_of(*action.shard.name) & STRUCTURAL:
            return events_of(self.ddl, text, *self.structures(action.shard))
        return events_of(self.ddl, text)


def _name(action: Action) -> TableName:
    match action:
        case Create(name=name):
            return name
        case Rename(moves=moves):
            return moves[0][0].name
        case _:
            return action.shard.name


def _one_by_one(action: Action) -> Iterator[Action]:
    if isinstance(action, Rename):
        for move in action.moves:
            yield Rename((move,))
    else:
        yield action


def _together(actions: list[Action]) -> Iterator[Action]:
    """All renames apply together: names may be exchanged in a circle."""
    moves = tuple(move for action in actions if isinstance(action, Rename) for move in action.moves)
    yield from (action for action in actions if not isinstance(action, Rename))
    if moves:
        yield Rename(moves)


def skips_unknown(filters: EventFilterRules, statement: Statement, task: str, source: str) -> bool:
    """Whether an sql-pattern of rules for every schema skips a statement that cannot be parsed. Raises
    STATEMENT_FILTERED."""
    verdict = filters.unknown(statement.text)
    if verdict is FilterDecision.STOP:
        raise errors.ddl.STATEMENT_FILTERED(
            source=source,
            task=task,
            position=statement.position,
            statement=" ".join(statement.text.split()),
            table="what is not understood",
        )
    return verdict is FilterDecision.SKIP
