"""Which of a statement's actions event filters pass over.

What is passed over does not run at the target, and takes no part in a lock; the shard table's structure follows the
source all the same, as it does for a statement that an operator skips (worker/ddl/by_word.py). A statement of several
clauses is one: it passes or does not as a whole, table by table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from proto import errors
from proto.errors import ShardmergeError
from worker.ddl.creation import Creation
from worker.ddl.events import events_of
from worker.ddl.plan import Action, Alter, Make, Rename, Scene, Shard, decide
from worker.ddl.statement import Ddl, DropSchema, names
from worker.ddl.tables import TableName
from worker.relay.model import Statement
from worker.rules.ddl_events import STRUCTURAL, DdlEvents
from worker.rules.event_filter import EventFilter, Verdict

Structures = Callable[[Shard], tuple[Creation, Creation | None]]
"""An altered table's structures before and behind the statement; None: the statement is nothing for merged tables."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """``done``: as the statement says; ``passed_over``: at the source only."""

    done: tuple[Action, ...]
    passed_over: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True)
class FilteredStatement:
    """For one statement. ``structures``: asked only where a filter tells by them."""

    filters: EventFilter
    ddl: Ddl
    statement: Statement
    scene: Scene
    structures: Structures

    def sort(self) -> Sorted:
        """Raises what :func:`decide` raises for what is to be done, STATEMENT_FILTERED, and what ``structures``
        raises."""
        if not self.filters.rules:
            return Sorted(decide(self.ddl, self.statement, self.scene))
        try:
            actions = decide(self.ddl, self.statement, self.scene)
        except ShardmergeError:
            if self._passes_over_all():
                return Sorted(())
            raise
        done: list[Action] = []
        over: list[Action] = []
        for action in (part for whole in actions for part in _one_by_one(whole)):
            (over if self._is_passed_over(action) else done).append(action)
        return Sorted(tuple(_together(done)), tuple(_together(over)))

    # --- parts

    def _passes_over_all(self) -> bool:
        concerned = [name for name in names(self.ddl) if self.scene.find(name) or self.scene.lets_in(name)]
        return bool(concerned) and all(
            self._verdict(name.name, self._events(None)) is Verdict.PASS_OVER for name in concerned
        )

    def _is_passed_over(self, action: Action) -> bool:
        name = _name(action)
        place = (name[0], "") if isinstance(self.ddl, DropSchema) else name
        verdict = self._verdict(place, self._events(action))
        if verdict is Verdict.STOP:
            raise self.scene.refusal(errors.ddl.STATEMENT_FILTERED, self.statement, table=".".join(name))
        return verdict is Verdict.PASS_OVER

    def _verdict(self, place: TableName, events: DdlEvents) -> Verdict:
        return self.filters.ddl(*place, events, self.statement.text)

    def _events(self, action: Action | None) -> DdlEvents:
        text = self.statement.text
        if isinstance(action, Alter) and self.filters.names_of(*action.shard.name) & STRUCTURAL:
            return events_of(self.ddl, text, *self.structures(action.shard))
        return events_of(self.ddl, text)


def _name(action: Action) -> TableName:
    match action:
        case Make(name=name):
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
    """Renames count all at once: names may go round in a circle."""
    moves = tuple(move for action in actions if isinstance(action, Rename) for move in action.moves)
    yield from (action for action in actions if not isinstance(action, Rename))
    if moves:
        yield Rename(moves)


def unknown_is_passed_over(filters: EventFilter, statement: Statement, task: str, source: str) -> bool:
    """Whether an sql-pattern of rules for every schema passes over a statement that is not understood. Raises
    STATEMENT_FILTERED."""
    verdict = filters.unknown(statement.text)
    if verdict is Verdict.STOP:
        raise errors.ddl.STATEMENT_FILTERED(
            source=source,
            task=task,
            position=statement.position,
            statement=" ".join(statement.text.split()),
            table="what is not understood",
        )
    return verdict is Verdict.PASS_OVER
