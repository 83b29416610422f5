"""What the walks of sharding DDLs see: each of the decisions taken otherwise, once.

A break is seen by what comes of it: rows twice or never, a statement twice or too early, another end or none. Or by
what others see of the source, which no worker does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from master.ddl_lock import Step
from master.ddl_lock_values import Situation
from tests.unit.master.wrong_resolvers import hasty, impatient, trusting
from tests.unit.shard import shard_walk
from tests.unit.shard.shard_log import ALL
from tests.unit.shard.shard_walk import PLAIN, walk
from tests.unit.shard.shard_worker import Ways, forget
from worker.ddl import duty, execute, passing, waiting
from worker.ddl.execute import Begun, Next
from worker.ddl.parked import Parked
from worker.ddl.passing import Passing, TablesStanding
from worker.ddl.records import StatementPlace
from worker.ddl.waiting import WaitingTables
from worker.join import replay
from worker.join import standing as standings
from worker.join.record import Joining
from worker.position import RelayOffset
from worker.replicate.dealing import Dealing


@pytest.fixture
def _anew() -> Iterator[None]:
    forget()
    yield
    forget()


ONE, TWO = ("00000", ALL), ("001101", frozenset({1}))
"""A source in full with one table, or with two with a row each between their statements."""


def broken(at: tuple[str, frozenset[int]], ways: Ways = PLAIN) -> str:
    """What the walk says."""
    order, rows = at
    with pytest.raises(AssertionError) as caught:
        walk(order, rows=rows, tables=1, ways=ways).run()
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    ("at", "ways", "said"),
    [
        (TWO, Ways(torn_look=True), "not what a worker does"),
        (ONE, Ways(torn_passing=True), "not what a worker does"),
        (ONE, Ways(early_release=True), "its target is"),
        (ONE, Ways(forgets_begun=True), "twice (I6)"),
    ],
    ids=["torn look", "passed before parked", "released while it executes", "begun is forgotten"],
)
@pytest.mark.usefixtures("_anew")
def test_what_is_carried_out_otherwise_is_seen(at: tuple[str, frozenset[int]], ways: Ways, said: str) -> None:
    assert said in broken(at, ways)


def _nothing(*_: object) -> tuple[str, ...]:
    return ()


@pytest.mark.parametrize("resolved", [hasty, trusting, impatient])
@pytest.mark.usefixtures("_anew")
def test_a_wrong_decision_of_the_master_is_seen_by_what_it_does_to_rows(
    resolved: Callable[[Situation, float, str], Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_walk, "violations", _nothing)
    monkeypatch.setattr(shard_walk, "resolve", resolved)
    assert broken(ONE)


def _any_words(_structure: str, waits: object, _sought: object) -> bool:
    return waits is not None


def _unbegun(begun: Begun | None, statement: str, now: str) -> Next:
    """Runs what it has not recorded as begun."""
    step = _NEXT(begun, statement, now)
    return Next.RUN if step is Next.BEGIN else step


def _blind(begun: Begun | None, statement: str, now: str) -> Next:
    """Does not look whether what was begun has run."""
    step = _NEXT(begun, statement, now)
    return Next.RUN if step is Next.HAS_RUN else step


def _credulous(begun: Begun | None, statement: str, now: str) -> Next:
    """Takes what was begun for done."""
    step = _NEXT(begun, statement, now)
    return Next.HAS_RUN if step is Next.RUN else step


_NEXT = execute.next_step


def _keeps_lanes(self: Passing) -> TablesStanding:
    """The waiting tables' rows go on by the lanes."""
    return replace(_RESULT(self), dealing=self.standing.dealing, plans=self.standing.plans, scope=self.standing.scope)


def _keeps_rows(self: Passing) -> TablesStanding:
    """The waiting tables are still the stream's affair."""
    return replace(_RESULT(self), scope=self.standing.scope)


_RESULT = Passing.result


def _from_the_last(released: Mapping[int, tuple[Parked, RelayOffset]], dealing: Dealing) -> tuple[Joining, RelayOffset]:
    """All tables' rows come from where the last of them goes on."""
    last = max(released.values(), key=lambda each: each[1])
    joining = Joining(replace(dealing, shards=frozenset(released)), last[0].behind, replays=True)
    return joining, last[1]


