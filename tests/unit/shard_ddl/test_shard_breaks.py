"""Checks that the walks of the sharding DDL model detect errors: each decision is broken once.

A broken decision is detected by its effects: rows twice or never, a statement twice or too early, a wrong end or none.
Or other sources see a state of the source that no worker shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from shardmerge.master.ddl_lock.resolver import Step
from shardmerge.master.ddl_lock.situation import Situation
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.ddl.decide import track
from shardmerge.worker.ddl.decide.statement_changes import StatementChanges
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import Entering, Track
from shardmerge.worker.ddl.execute import run_once
from shardmerge.worker.ddl.execute.run_once import Begun, NextStep
from shardmerge.worker.ddl.locks import lock_protocol, parked_queue
from shardmerge.worker.ddl.locks.parked_queue import ParkedQueue
from shardmerge.worker.replicate.join import replay, stream_state
from shardmerge.worker.rules.table_window import WindowCursor
from shardmerge.worker.target.records import joining_tables
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import Partitioning
from tests.unit.master.ddl_lock.wrong_resolvers import hasty, impatient, trusting
from tests.unit.shard_ddl import shard_walk
from tests.unit.shard_ddl.shard_log import ALL
from tests.unit.shard_ddl.shard_walk import PLAIN, walk
from tests.unit.shard_ddl.shard_worker import Ways, forget


@pytest.fixture
def _anew() -> Iterator[None]:
    forget()
    yield
    forget()


ONE, TWO, LATE = ("00000", ALL), ("001101", frozenset({1})), ("001101", frozenset({0}))
"""A source in full with one table, or with two that have a row each: between their statements, or before them."""


def broken(at: tuple[str, frozenset[int]], ways: Ways = PLAIN) -> str:
    """Return the first line of the walk's error."""
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
        (LATE, Ways(parks_early=True), "(I6)"),
        (ONE, Ways(leaves_rows=True), "I1"),
    ],
    ids=[
        "torn look",
        "passed before parked",
        "released while it executes",
        "begun is forgotten",
        "parked too early",
        "parked again without its rows",
    ],
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


def _unbegun(begun: Begun | None, statement: str, now: str) -> NextStep:
    """Execute a statement without recording it as begun."""
    step = _NEXT(begun, statement, now)
    return NextStep.RUN if step is NextStep.BEGIN else step


def _blind(begun: Begun | None, statement: str, now: str) -> NextStep:
    """Do not check whether a begun statement has run."""
    step = _NEXT(begun, statement, now)
    return NextStep.RUN if step is NextStep.HAS_RUN else step


def _credulous(begun: Begun | None, statement: str, now: str) -> NextStep:
    """Treat a begun statement as executed."""
    step = _NEXT(begun, statement, now)
    return NextStep.HAS_RUN if step is NextStep.RUN else step


_NEXT = run_once.next_step


def _never_enters(of: Track, offset: RelayOffset) -> Track:
    """Let a released table enter at no place."""
    return of if isinstance(of, Entering) else _REACHED(of, offset)


_REACHED = track._reached  # pyright: ignore[reportPrivateUsage]


def _keeps_lanes(self: StatementChanges) -> StreamTables:
    """Let the lanes apply the parked tables' rows."""
    return replace(
        _RESULT(self), partitioning=self.before.partitioning, tracks=self.before.tracks, scope=self.before.scope
    )


def _keeps_rows(self: StatementChanges) -> StreamTables:
    """Leave the parked tables in the stream's scope."""
    return replace(_RESULT(self), scope=self.before.scope)


_RESULT = StatementChanges.apply


def _from_the_last(
    released: Mapping[int, tuple[Parked, RelayOffset]], dealing: Partitioning
) -> tuple[Joining, RelayOffset]:
    """Replay all tables' rows from where the last of them resumes."""
    last = max(released.values(), key=lambda each: each[1])
    joining = Joining(replace(dealing, shards=frozenset(released)), last[0].resume_at, replays=True)
    return joining, last[1]


def _all_at_first(
    released: Mapping[int, tuple[Parked, RelayOffset]], dealing: Partitioning
) -> tuple[Joining, RelayOffset]:
    """Replay all tables' rows from where the first of them resumes."""
    joining, offset = _REPLAY(released, dealing)
    return replace(joining, partitioning=replace(joining.partitioning, shards=frozenset(released)), entries=()), offset


