"""For whom a rehearsed statement waits."""

from __future__ import annotations

import pytest

from shardmerge.worker.ddl.dry_run.lock_outlook import LockOutlook, PendingStatement, ShardPosition, lock_outlook

A, B, C = ("s1", 0), ("s1", 1), ("s2", 0)
OLD, NEW = "old", "new"


def waits(since: float = 1.0, *, form: str = "f", after: str = NEW, contradicts: bool = False) -> ShardPosition:
    return ShardPosition(OLD, PendingStatement(form, after, since, contradicts))


CASES: dict[str, tuple[dict[tuple[str, int], ShardPosition], LockOutlook]] = {
    "the first of three": (
        {A: waits(), B: ShardPosition(OLD), C: ShardPosition(OLD)},
        LockOutlook(A, (A,), (B, C), (), ()),
    ),
    "another was first": ({A: waits(9.0), B: ShardPosition(OLD), C: waits(2.0)}, LockOutlook(C, (A, C), (B,), (), ())),
    "one has it behind it": (
        {A: waits(), B: ShardPosition(NEW), C: ShardPosition(OLD)},
        LockOutlook(A, (A,), (C,), (), ()),
    ),
    "the last": ({A: waits(), B: ShardPosition(NEW), C: waits(3.0)}, LockOutlook(A, (A, C), (), (), ())),
    "alone": ({A: waits()}, LockOutlook(A, (A,), (), (), ())),
    "another statement": (
        {A: waits(), B: waits(2.0, form="g", after="else"), C: ShardPosition(OLD)},
        LockOutlook(A, (A,), (C,), (B,), ()),
    ),
    "a contradiction": ({A: waits(contradicts=True), B: waits(2.0)}, LockOutlook(A, (A, B), (), (), (A,))),
    "what changes nothing must come everywhere": (
        {A: waits(after=OLD), B: ShardPosition(OLD)},
        LockOutlook(A, (A,), (B,), (), ()),
    ),
    "the same words once more behind it": (
        {A: waits(), B: ShardPosition(NEW, PendingStatement("f", "newer", 2.0))},
        LockOutlook(A, (A,), (), (), ()),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_who_is_waited_for(name: str) -> None:
    places, expected = CASES[name]
    found = lock_outlook(places, A)
    assert found == expected
    assert found.is_complete == (not expected.missing and not expected.conflicting and not expected.contradicting)
