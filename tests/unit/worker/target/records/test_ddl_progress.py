"""Which statement a stream has passed."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.target.records.ddl_progress import StatementPlace


def at(
    pos: int, inside: int, *, file: str = "bin.000007", server: str = "one", gtids: str = "g:1-5", byte: int = 0
) -> Statement:
    begin = RelayOffset(3, 1000 + byte)
    event = RelayOffset(3, 1000 + byte + inside)
    return Statement(begin, event, RelayOffset(3, 9000), SourcePosition(file, pos, gtids, server), "d", "x", None)


PASSED = StatementPlace.of(at(400, 60))


@pytest.mark.parametrize(
    ("statement", "is_passed"),
    [
        (at(400, 60), True),
        (at(400, 60, byte=500), True),  # in another relay log
        (at(400, 20), True),  # before it in the group
        (at(400, 61), False),
        (at(500, 60), False),
        (at(300, 60), False),
        (at(400, 60, file="bin.000008"), False),
        (at(777, 60, server="two"), True),  # the same transactions before it, of another server
        (at(400, 60, server="two", gtids="g:1-6"), False),
        (at(400, 60, server="two", gtids=""), False),
        (at(400, 60, server=""), True),
    ],
)
def test_covers(statement: Statement, is_passed: bool) -> None:
    assert PASSED.covers(statement) is is_passed


def test_without_gtids_another_server_proves_nothing() -> None:
    assert not StatementPlace.of(at(400, 60, gtids="")).covers(at(400, 60, gtids="", server="two"))


@pytest.mark.parametrize(
    ("place", "is_before"),
    [
        (SourcePosition("bin.000007", 401, "g:1-6", "one"), True),
        (SourcePosition("bin.000007", 400, "g:1-5", "one"), False),
        (SourcePosition("bin.000007", 300, "g:1-4", "one"), False),
        (SourcePosition("bin.000008", 4, "g:1-6", "one"), True),
        (SourcePosition("bin.000001", 99, "g:1-5", "two"), False),
        (SourcePosition("bin.000001", 99, "g:1-6", "two"), True),
    ],
)
def test_is_before(place: SourcePosition, is_before: bool) -> None:
    assert PASSED.is_before(place) is is_before


def test_unknown_order_counts_as_before() -> None:
    place = StatementPlace.of(at(400, 60, gtids=""))
    assert place.is_before(SourcePosition("bin.000001", 99, "", "two"))
