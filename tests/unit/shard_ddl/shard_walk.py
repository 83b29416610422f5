"""Walks breadth first through every sequence of steps that the sources, the locks and the target of the model can take.

The master's step is the program's (resolve, checked by violations). Here it reads and writes in one step: the program
writes under the condition that nothing it has read has changed (tests/unit/master/ tests changes in between). A
source's next steps depend on its own state and on the shared state: they are computed once for each such pair.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from shardmerge.master.ddl_lock.resolver import Close, Nothing, Wait, resolve, violations
from shardmerge.master.ddl_lock.situation import Situation, SourceReport
from tests.simulator.agent_steps import Ways
from tests.simulator.source_log import BrokenRuleError, History, executed
from tests.simulator.target import rows_of
from tests.simulator.worker_state import Shared, Source
from tests.simulator.worker_steps import KILLED, Worker, first_shared

T = TypeVar("T", bound=Hashable)


PLAIN = Ways()


class Numbered(Generic[T]):
    """Numbers values; equal values have the same number."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        found = self._numbers.setdefault(value, len(self.values))
        if found == len(self.values):
            self.values.append(value)
        return found


World = tuple[int, int, int]
"""A state of the whole model: the numbers of both sources' states and of the shared state."""


@dataclass(frozen=True)
class Walked:
    """Result of a walk. ``worlds``: number of states; ``steps``: between them; ``ends``: states in which all work is
    done correctly."""

    worlds: int
    steps: int
    ends: int