def _first_alone(
    released: Mapping[int, tuple[Parked, RelayOffset]], dealing: Partitioning
) -> tuple[Joining, RelayOffset]:
    """Leave out the tables that enter later."""
    joining, offset = _REPLAY(released, dealing)
    return replace(joining, entries=()), offset


_REPLAY = replay.replay_of


def _without_parked(dealing: Partitioning | None, joining: Joining | None, _parked: Iterable[int]) -> frozenset[int]:
    return _TAKING_PART(dealing, joining, ())


def _without_joining(dealing: Partitioning | None, _joining: Joining | None, parked: Iterable[int]) -> frozenset[int]:
    return _TAKING_PART(dealing, None, parked)


_TAKING_PART = joining_tables.member_numbers


def _park(self: ParkedQueue, parked: Mapping[int, Parked], behind: Mapping[int, RelayOffset]) -> None:
    """Treat a table that is parked as released."""
    _PARK(self, parked, behind)
    self.release(parked.values())


_PARK = ParkedQueue.park


def _true(*_: object, **__: object) -> bool:
    return True


def _same(self: object, *_: object) -> object:
    return self


def _records_nothing(self: StreamTables, other: StreamTables) -> StreamTables:
    """Take tables over without recording them."""
    return replace(_JOINED(self, other), partitioning=self.partitioning)


_JOINED = StreamTables.with_joined


def _as_begun(joining: Joining, _tables: StreamTables) -> Joining:
    return joining


def _none(*_: object) -> dict[Any, Any]:
    return {}


STRANGE, STUCK = "not what a worker does", "nothing leads to an end"
BREAKS: dict[str, tuple[object, str, object, tuple[str, frozenset[int]], str]] = {
    "freed by another lock's words": (lock_protocol, "is_parked_at", _any_words, ONE, STRANGE),
    "begun is not recorded": (run_once, "next_step", _unbegun, ONE, "twice (I6)"),
    "begun, and runs again": (run_once, "next_step", _blind, ONE, "twice (I6)"),
    "begun is taken for done": (run_once, "next_step", _credulous, ONE, STRANGE),
    "waits, and its rows go on": (StatementChanges, "apply", _keeps_lanes, ONE, "the lanes had"),
    "waits, and its rows are looked for": (StatementChanges, "apply", _keeps_rows, ONE, "looks for rows"),
    "replayed from the last statement": (replay, "replay_of", _from_the_last, TWO, "I1"),
    "replayed from the first statement": (replay, "replay_of", _all_at_first, TWO, "refuses"),
    "only the first is replayed": (replay, "replay_of", _first_alone, TWO, STRANGE),
    "adopted before replayed": (stream_state, "is_one_place", _true, ONE, "twice (I5)"),
    "adopted without its rows": (StreamTables, "with_joined", _records_nothing, ONE, "recorded as tables of the lanes"),
    "what joins is not recorded anew": (stream_state, "joining_after", _as_begun, ONE, "I1"),
    "a table enters before its statement": (WindowCursor, "is_open", _true, TWO, "I1"),
    "a table has not entered at a barrier after its statement": (track, "_reached", _never_enters, TWO, STUCK),
    "a restart forgets who leaves": (Partitioning, "leaving_plans", _nothing, LATE, "I1"),
    "the record forgets who leaves": (Partitioning, "inherit", _same, LATE, "the lanes had"),
    "a restart forgets who waits": (stream_state, "excluded_tables", _none, ONE, "no plan"),
    "who waits is not published": (joining_tables, "member_numbers", _without_parked, ONE, STRANGE),
    "who joins is not published": (joining_tables, "member_numbers", _without_joining, ONE, STRANGE),
    "a released table is parked in memory": (parked_queue.ParkedQueue, "park", _park, ONE, STUCK),
}


LONG = {"a restart forgets who leaves", "replayed from the last statement"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in BREAKS])
@pytest.mark.usefixtures("_anew")
def test_what_is_broken_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, instead, at, said = BREAKS[name]
    monkeypatch.setattr(place, attribute, instead)
    assert said in broken(at)
