"""Runs simulations, and reduces the history of one that fails."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from unittest.mock import patch

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.ddl.decide import next_statements, routed_statements
from shardmerge.worker.ddl.sql import statement_scope
from tests.simulator.agent_steps import Ways
from tests.simulator.histories import History, draw
from tests.simulator.source_log import BrokenRuleError
from tests.simulator.worker_state import forget
from tests.simulator.world import World

_PLAIN = Ways()
FAILURES = (BrokenRuleError, AssertionError, ShardmergeError)
"""The third: the program refuses a statement that it can execute."""
_FORGETS_EVERY = 2_000
ORDERS = 30
"""Orders of steps that are tried with a smaller history, because its own order is another one."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A history that violates a rule. ``trace``: its steps."""

    seed: int
    reason: str
    history: History
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.reason}", str(self.history), *self.trace])


_classified = lru_cache(4096)(statement_scope.classify)


@contextmanager
def remembered_parsing() -> Generator[None]:
    """Let the program read equal statements once: the simulation has few different ones."""
    with (
        patch.object(routed_statements, "classify", _classified),
        patch.object(next_statements, "classify", _classified),
    ):
        yield


def failure_of(history: History, seed: int = 0, ways: Ways = _PLAIN) -> Failure | None:
    """Run a history; None: it violates no rule."""
    world = World(history, ways)
    try:
        world.run()
    except FAILURES as error:
        again = World(history, ways, trace=[])
        try:
            again.run()
        except FAILURES:
            return Failure(seed, str(error), history, tuple(again.trace or ()))
        raise AssertionError("the same history takes other steps") from error
    return None


def first_failure(seeds: Iterator[int], *, longer: bool = False, ways: Ways = _PLAIN) -> Failure | None:
    """Run the histories of these seeds up to the first one that fails; None: none does."""
    with remembered_parsing():
        for number, seed in enumerate(seeds):
            if number % _FORGETS_EVERY == 0:
                forget()
            if failure := failure_of(draw(seed, longer=longer), seed, ways):
                return failure
    return None


def reduced(failure: Failure, ways: Ways = _PLAIN, orders: int = ORDERS) -> Failure:
    """Remove faults, steps with faults and actions as long as the history still fails. ``orders``: of steps that
    are tried with each smaller history."""
    smallest = failure
    with remembered_parsing():
        while smaller := _first(_smaller(smallest.history), smallest, ways, orders):
            smallest = smaller
    return smallest


def _first(histories: Iterator[History], failure: Failure, ways: Ways, orders: int) -> Failure | None:
    for history in histories:
        for order in range(orders):
            found = failure_of(history if not order else replace(history, seed=order), failure.seed, ways)
            if found is not None:
                return found
    return None


def _smaller(history: History) -> Iterator[History]:
    """Generate smaller histories, those that lose most first."""
    for fault in history.faults:
        yield replace(history, faults=tuple(each for each in history.faults if each != fault))
    if history.steps > 5:
        yield replace(history, steps=history.steps // 2)
    if history.lanes > 1:
        yield replace(history, lanes=1)
    if len(history.script) > 1:
        yield replace(history, script=history.script[:-1])
    if len(history.tables) > 2:
        yield replace(history, tables=history.tables[:-1], actions=history.actions[:-1])
    for source, actions in enumerate(history.actions):
        for size in (len(actions) // 2, len(actions) // 4, 1):
            for begin in range(0, len(actions), max(size, 1)):
                left = (*actions[:begin], *actions[begin + max(size, 1) :])
                yield replace(history, actions=(*history.actions[:source], left, *history.actions[source + 1 :]))