def _all_at_first(released: Mapping[int, tuple[Parked, RelayOffset]], dealing: Dealing) -> tuple[Joining, RelayOffset]:
    """All tables' rows come from where the first of them goes on."""
    joining, offset = _REPLAY(released, dealing)
    return replace(joining, dealing=replace(joining.dealing, shards=frozenset(released)), entries=()), offset


def _first_alone(released: Mapping[int, tuple[Parked, RelayOffset]], dealing: Dealing) -> tuple[Joining, RelayOffset]:
    """The others do not come in."""
    joining, offset = _REPLAY(released, dealing)
    return replace(joining, entries=()), offset


_REPLAY = replay.replay_of


def _without_parked(dealing: Dealing | None, joining: Joining | None, _parked: Iterable[int]) -> frozenset[int]:
    return _TAKING_PART(dealing, joining, ())


def _without_joining(dealing: Dealing | None, _joining: Joining | None, parked: Iterable[int]) -> frozenset[int]:
    return _TAKING_PART(dealing, None, parked)


_TAKING_PART = standings.taking_part


def _park(self: WaitingTables, parked: Mapping[int, Parked], behind: RelayOffset) -> None:
    """Takes a table that was released for one that waits."""
    _PARK(self, parked, behind)
    self.release(parked.values())


_PARK = WaitingTables.park


def _true(*_: object, **__: object) -> bool:
    return True


def _false(*_: object, **__: object) -> bool:
    return False


def _own(own: Dealing, _joined: Dealing) -> Dealing:
    return own


def _as_begun(joining: Joining, _standing: TablesStanding, _tables: object) -> Joining:
    return joining


def _none(*_: object) -> frozenset[Any]:
    return frozenset()


STRANGE, STUCK = "not what a worker does", "nothing leads to an end"
BREAKS: dict[str, tuple[object, str, object, tuple[str, frozenset[int]], str]] = {
    "freed by another lock's words": (duty, "waits_before", _any_words, ONE, STRANGE),
    "begun is not recorded": (execute, "next_step", _unbegun, ONE, "twice (I6)"),
    "begun, and runs again": (execute, "next_step", _blind, ONE, "twice (I6)"),
    "begun is taken for done": (execute, "next_step", _credulous, ONE, STRANGE),
    "waits, and its rows go on": (Passing, "result", _keeps_lanes, ONE, "the lanes had"),
    "waits, and its rows are looked for": (Passing, "result", _keeps_rows, ONE, "no plan"),
    "replayed from the last statement": (replay, "replay_of", _from_the_last, TWO, "I1"),
    "replayed from the first statement": (replay, "replay_of", _all_at_first, TWO, "refuses"),
    "only the first is replayed": (replay, "replay_of", _first_alone, TWO, STRANGE),
    "adopted before replayed": (standings, "is_one_place", _true, ONE, "twice (I5)"),
    "adopted on two sides of a statement": (standings, "lies_behind", _true, TWO, "refuses"),
    "adopted without its rows": (passing, "merged", _own, ONE, STRANGE),
    "what joins is not recorded anew": (standings, "joining_at", _as_begun, ONE, "I1"),
    "a passed statement comes again": (StatementPlace, "covers", _false, TWO, STUCK),
    "a table does not come in at its statement": (StatementPlace, "is_exactly", _false, TWO, STUCK),
    "a restart forgets who waits": (standings, "others_of", _none, ONE, "no plan"),
    "who waits is not told of": (standings, "taking_part", _without_parked, ONE, STRANGE),
    "who joins is not told of": (standings, "taking_part", _without_joining, ONE, STRANGE),
    "a released table is parked in memory": (waiting.WaitingTables, "park", _park, ONE, STUCK),
}


@pytest.mark.parametrize("name", BREAKS)
@pytest.mark.usefixtures("_anew")
def test_what_is_broken_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, instead, at, said = BREAKS[name]
    monkeypatch.setattr(place, attribute, instead)
    assert said in broken(at)
