"""Every way that sharding DDLs on a handful of shard tables can take, walked to its end."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from shardmerge.master.ddl_lock.resolver import Step, Wait, resolve
from shardmerge.master.ddl_lock.situation import LockStage, Situation, SourceReport
from tests.unit.master.ddl_lock import ddl_lock_world
from tests.unit.master.ddl_lock.ddl_lock_names import canonical
from tests.unit.master.ddl_lock.ddl_lock_world import BrokenRuleError, Ddl, Moves, Rules, World
from tests.unit.master.ddl_lock.wrong_resolvers import hasty, impatient, trusting


@dataclass(frozen=True)
class Walk:
    """All worlds that can come about; ``before[w]`` are those from which one step leads to ``w``."""

    rules: Rules
    moves: Moves
    came: dict[World, tuple[World, str] | None]
    before: dict[World, list[World]]

    def trace(self, world: World) -> str:
        """How ``world`` came about, one step a line."""
        return _trace(self.came, world)

    def stuck(self, end: Callable[[World], bool]) -> World | None:
        """A world from which no world with ``end`` can come about."""
        reached = {world for world in self.came if end(world)}
        queue = deque(reached)
        while queue:
            for world in self.before[queue.popleft()]:
                if world not in reached:
                    reached.add(world)
                    queue.append(world)
        return next((world for world in self.came if world not in reached), None)


def walk(rules: Rules) -> Walk:
    """Breadth first, so that a trace is a shortest one. Raises AssertionError with it when an invariant breaks."""
    moves = Moves(rules)
    first = canonical(rules.first(), rules)
    came: dict[World, tuple[World, str] | None] = {first: None}
    before: dict[World, list[World]] = defaultdict(list)
    queue = deque([first])
    while queue:
        world = queue.popleft()
        try:
            for name, raw in moves.after(world):
                after = canonical(raw, rules)
                before[after].append(world)
                if after not in came:
                    came[after] = (world, name)
                    queue.append(after)
        except BrokenRuleError as error:
            raise AssertionError(f"{error}, after:\n{_trace(came, world)}") from error
    return Walk(rules, moves, came, before)


def _trace(came: dict[World, tuple[World, str] | None], world: World) -> str:
    lines: list[str] = []
    at = came[world]
    while at is not None:
        lines.append(at[1])
        at = came[at[0]]
    return "\n".join(reversed(lines)) + f"\n{world}"


def finished(world: World) -> bool:
    return world.lock is None and all(
        table.since == 0 and source.reported == source.tables for source in world.sources for table in source.tables
    )


A, B = Ddl("A", "S1"), Ddl("B", "S2")
IN_ORDER = (A, B)
TURNED = (Ddl("B", "S3"), Ddl("A", "S2"))
ODD = (A, Ddl("C", "S4"))
THERE_AND_BACK = (A, Ddl("C", "S0"))
TWICE = (A, Ddl("A", "S5"))
NO_CHANGE = (Ddl("A", "S0"), B)


def the_same(history: tuple[Ddl, ...], *tables: int) -> tuple[tuple[tuple[Ddl, ...], ...], ...]:
    """Sources with so many shard tables, all with one history."""
    return tuple((history,) * count for count in tables)


def forms(world: World) -> tuple[str, ...]:
    return tuple(form for form, _ in world.log)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(the_same(IN_ORDER, 2, 2)), id="two DDLs"),
        pytest.param(Rules(the_same(IN_ORDER, 1, 2)), id="one table at one source"),
        pytest.param(Rules(the_same(THERE_AND_BACK, 2, 2)), id="there and back"),
        pytest.param(Rules(the_same(TWICE, 2, 2)), id="twice"),
        pytest.param(Rules(the_same(NO_CHANGE, 2, 2)), id="no change"),
        pytest.param(Rules(the_same(IN_ORDER, 1, 1), stale_views=True), id="old views"),
        pytest.param(Rules(the_same(TWICE, 1, 1), stale_views=True), id="twice, old views"),
        pytest.param(Rules(the_same(THERE_AND_BACK, 1, 1), stale_views=True), id="there and back, old views"),
        pytest.param(Rules(the_same(IN_ORDER, 1, 1), may_leave=True), id="sources leave"),
        pytest.param(Rules(the_same(IN_ORDER, 2, 1), may_leave=True), id="sources leave, two tables"),
        pytest.param(Rules(the_same(IN_ORDER, 1, 1), declines=True), id="owners decline"),
        pytest.param(Rules(the_same((A,), 1, 1), declines=True, stale_views=True), id="owners decline, old views"),
    ],
)
def test_same_ddls_run_once_each_in_order_and_everybody_gets_through(rules: Rules) -> None:
    walked = walk(rules)
    wanted = tuple(ddl.form for ddl in rules.histories[0][0])
    for world in walked.came:
        assert forms(world) == wanted[: len(world.log)], walked.trace(world)
        assert not finished(world) or _done(world) == 0 or forms(world) == wanted[: _done(world)], walked.trace(world)
    stuck = walked.stuck(lambda world: finished(world) and _done(world) == len(wanted))
    assert stuck is None, walked.trace(stuck)
    assert len(walked.came) > 400


def _done(world: World) -> int:
    return max(table.done for source in world.sources for table in source.tables)


@pytest.mark.parametrize(
    ("histories", "run"),
    [
        (((IN_ORDER, IN_ORDER), (IN_ORDER, TURNED)), ()),
        (((IN_ORDER, TURNED), (IN_ORDER, TURNED)), ()),
        pytest.param(((IN_ORDER, IN_ORDER), (IN_ORDER, ODD)), ("A",), marks=pytest.mark.long),
        (((IN_ORDER,), (ODD,)), ("A",)),
    ],
)
def test_ddls_that_differ_end_in_a_conflict_that_is_shown(
    histories: tuple[tuple[tuple[Ddl, ...], ...], ...], run: tuple[str, ...]
) -> None:
    """What all have in common is run before it, and nothing else ever is."""
    walked = walk(Rules(histories))

    def reported(world: World) -> bool:
        step = walked.moves.decide(world)
        return isinstance(step, Wait) and len(step.conflicts) > 0 and forms(world) == run

    for world in walked.came:
        assert forms(world) == run[: len(world.log)], walked.trace(world)
    stuck = walked.stuck(reported)
    assert stuck is None, walked.trace(stuck)


BACK_AGAIN = (A, Ddl("C", "S0"), A, Ddl("C", "S0"))
BACK_AND_ON = (A, Ddl("C", "S0"), B)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(the_same(THERE_AND_BACK, 1, 1), back=True), id="one table each"),
        pytest.param(
            Rules(the_same(THERE_AND_BACK, 2, 1), back=True), id="two tables at a source", marks=pytest.mark.long
        ),
        pytest.param(Rules(the_same(THERE_AND_BACK, 1, 1), back=True, stale_views=True), id="old views"),
        pytest.param(Rules(the_same(BACK_AGAIN, 1, 1), back=True), id="twice", marks=pytest.mark.long),
        pytest.param(Rules(((THERE_AND_BACK,), ((),)), back=True), id="the other has no DDL"),
        pytest.param(Rules(((BACK_AND_ON,), (BACK_AND_ON,)), back=True), id="and another DDL"),
        pytest.param(Rules(((BACK_AND_ON,), ((B,),)), back=True), id="the other has the last DDL only"),
        pytest.param(Rules(the_same(THERE_AND_BACK, 1, 1), back=True, may_leave=True), id="sources leave"),
        pytest.param(Rules(the_same(THERE_AND_BACK, 1, 1), back=True, declines=True), id="owners decline"),
        pytest.param(
            Rules(the_same(THERE_AND_BACK, 1, 1), back=True, declines=True, stale_views=True),
            id="owners decline, old views",
            marks=pytest.mark.long,
        ),
        pytest.param(Rules(the_same(THERE_AND_BACK, 1, 1), back=True, operator=True), id="operator"),
        pytest.param(
            Rules(the_same(BACK_AND_ON, 1, 1), back=True, operator=True),
            id="operator, and another DDL",
            marks=pytest.mark.long,
        ),
    ],
)
def test_ddls_that_lead_back_end_their_wait(rules: Rules) -> None:
    """A table that goes there and back alone gets through, and so does one that goes with the others."""
    walked = walk(rules)
    wanted = [len(history) for tables in rules.histories for history in tables]

    def through(world: World) -> bool:
        in_task = [source for source in world.sources if source.in_task]
        done = [table.done for source in in_task for table in source.tables]
        return finished(world) and (len(in_task) < len(world.sources) or done == wanted)

    stuck = walked.stuck(through)
    assert stuck is None, walked.trace(stuck)
    if not rules.operator:
        for world in filter(through, walked.came):
            assert walked.moves.target(world) == _structure(rules, world), walked.trace(world)


def _structure(rules: Rules, world: World) -> str:
    """The structure of the tables that are in the task, at the end."""
    [found] = {
        rules.histories[s][t][table.done - 1].after if table.done else "S0"
        for s, source in enumerate(world.sources)
        for t, table in enumerate(source.tables)
        if source.in_task
    }
    return found


def test_a_table_that_goes_there_only_is_shown() -> None:
    """The one that goes back waits at its second DDL, if the first one has run for both; otherwise the other waits."""
    walked = walk(Rules(((THERE_AND_BACK,), ((A,),)), back=True))

    def reported(world: World) -> bool:
        step = walked.moves.decide(world)
        return isinstance(step, Wait) and len(step.missing) > 0 and world.sources[0].tables[0].done > 0

    stuck = walked.stuck(reported)
    assert stuck is None, walked.trace(stuck)


def test_an_owner_that_does_not_read_the_lock_again_is_seen() -> None:
    with pytest.raises(AssertionError, match="is run, and"):
        walk(Rules(the_same(THERE_AND_BACK, 1, 1), back=True, declines=True, stale_views=True, rash=True))


def test_a_table_that_goes_back_without_withdrawing_is_seen() -> None:
    with pytest.raises(AssertionError, match="is run, and"):
        walk(Rules(the_same(THERE_AND_BACK, 1, 1), back=True, unpublished=True))


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(the_same(IN_ORDER, 1, 1), may_pause=True), id="pauses"),
        pytest.param(Rules(the_same((A,), 2, 2), may_pause=True), id="pauses, two tables each"),
        pytest.param(Rules(the_same((A,), 1, 1), may_pause=True, declines=True), id="pauses, owners decline"),
        pytest.param(
            Rules(the_same(IN_ORDER, 1, 1), may_pause=True, stale_views=True),
            id="pauses, old views",
            marks=pytest.mark.long,
        ),
        pytest.param(
            Rules(the_same(THERE_AND_BACK, 1, 1), may_pause=True, back=True),
            id="pauses, there and back",
            marks=pytest.mark.long,
        ),
        pytest.param(Rules(the_same(IN_ORDER, 1, 1), skips=True), id="skips"),
        pytest.param(Rules(((IN_ORDER,), (TURNED,)), skips=True), id="skips, another order"),
        pytest.param(
            Rules(((IN_ORDER,), (ODD,)), skips=True, may_pause=True),
            id="skips and pauses, another DDL",
            marks=pytest.mark.long,
        ),
        pytest.param(
            Rules(((IN_ORDER,), (ODD,)), skips=True, operator=True),
            id="skips and unlocks, another DDL",
            marks=pytest.mark.long,
        ),
        pytest.param(Rules(the_same(THERE_AND_BACK, 1, 1), skips=True, back=True), id="skips, there and back"),
        pytest.param(
            Rules(the_same(THERE_AND_BACK, 1, 1), skips=True, back=True, operator=True),
            id="skips and unlocks, there and back",
            marks=pytest.mark.long,
        ),
    ],
)
def test_paused_owners_and_operators_leave_nothing_waiting(rules: Rules) -> None:
    walked = walk(rules)
    wanted = [len(history) for tables in rules.histories for history in tables]

    def through(world: World) -> bool:
        done = [table.done for source in world.sources for table in source.tables]
        return finished(world) and done == wanted and not any(source.paused for source in world.sources)

    stuck = walked.stuck(through)
    assert stuck is None, walked.trace(stuck)


def test_a_lock_of_a_paused_owner_is_taken_over() -> None:
    """While the owner is paused, the statement runs, and the others continue."""
    walked = walk(Rules(the_same((A,), 1, 1), may_pause=True))
    starts = [
        world
        for world in walked.came
        if world.lock is not None
        and world.lock.stage is LockStage.EXECUTING
        and world.sources[int(world.lock.owner)].paused
    ]
    assert starts
    for start in starts:
        seen, queue = {start}, deque([start])
        while queue:
            for name, raw in walked.moves.after(queue.popleft()):
                after = canonical(raw, walked.rules)
                if "is resumed" not in name and after not in seen:
                    seen.add(after)
                    queue.append(after)
        assert any(table.done for world in seen for source in world.sources for table in source.tables), walked.trace(
            start
        )


def test_table_that_appears_meanwhile_gets_through_too() -> None:
    walked = walk(Rules(the_same((A,), 1, 2), late=frozenset({(1, 1)})))
    stuck = walked.stuck(finished)
    assert stuck is None, walked.trace(stuck)


def test_table_that_appears_when_others_are_two_ddls_ahead_is_shown_and_needs_the_operator() -> None:
    late = Rules(the_same(IN_ORDER, 1, 1), late=frozenset({(1, 0)}))
    walked = walk(late)

    def reported(world: World) -> bool:
        step = walked.moves.decide(world)
        return isinstance(step, Wait) and len(step.missing) > 0

    stuck = walked.stuck(lambda world: finished(world) or reported(world))
    assert stuck is None, walked.trace(stuck)
    walked = walk(replace(late, operator=True))
    stuck = walked.stuck(finished)
    assert stuck is None, walked.trace(stuck)


@pytest.mark.parametrize("history", [IN_ORDER, TURNED, ODD])
def test_operator_gets_every_conflict_out_of_the_way(history: tuple[Ddl, ...]) -> None:
    walked = walk(Rules(((IN_ORDER,), (history,)), operator=True))
    stuck = walked.stuck(lambda world: finished(world) and _done(world) == 2)
    assert stuck is None, walked.trace(stuck)


# --- the walk sees what is wrong


def _deaf(situation: Situation, now: float, generation: str) -> Step:
    """Takes a source that has not reported for one without tables."""
    reported = {source: report or SourceReport() for source, report in situation.reports.items()}
    return resolve(Situation(reported, situation.lock), now, generation)


def _nothing(*_: object) -> tuple[str, ...]:
    return ()


@pytest.mark.parametrize("broken", [hasty, trusting, impatient, _deaf])
@pytest.mark.parametrize("checked", [True, False])
def test_a_wrong_decision_is_seen(
    broken: Callable[[Situation, float, str], Step], *, checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the check of each step, and without it by what happens to the tables."""
    if not checked:
        monkeypatch.setattr(ddl_lock_world, "violations", _nothing)
    with pytest.raises(AssertionError, match="the leader reads and decides"):
        walk(Rules(the_same(IN_ORDER, 1, 1), resolve=broken))


def test_a_decision_that_rests_on_a_report_that_has_changed_is_seen() -> None:
    rules = Rules(the_same(IN_ORDER, 1, 2), late=frozenset({(1, 1)}), conditions=frozenset({"lock"}))
    with pytest.raises(AssertionError, match="would execute without"):
        walk(rules)


def test_a_decision_that_rests_on_a_lock_that_has_changed_is_seen() -> None:
    rules = Rules(the_same(IN_ORDER, 1, 1), operator=True, conditions=frozenset({"reports"}))
    with pytest.raises(AssertionError, match="the operator writes"):
        walk(rules)
