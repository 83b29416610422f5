"""Which prepared group an XA COMMIT or ROLLBACK ends, and how the index marks it."""

from __future__ import annotations

from shardmerge.worker.binlog.xa_events import Xid
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.log.index_records import EntryKind
from shardmerge.worker.relay.log.prepared_groups import PreparedGroup
from shardmerge.worker.relay.log.xa_tracker import GroupMark, PrepareUnknown, XaStatement, XaTracker, xa_statement

A = Xid(1, b"a", b"")
GROUP = PreparedGroup(A, 3, 100, 200, True)


def statement(text: str) -> XaStatement:
    found = xa_statement(text.encode())
    assert found is not None
    return found


def ended(tracker: XaTracker, text: str) -> GroupMark | None:
    tracker.end_other(statement(text))
    assert tracker.has_role
    return tracker.end_group(4, 300, 400, False)


def test_a_prepared_group_waits_until_its_commit_or_rollback() -> None:
    for what, kind in (("COMMIT", EntryKind.COMMITTED), ("ROLLBACK", EntryKind.FORGOTTEN)):
        tracker = XaTracker({})
        tracker.prepare(A)
        assert tracker.end_group(3, 100, 200, True) == GroupMark(EntryKind.PREPARED, (GROUP,))
        assert tracker.waiting() == (GROUP,)
        assert tracker.end_group(3, 200, 250, False) is None  # an ordinary group
        assert ended(tracker, f"XA {what} {A}") == GroupMark(kind, (GROUP,))
        assert tracker.waiting() == ()
        assert not tracker.has_role


def test_an_end_without_its_prepare() -> None:
    assert ended(XaTracker({}), f"XA ROLLBACK {A}") is None
    for text in (f"XA COMMIT {A}", "XA COMMIT 'by hand'"):
        assert ended(XaTracker({A: GROUP} if "hand" in text else {}), text) == GroupMark(EntryKind.COMMITTED)


def test_only_a_commit_lacks_its_prepare() -> None:
    commit, by_hand = statement(f"XA COMMIT {A}"), statement("XA COMMIT 'by hand'")
    assert XaTracker({}).lacks(commit)
    assert not XaTracker({A: GROUP}).lacks(commit)
    assert not XaTracker({}, frozenset({str(A)})).lacks(commit)
    assert not XaTracker({}).lacks(statement(f"XA ROLLBACK {A}"))
    assert XaTracker({A: GROUP}).lacks(by_hand)
    assert not XaTracker({}, frozenset({"XA COMMIT 'by hand'"})).lacks(by_hand)


def test_the_walk_changes_only_its_own_groups() -> None:
    waiting = {A: GROUP}
    ended(XaTracker(waiting), f"XA COMMIT {A}")
    assert waiting == {A: GROUP}


def test_an_unknown_prepare_names_the_transaction_and_the_statement() -> None:
    position = SourcePosition("b.000001", 100)
    unknown = PrepareUnknown(statement(f"XA COMMIT {A}"), position)
    assert (unknown.name, unknown.position) == (str(A), position)
    assert str(unknown) == f"XA COMMIT {A} after {position}"
    assert xa_statement(b"XA PREPARE X'61',X'',1") is None
