"""GTID sets that grow."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.gtid_set import GtidSet

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("start", "added", "result"),
    [
        ("", [], ""),
        ("", ["0-1-5"], "0-1-5"),
        ("0-1-5,1-2-9", ["0-7-6"], "0-7-6,1-2-9"),
        ("0-1-5,0-2-6", [], "0-2-6"),
        ("10-1-5,9-1-2", [], "9-1-2,10-1-5"),
        ("", [f"{A}:1", f"{A}:2"], f"{A}:1-2"),
        (f"{A}:1-5", [f"{A}:6"], f"{A}:1-6"),
        (f"{A}:1-5:8", [f"{A}:6", f"{A}:7"], f"{A}:1-8"),
        (f"{A.upper()}:1-5,\n{B}:3", [f"{B}:1"], f"{A}:1-5,{B}:1:3"),
        ("what is this", ["0-1-5"], ""),
        (f"{A}:tag:1-5", [f"{A}:6", f"{A}:tag:6"], f"{A}:6:tag:1-6"),
        (f"{A}:1-5:tag:1-3:7,{B}:_x:1", [f"{A}:tag:4"], f"{A}:1-5:tag:1-4:7,{B}:_x:1"),
        (f"{A}:tag:1-5", [f"{A}:Tag:6"], ""),  # a tag is written in small letters
    ],
)
def test_adding(start: str, added: list[str], result: str) -> None:
    made = GtidSet(start)
    for text in added:
        made.add(text)
    assert str(made) == result


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 40)), max_size=60))
def test_any_order_gives_the_same_set(numbers: list[tuple[str, int]]) -> None:
    made = GtidSet("")
    for server, number in numbers:
        made.add(f"{server}:{number}")
    again: set[tuple[str, int]] = set()
    for part in filter(None, str(made).split(",")):
        server, *spans = part.split(":")
        assert str(uuid.UUID(server)) == server
        last = -1
        for span in spans:
            first, _, end = span.partition("-")
            assert int(first) > last + 1
            last = int(end or first)
            again |= {(server, number) for number in range(int(first), last + 1)}
    assert again == set(numbers)
    assert str(GtidSet(str(made))) == str(made)


@pytest.mark.parametrize(
    ("known", "following", "why"),
    [
        ("0-1-5", "0-1-6", ""),
        ("0-1-5", "0-1-5", "0-1-5"),
        ("0-1-5,1-1-9", "0-1-1", "0-1-5"),
        ("0-1-5,1-1-9", "1-1-10", ""),
        ("0-1-5", "0-2-3", ""),  # another server of the domain may be behind
        ("0-1-5,0-2-6", "0-1-5", "0-1-5"),
        ("", "0-1-1", ""),
        (f"{A}:1-5:8", f"{A}:6", ""),
        (f"{A}:1-5:8", f"{A.upper()}:3", f"{A.upper()}:3"),
        (f"{A}:1-5", f"{B}:3", ""),
        (f"{A}:1-5:tag:9", f"{A}:tag:5", ""),
        (f"{A}:1-5:tag:9", f"{A}:tag:9", f"{A}:tag:9"),
        ("0-1-5", "", ""),
    ],
)
def test_what_cannot_come_next(known: str, following: str, why: str) -> None:
    assert GtidSet(known).conflict_with(following) == why


@pytest.mark.parametrize(
    ("known", "listed", "why"),
    [
        ("0-1-5", "0-1-5", ""),
        ("0-1-5", "0-1-7,1-1-2", ""),
        ("0-1-5,1-1-2", "0-1-5", ""),  # a domain that was deleted
        ("0-1-5,1-1-2", "0-1-4,1-1-2", "0-1-5"),
        ("0-1-5", "", ""),
    ],
)
def test_a_list_that_goes_back(known: str, listed: str, why: str) -> None:
    assert GtidSet(known).newer_than_list(listed) == why


@pytest.mark.parametrize(
    ("whole", "part", "first"),
    [
        ("0-1-5", "0-1-5", ""),
        ("0-1-5", "0-1-6", "0-*-6"),
        ("0-1-5", "0-1-9", "0-*-6"),
        ("0-2-7", "0-1-6", ""),  # numbers run on over all servers of a domain
        ("0-1-5", "1-1-1", "1-*-1"),
        ("0-1-5,0-2-4", "0-1-5", ""),  # a list that names several servers of a domain
        (f"{A}:1-5", f"{A}:2-3", ""),
        (f"{A}:1-5:8-9", f"{A}:4-8", f"{A}:6"),
        (f"{A}:1-5", f"{B}:1", f"{B}:1"),
        (f"{A}:1-5", f"{A}:1:tag:2", f"{A}:tag:2"),
        ("", f"{A}:7", f"{A}:7"),
        (f"{A}:7", "", ""),
    ],
)
def test_what_is_missing(whole: str, part: str, first: str) -> None:
    assert GtidSet(whole).lacks(GtidSet(part)) == first


@pytest.mark.parametrize(
    ("executed", "asked", "gone"),
    [
        ("0-1-100,0-2-101", "0-1-100", ""),
        ("0-1-99,0-2-150", "0-1-100", "0-1-100"),  # another history, however long
        ("0-2-150", "0-1-100", "0-1-100"),
        ("0-1-100", "0-1-100,5-7-9", "5-7-9"),
        ("", "0-1-100", "0-1-100"),  # a server that has never written anything
        ("0-1-100", f"{A}:1", f"{A}:1"),
        (f"{A}:1-5", "0-1-1", "0-1-1"),
        (f"{A}:1-5", f"{A}:1-6", f"{A}:6"),
    ],
)
def test_what_a_server_never_had(executed: str, asked: str, gone: str) -> None:
    assert GtidSet(executed).never_had(GtidSet(asked)) == gone


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("0-1-5,1-1-9", "0-2-7", "0-1-5"),
        ("0-1-5", "1-1-1", ""),
        (f"{A}:1-5:8,{B}:1", f"{A}:4-9", f"{A}:4-5:8"),
        (f"{A}:1-5:tag:1-5", f"{A}:2:tag:3-9", f"{A}:2:tag:3-5"),
    ],
)
def test_what_two_sets_share(one: str, other: str, both: str) -> None:
    assert str(GtidSet(one).common(GtidSet(other))) == both == str(GtidSet(other).common(GtidSet(one)))