class Walk:
    """A walk of two sources with these histories.

    :meth:`run` raises AssertionError with a shortest sequence of steps to the violation.
    """

    def __init__(self, histories: tuple[History, History], ways: Ways = PLAIN) -> None:
        self._servers = tuple(executed(number, history) for number, history in enumerate(histories))
        self.workers = tuple(
            Worker(number, server.log, len(server.shards), ways=ways) for number, server in enumerate(self._servers)
        )
        self._sources: Numbered[Source] = Numbered()
        self._shared: Numbered[Shared] = Numbered()
        self._steps: dict[tuple[int, int, int], list[tuple[str, int, int]]] = {}
        self._decided: dict[tuple[SourceReport | None, SourceReport | None, int], tuple[str, int] | None] = {}
        self._came: dict[World, World | None] = {}

    def run(self) -> Walked:
        first = (
            self._sources.number(self.workers[0].first()),
            self._sources.number(self.workers[1].first()),
            self._shared.number(first_shared()),
        )
        came = self._came = {first: None}
        queue, at, steps = [first], 0, 0
        before: list[list[int]] = [[]]
        numbers = {first: 0}
        ends: list[int] = []
        while at < len(queue):
            world = queue[at]
            try:
                following = self._after(world)
            except BrokenRuleError as error:
                raise AssertionError(f"{error}, after:\n{self.trace(world)}") from error
            for after, is_kill in following:
                steps += 1
                number = numbers.get(after)
                if number is None:
                    number = numbers[after] = len(queue)
                    came[after] = world
                    queue.append(after)
                    before.append([])
                if not is_kill:
                    before[number].append(at)
            if self._has_ended(world):
                ends.append(at)
            at += 1
        for end in ends:
            self._check_end(queue[end])
        self._check_all_end(queue, before, ends)
        return Walked(len(queue), steps, len(ends))

    # --- steps

    def _after(self, world: World) -> list[tuple[World, bool]]:
        """Return the states after the next step, and whether the step is a kill."""
        one, two, shared = world
        found = [((source, two, then), name == KILLED) for name, source, then in self._of(0, one, shared)]
        found += [((one, source, then), name == KILLED) for name, source, then in self._of(1, two, shared)]
        decided = self._decision(one, two, shared)
        if decided is not None:
            found.append(((one, two, decided[1]), False))
        return found

    def _of(self, worker: int, source: int, shared: int) -> list[tuple[str, int, int]]:
        key = worker, source, shared
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = [
                (name, self._sources.number(after), self._shared.number(then))
                for name, after, then in self.workers[worker].steps(
                    self._sources.values[source], self._shared.values[shared]
                )
            ]
        return found

    def _decision(self, one: int, two: int, shared: int) -> tuple[str, int] | None:
        reported = self._sources.values[one].reported, self._sources.values[two].reported
        key = (*reported, shared)
        if key not in self._decided:
            self._decided[key] = self._decide(*reported, self._shared.values[shared])
        return self._decided[key]

    def _decide(self, one: SourceReport | None, two: SourceReport | None, shared: Shared) -> tuple[str, int] | None:
        situation = Situation({"s0": one, "s1": two}, shared.lock)
        step = resolve(situation, 0.0, _unused(shared))
        if isinstance(step, Wait | Nothing):
            return None
        broken = violations(situation, step)
        if broken:
            raise BrokenRuleError("; ".join(broken))
        lock = None if isinstance(step, Close) else step.lock
        return f"the master: {type(step).__name__}", self._shared.number(shared._replace(lock=lock))

    # --- ends

    def _has_ended(self, world: World) -> bool:
        one, two, shared = world
        return (
            self._shared.values[shared].lock is None
            and self._decision(one, two, shared) is None
            and all(self._is_done(worker, source, shared) for worker, source in ((0, one), (1, two)))
        )

    def _is_done(self, number: int, source: int, shared: int) -> bool:
        """Return whether the source has no work left, and has published everything."""
        has_ended = self.workers[number].has_ended(self._sources.values[source])
        return has_ended and not any(name in ("looks", "publishes") for name, _, _ in self._of(number, source, shared))

    def _check_end(self, world: World) -> None:
        """Check I1: the target's rows, and its structure."""
        shared = self._shared.values[world[2]]
        for number, source in enumerate(world[:2]):
            state = self._sources.values[source]
            rows, there = self._servers[number].rows(), rows_of(state.durable.rows, self._servers[number].log, shared)
            assert rows == there, f"I1: {rows} became {there}, after:\n{self.trace(world)}"
            ended = set(shared.columns[-1])
            assert all(set(columns) == ended for _, columns in state.durable.tables), self.trace(world)

    def _check_all_end(self, queue: list[World], before: list[list[int]], ends: list[int]) -> None:
        """Check I9: from every state, after any kills, a correct end can be reached without another kill."""
        reached = bytearray(len(queue))
        left = array("L", ends)
        for end in ends:
            reached[end] = 1
        while left:
            for earlier in before[left.pop()]:
                if not reached[earlier]:
                    reached[earlier] = 1
                    left.append(earlier)
        stuck = reached.find(0)
        assert stuck < 0, f"nothing leads to an end, after:\n{self.trace(queue[stuck])}"

    def trace(self, world: World) -> str:
        """Return the sequence of steps to ``world``, one step a line."""
        lines: list[str] = []
        at = world
        while (earlier := self._came[at]) is not None:
            lines.append(self._step(earlier, at))
            at = earlier
        sources = "\n".join(str(self._sources.values[source]) for source in world[:2])
        return "\n".join(reversed(lines)) + f"\n{sources}\n{self._shared.values[world[2]]}"

    def _step(self, before: World, after: World) -> str:
        one, two, shared = before
        for name, source, then in self._of(0, one, shared):
            if (source, two, then) == after:
                return f"s0 {name}"
        for name, source, then in self._of(1, two, shared):
            if (one, source, then) == after:
                return f"s1 {name}"
        decided = self._decision(one, two, shared)
        return decided[0] if decided is not None else "?"


def _unused(shared: Shared) -> str:
    """Return a generation that neither the current lock nor an executed one has."""
    known = {each.generation for each in shared.ran}
    if shared.lock is not None:
        known.add(shared.lock.generation)
    return next(name for name in (f"g{number}" for number in range(len(known) + 1)) if name not in known)
