"""The next step for one target table: tables of cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.master.ddl_lock.resolver import (
    ChangeOwner,
    Close,
    LetOwnerExecute,
    Nothing,
    Open,
    ReleaseTables,
    Step,
    TakeBack,
    Unlock,
    Wait,
    resolve,
    unlock,
    violations,
)
from shardmerge.master.ddl_lock.situation import (
    Lock,
    LockMember,
    LockStage,
    ReportedStatement,
    ShardState,
    Situation,
    SourceReport,
    is_parked_at,
    shard_state,
)

LOCK = Lock("g1", "s1", "ALTER A", "fa", "S0", "S1", 100.0)
EXECUTING = replace(LOCK, stage=LockStage.EXECUTING)
RELEASED = replace(LOCK, stage=LockStage.RELEASED)
OTHER = Lock("g2", "s2", "ALTER B", "fb", "S0", "S2", 200.0)


def at(source: str, form: str = "", *, structure: str = "S0", after: str = "", since: float = 50.0) -> LockMember:
    """A table of ``source``: waiting before ``form``, or flowing."""
    leads_to = after or {"fa": "S1", "fb": "S2"}.get(form, "")
    parked = ReportedStatement(f"ALTER {form[1:].upper()}", form, leads_to, since=since) if form else None
    return LockMember(source, "db", f"t-{source}", structure, parked)


def declined(situation: Situation, **generations: str) -> Situation:
    """``situation`` with what owners have declined, by source."""
    reports = {
        source: report and replace(report, declined=generations.get(source, ""))
        for source, report in situation.reports.items()
    }
    return replace(situation, reports=reports)


def seen(
    *members: LockMember,
    lock: Lock | None = None,
    silent: tuple[str, ...] = (),
    unable: tuple[str, ...] = (),
    **executed: str,
) -> Situation:
    """Reports of the sources that the members name; ``executed``: by source."""
    reports: dict[str, SourceReport | None] = {}
    for source in sorted({member.source for member in members} | set(executed)):
        own = tuple(member for member in members if member.source == source)
        reports[source] = SourceReport(own, executed.get(source, ""))
    return Situation({**reports, **dict.fromkeys(silent)}, lock, frozenset(unable))


A1, A2 = at("s1", "fa"), at("s2", "fa", since=60.0)
FLOWS2 = at("s2")
BEHIND1, BEHIND2 = at("s1", structure="S1"), at("s2", structure="S1")
B2 = at("s2", "fb", since=60.0)
CONTRADICTS = replace(
    A1, parked=ReportedStatement("ALTER A", "fa", "S1", since=50.0, reason="it was dropped", contradicts=True)
)


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (A1, ShardState.READY),
        (at("s1", "fa", structure="X", after="Y"), ShardState.READY),
        (at("s1", "fa", structure="S1", after="S1"), ShardState.READY),
        (at("s1", "fa", structure="S1", after="S5"), ShardState.PASSED),
        (BEHIND1, ShardState.PASSED),
        (at("s1", "fb", structure="S1"), ShardState.PASSED),
        (FLOWS2, ShardState.MISSING),
        (at("s1", structure="S9"), ShardState.MISSING),
        (B2, ShardState.CONFLICTING),
    ],
)
def test_state_of_a_table(member: LockMember, expected: ShardState) -> None:
    assert shard_state(member, LOCK) is expected
    assert is_parked_at(member, LOCK) is (expected is ShardState.READY)


def test_who_has_passed_a_statement_that_reuses_names_cannot_be_seen() -> None:
    """A table may have been created with the structure after it: its rows must not get the statement."""
    lock = replace(LOCK, reuses_names=True)
    assert shard_state(BEHIND1, lock) is ShardState.MISSING
    assert shard_state(at("s1", "fb", structure="S1"), lock) is ShardState.CONFLICTING
    assert shard_state(A1, lock) is ShardState.READY
    reused = replace(A1, parked=ReportedStatement("ALTER A", "fa", "S1", since=100.0, reuses_names=True))
    opened = resolve(seen(reused), 100.0, "g1")
    assert isinstance(opened, Open) and opened.lock.reuses_names
    waits = resolve(seen(reused, at("s2", structure="S1"), lock=lock), 100.0, "g1")
    assert isinstance(waits, Wait) and [member.source for member in waits.missing] == ["s2"]
    released = replace(lock, stage=LockStage.RELEASED)
    assert resolve(seen(BEHIND1, at("s2", structure="S1"), lock=released, s1="g1"), 100.0, "g1") == Close()


def test_who_has_passed_a_statement_without_effect_cannot_be_seen() -> None:
    lock = replace(LOCK, after="S0")
    assert shard_state(at("s1"), lock) is ShardState.MISSING
    assert shard_state(at("s1", "fa", after="S0"), lock) is ShardState.READY
    assert shard_state(at("s1", "fb"), lock) is ShardState.CONFLICTING


PARKED2 = at("s2", "fa").parked
assert PARKED2 is not None
AGAIN2 = replace(at("s2", "fa"), parked=replace(PARKED2, after_run="g1"))
"""Parked at the same statement after the run of lock g1."""


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        pytest.param(seen(), Nothing(), id="nobody is there"),
        pytest.param(seen(at("s1"), FLOWS2), Nothing(), id="all flow"),
        pytest.param(seen(A1, FLOWS2), Open(LOCK), id="the first comes"),
        pytest.param(seen(A1, silent=("s2",)), Open(LOCK), id="the first comes, another one has not reported"),
        pytest.param(seen(at("s1", "fa", since=60), at("s2", "fa")), Open(replace(LOCK, owner="s2")), id="owner"),
        pytest.param(seen(A1, at("s2", "fa")), Open(LOCK), id="names decide between equal times"),
        pytest.param(seen(A1, B2), Open(LOCK), id="all statements conflict: the first"),
        pytest.param(
            seen(at("s1", "fb", structure="S1", since=10), A2), Open(replace(LOCK, owner="s2")),
            id="the first would conflict, a later one does not",
        ),
        # while it gathers
        pytest.param(seen(A1, FLOWS2, lock=LOCK), Wait(missing=(FLOWS2,)), id="one is missing"),
        pytest.param(seen(A1, lock=LOCK, silent=("s2",)), Wait(unknown=("s2",)), id="one has not reported"),
        pytest.param(
            seen(A1, lock=LOCK, silent=("s2",), unable=("s2",)), Wait(unknown=("s2",)),
            id="one that is paused has not reported",
        ),
        pytest.param(seen(A1, B2, lock=LOCK), Wait(conflicts=(B2,)), id="one conflicts"),
        pytest.param(seen(CONTRADICTS, BEHIND2, lock=LOCK), Wait(contradicting=(CONTRADICTS,)), id="one contradicts"),
        pytest.param(seen(A1, A2, lock=LOCK), LetOwnerExecute(EXECUTING), id="all wait"),
        pytest.param(seen(A1, BEHIND2, lock=LOCK), LetOwnerExecute(EXECUTING), id="one is behind it already"),
        pytest.param(seen(A1, lock=LOCK, s2=""), LetOwnerExecute(EXECUTING), id="a source without tables"),
        pytest.param(
            seen(at("s1"), A2, lock=LOCK), ChangeOwner(replace(LOCK, owner="s2")), id="the owner's table waits no more"
        ),
        pytest.param(seen(A2, lock=LOCK), ChangeOwner(replace(LOCK, owner="s2")), id="the owner has left"),
        pytest.param(
            seen(A1, at("s2", "fb", structure="S1"), lock=OTHER), Open(replace(LOCK, since=100.0)),
            id="another one is free of conflicts by now",
        ),
        pytest.param(seen(A1, FLOWS2, lock=OTHER), Open(LOCK), id="nobody waits for it, but for another one"),
        pytest.param(seen(at("s1"), FLOWS2, lock=LOCK), Close(), id="nobody waits any more"),
        pytest.param(Situation({}, LOCK), Close(), id="the task is gone"),
        # given to the owner
        pytest.param(seen(A1, A2, lock=EXECUTING), Wait(), id="the owner has not run it"),
        pytest.param(seen(A1, A2, lock=EXECUTING, s1="g0"), Wait(), id="the owner has run an earlier one"),
        pytest.param(seen(A1, A2, lock=EXECUTING, s1="g1"), ReleaseTables(RELEASED), id="the owner has run it"),
        pytest.param(seen(A1, A2, lock=EXECUTING, s2="g1"), ReleaseTables(RELEASED), id="an earlier owner has run it"),
        pytest.param(seen(A1, FLOWS2, lock=EXECUTING), Wait(), id="a table appears"),
        pytest.param(seen(A2, lock=EXECUTING, silent=("s1",)), Wait(), id="the owner copies again"),
        pytest.param(seen(A2, lock=EXECUTING, s1=""), Wait(), id="the owner's table is gone, it may be running it"),
        pytest.param(
            seen(A2, lock=EXECUTING), ChangeOwner(replace(EXECUTING, owner="s2")), id="the owner left meanwhile"
        ),
        pytest.param(seen(BEHIND2, lock=EXECUTING), Close(), id="the owner left, and nobody waits"),
        # the owner declines to run it
        pytest.param(
            declined(seen(CONTRADICTS, BEHIND2, lock=EXECUTING), s1="g1"), TakeBack(LOCK), id="the owner declines"
        ),
        pytest.param(declined(seen(A1, A2, lock=EXECUTING), s1="g0"), Wait(), id="the owner declined an earlier one"),
        pytest.param(declined(seen(A1, A2, lock=EXECUTING), s2="g1"), Wait(), id="another source declines"),
        pytest.param(
            declined(seen(A1, A2, lock=EXECUTING, s1="g1"), s1="g1"), ReleaseTables(RELEASED),
            id="it has run nevertheless",
        ),
        pytest.param(
            declined(seen(CONTRADICTS, A2, lock=LOCK), s1="g1"), Wait(contradicting=(CONTRADICTS,)),
            id="the owner declines still",
        ),
        pytest.param(declined(seen(A1, A2, lock=LOCK), s1="g1"), Wait(), id="the owner declines, its table may go on"),
        pytest.param(
            declined(seen(A1, A2, lock=LOCK), s2="g1"), LetOwnerExecute(EXECUTING), id="a former owner has declined"
        ),
        # the owner cannot run a statement
        pytest.param(
            seen(A1, A2, lock=LOCK, unable=("s1",)), ChangeOwner(replace(LOCK, owner="s2")), id="paused before its run"
        ),
        pytest.param(
            seen(A1, A2, lock=LOCK, unable=("s1", "s2")), LetOwnerExecute(EXECUTING), id="no source can run it yet"
        ),
        pytest.param(
            seen(A1, A2, lock=EXECUTING, unable=("s1",)),
            ChangeOwner(replace(EXECUTING, owner="s2")),
            id="paused during its run",
        ),
        pytest.param(seen(A1, A2, lock=EXECUTING, unable=("s1", "s2")), Wait(), id="no other source can run it"),
        pytest.param(seen(A1, BEHIND2, lock=EXECUTING, unable=("s1",)), Wait(), id="no other source is parked at it"),
        # released
        pytest.param(seen(A1, BEHIND2, lock=RELEASED), Wait(), id="one has not gone on"),
        pytest.param(seen(BEHIND1, B2, lock=RELEASED), Close(), id="all have gone on"),
        pytest.param(
            seen(BEHIND1, at("s2", "fa", structure="S1", after="S5"), lock=RELEASED), Close(),
            id="one waits before the same words again",
        ),
        pytest.param(seen(BEHIND1, lock=RELEASED, silent=("s2",)), Close(), id="one that copies does not wait"),
        pytest.param(
            seen(BEHIND1, AGAIN2, lock=RELEASED), Close(), id="one has continued, and is parked at an equal statement"
        ),
    ],
)  # fmt: skip
def test_next_step(situation: Situation, expected: Step) -> None:
    step = resolve(situation, LOCK.since, "g1" if situation.lock != LOCK else "g9")
    assert step == expected
    assert violations(situation, step) == ()


def test_owner_is_the_source_that_came_first() -> None:
    step = resolve(seen(at("s1", "fa", since=60), at("s2", "fa", since=50)), 100.0, "g1")
    assert isinstance(step, Open)
    assert (step.lock.owner, step.lock.generation, step.lock.since) == ("s2", "g1", 100.0)


def test_operator_lets_the_owner_run_it_or_no_source() -> None:
    assert unlock(LOCK, "s2") == Unlock(replace(LOCK, owner="s2", stage=LockStage.EXECUTING, forced=True))
    assert unlock(EXECUTING) == Unlock(replace(LOCK, stage=LockStage.RELEASED, forced=True))
    assert violations(seen(A1, B2, lock=LOCK), unlock(LOCK, "s1")) == ()
    assert violations(seen(A1, B2, lock=LOCK), unlock(LOCK)) == ()
    assert violations(seen(CONTRADICTS, lock=LOCK), unlock(LOCK, "s1")) == ()
    # From there on it goes its usual way, whoever is missing.
    forced = replace(EXECUTING, forced=True)
    assert resolve(seen(A1, FLOWS2, lock=forced), 0.0, "g9") == Wait()
    assert resolve(seen(A1, FLOWS2, lock=forced, s1="g1"), 0.0, "g9") == ReleaseTables(replace(RELEASED, forced=True))
    assert resolve(seen(BEHIND1, FLOWS2, lock=replace(RELEASED, forced=True)), 0.0, "g9") == Close()


@pytest.mark.parametrize(
    ("situation", "step", "says"),
    [
        (seen(A1, FLOWS2, lock=LOCK), LetOwnerExecute(EXECUTING), "would execute without"),
        (seen(A1, B2, lock=LOCK), LetOwnerExecute(EXECUTING), "would execute without"),
        (seen(CONTRADICTS, lock=LOCK), LetOwnerExecute(EXECUTING), "would execute without"),
        (seen(A1, lock=LOCK, silent=("s2",)), LetOwnerExecute(EXECUTING), "would execute without"),
        (seen(A1, A2, lock=RELEASED), LetOwnerExecute(EXECUTING), "taken back"),
        (seen(at("s1"), A2, lock=LOCK), LetOwnerExecute(EXECUTING), "is not parked at"),
        (seen(A1, A2, lock=None), LetOwnerExecute(EXECUTING), "not the existing one"),
        (seen(A1, A2, lock=replace(LOCK, generation="g0")), LetOwnerExecute(EXECUTING), "not the existing one"),
        (seen(A1, A2, lock=EXECUTING), ReleaseTables(RELEASED), "before its statement was run"),
        (seen(A1, A2, lock=LOCK, s1="g1"), ReleaseTables(RELEASED), "before its statement was run"),
        (seen(A1, A2, lock=EXECUTING), Open(OTHER), "would be replaced"),
        (seen(A1, B2, lock=LOCK), Open(replace(OTHER, generation="g1")), "would be replaced"),
        (seen(A1), Open(OTHER), "does not begin as a gathering lock"),
        (seen(A1), Open(EXECUTING), "does not begin as a gathering lock"),
        (seen(A1, A2, lock=EXECUTING), ChangeOwner(replace(EXECUTING, owner="s2")), "may be running"),
        (seen(A1, BEHIND2, lock=RELEASED), Close(), "tables are parked"),
        (seen(BEHIND1, BEHIND2, lock=EXECUTING), Close(), "may be running"),
        (seen(A1), Close(), "no lock to close"),
        (seen(A1, A2, lock=LOCK), Unlock(EXECUTING), "without a trace"),
        (declined(seen(A1, A2, lock=LOCK), s1="g1"), LetOwnerExecute(EXECUTING), "has declined"),
        (seen(A1, A2, lock=EXECUTING), TakeBack(LOCK), "may be running"),
        (
            declined(seen(A1, A2, lock=replace(EXECUTING, forced=True)), s1="g1"),
            TakeBack(replace(LOCK, forced=True)),
            "may be running",
        ),
        (seen(A1, FLOWS2, lock=LOCK), unlock(LOCK, "s2"), "is not parked at"),
    ],
)
def test_violations_are_seen(situation: Situation, step: Step, says: str) -> None:
    assert says in "; ".join(violations(situation, step))
