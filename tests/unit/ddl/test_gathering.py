"""For whom a rehearsed statement waits."""

from __future__ import annotations

import pytest

from worker.ddl.gathering import Before, Gathering, Place, gathering

A, B, C = ("s1", 0), ("s1", 1), ("s2", 0)
OLD, NEW = "old", "new"


def waits(since: float = 1.0, *, form: str = "f", after: str = NEW, contradicts: bool = False) -> Place:
    return Place(OLD, Before(form, after, since, contradicts))


CASES: dict[str, tuple[dict[tuple[str, int], Place], Gathering]] = {
    "the first of three": ({A: waits(), B: Place(OLD), C: Place(OLD)}, Gathering(A, (A,), (B, C), (), ())),
    "another was first": ({A: waits(9.0), B: Place(OLD), C: waits(2.0)}, Gathering(C, (A, C), (B,), (), ())),
    "one has it behind it": ({A: waits(), B: Place(NEW), C: Place(OLD)}, Gathering(A, (A,), (C,), (), ())),
    "the last": ({A: waits(), B: Place(NEW), C: waits(3.0)}, Gathering(A, (A, C), (), (), ())),
    "alone": ({A: waits()}, Gathering(A, (A,), (), (), ())),
    "another statement": (
        {A: waits(), B: waits(2.0, form="g", after="else"), C: Place(OLD)},
        Gathering(A, (A,), (C,), (B,), ()),
    ),
    "a contradiction": ({A: waits(contradicts=True), B: waits(2.0)}, Gathering(A, (A, B), (), (), (A,))),
    "what changes nothing must come everywhere": (
        {A: waits(after=OLD), B: Place(OLD)},
        Gathering(A, (A,), (B,), (), ()),
    ),
    "the same words once more behind it": (
        {A: waits(), B: Place(NEW, Before("f", "newer", 2.0))},
        Gathering(A, (A,), (), (), ()),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_who_is_waited_for(name: str) -> None:
    places, expected = CASES[name]
    found = gathering(places, A)
    assert found == expected
    assert found.is_complete == (not expected.missing and not expected.conflicting and not expected.contradicting)
