"""Simulates a part of the histories of sharding DDLs, and checks that the simulator detects errors.

``python -m tests.simulator`` simulates as many histories as wanted. Each error here is one of the program's decisions,
made wrong: it is detected by its effects, rows twice or never, a statement twice or too early, a wrong end or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from shardmerge.master.ddl_lock import situation
from shardmerge.master.ddl_lock.resolver import Step
from shardmerge.master.ddl_lock.situation import Situation
from shardmerge.proto.ddl_lock_rule import LockedStatement, ParkedTableStatement, ShardState, shard_state
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
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import Partitioning
from tests.simulator import agent_steps, statement_steps, world
from tests.simulator.agent_steps import Ways
from tests.simulator.runs import Failure, failure_of, first_failure, reduced
from tests.simulator.worker_steps import forget
from tests.unit.master.ddl_lock.wrong_resolvers import hasty, impatient, trusting

HISTORIES = 200
MOST = 400
"""Histories within which an error is detected."""
PLAIN = Ways()


@pytest.fixture
def _anew() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.mark.usefixtures("_anew")
def test_histories_end_well() -> None:
    assert first_failure(iter(range(HISTORIES))) is None


@pytest.mark.usefixtures("_anew")
def test_longer_histories_end_well() -> None:
    assert first_failure(iter(range(HISTORIES // 10)), longer=True) is None


def found(ways: Ways = PLAIN) -> Failure:
    """Return the first failure."""
    failure = first_failure(iter(range(MOST)), ways=ways)
    assert failure is not None
    return failure


@pytest.mark.usefixtures("_anew")
def test_a_failure_is_repeated_by_its_seed_and_reduced() -> None:
    ways = Ways(leaves_rows=True)
    failure = found(ways)
    assert failure_of(failure.history, failure.seed, ways) == failure
    smaller = reduced(failure, ways, orders=3)
    assert sum(map(len, smaller.history.actions)) < sum(map(len, failure.history.actions)), str(smaller)
    assert failure_of(smaller.history, failure.seed, ways) == smaller


@pytest.mark.parametrize(
    "ways",
    [
        Ways(torn_look=True),
        Ways(torn_passing=True),
        Ways(early_release=True),
        Ways(parks_early=True),
        Ways(leaves_rows=True),
    ],
    ids=[
        "torn look",
        "passed before parked",
        "released while it executes",
        "parked too early",
        "parked again without its rows",
    ],
)
@pytest.mark.usefixtures("_anew")
def test_what_is_carried_out_otherwise_is_seen(ways: Ways) -> None:
    found(ways)


def _nothing(*_: object) -> tuple[str, ...]:
    return ()


@pytest.mark.parametrize("resolved", [hasty, trusting, impatient])
@pytest.mark.usefixtures("_anew")
def test_a_wrong_decision_of_the_master_is_seen_by_what_it_does_to_rows(
    resolved: Callable[[Situation, float, str], Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "violations", _nothing)
    monkeypatch.setattr(world, "resolve", resolved)
    found()


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


def _commits_all(self: ParkedQueue, _lowest: RelayOffset | None) -> None:
    """Treat all lanes as if they had reached the ends of all tables."""
    _COMMITTED(self, RelayOffset(9, 0))


_COMMITTED = ParkedQueue.committed


def _nothing_left(*_: object) -> None:
    return None


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


def _without_missing(structure: str, parked: ParkedTableStatement | None, locked: LockedStatement) -> ShardState:
    """Forget the members of a lock that have not reached its statement."""
    state = shard_state(structure, parked, locked)
    return ShardState.PASSED if state is ShardState.MISSING else state


def _own_record_alone(step: NextStep, _others: Iterable[Begun], _now: str, *, is_recorded: bool) -> NextStep:
    """Do not look for what the owner before has begun."""
    del is_recorded
    return step


def _false(*_: object, **__: object) -> bool:
    return False


BREAKS: dict[str, tuple[object, str, object]] = {
    "freed by another lock's words": (lock_protocol, "is_parked_at", _any_words),
    "begun is not recorded": (run_once, "next_step", _unbegun),
    "begun, and runs again": (run_once, "next_step", _blind),
    "begun is taken for done": (run_once, "next_step", _credulous),
    "begun by another owner, and runs again": (run_once, "next_step_of_run", _own_record_alone),
    "waits, and its rows go on": (StatementChanges, "apply", _keeps_lanes),
    "waits, and its rows are looked for": (StatementChanges, "apply", _keeps_rows),
    "replayed from the last statement": (replay, "replay_of", _from_the_last),
    "replayed from the first statement": (replay, "replay_of", _all_at_first),
    "only the first is replayed": (replay, "replay_of", _first_alone),
    "adopted before replayed": (stream_state, "is_one_place", _true),
    "adopted without its rows": (StreamTables, "with_joined", _records_nothing),
    "what joins is not recorded anew": (stream_state, "joining_after", _as_begun),
    "a table enters before its statement": (WindowCursor, "is_open", _true),
    "a table has not entered at a barrier after its statement": (track, "_reached", _never_enters),
    "a restart forgets who leaves": (Partitioning, "leaving_plans", _nothing),
    "the record forgets who leaves": (Partitioning, "inherit", _same),
    "a restart forgets who waits": (stream_state, "excluded_tables", _none),
    "a restart forgets names of other streams": (stream_state, "known_away_names", _nothing),
    "a restart forgets which statement was executed": (StatementPlace, "covers", _false),
    "who waits is not published": (joining_tables, "member_numbers", _without_parked),
    "who joins is not published": (joining_tables, "member_numbers", _without_joining),
    "a released table is parked in memory": (parked_queue.ParkedQueue, "park", _park),
    "a table that leaves counts as parked": (ParkedQueue, "committed", _commits_all),
    "a lock forgets who has not reached it": (situation.ddl_lock_rule, "shard_state", _without_missing),
    "a lock forgets sources without a report": (Situation, "unknown", _nothing),
    "created like a table of another stream": (statement_steps, "left_to_others", _nothing_left),
    "created in another stream without its number": (statement_steps, "reserved_number", _nothing_left),
    "an operator's skip is not seen": (agent_steps, "overridden", _none),
    "an operator's skip does not replace a run": (agent_steps, "replaces_lock_run", _false),
}


LONG = {"a released table is parked in memory"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in BREAKS])
@pytest.mark.usefixtures("_anew")
def test_what_is_broken_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, instead = BREAKS[name]
    monkeypatch.setattr(place, attribute, instead)
    found()
