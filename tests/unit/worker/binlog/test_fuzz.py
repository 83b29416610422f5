"""A slice of tests/fuzz: damaged events give rows or coded errors, never a crash, a hang or any other exception."""

from __future__ import annotations

from shardmerge.worker.binlog.events import EventType
from tests.fuzz.child import run_in_child
from tests.fuzz.corpus import kinds
from tests.fuzz.run import outcome
from tests.support.examples import examples

EVENTS = examples(30_000)


def test_damaged_events() -> None:
    report = run_in_child(seed=2024, first=0, count=EVENTS)
    assert report.fault == ""
    outcomes = report.outcomes
    assert outcomes.total() == EVENTS
    # It reaches the values: not all is refused at the door.
    assert outcomes["rows"] > EVENTS // 20, outcomes
    for name in ("malformed-event", "unreadable-value", "unsupported-event", "event-checksum-wrong"):
        assert outcomes[name] > EVENTS // 500, outcomes


def test_the_same_seed_makes_the_same_events() -> None:
    assert [outcome(7, number) for number in range(50)] == [outcome(7, number) for number in range(50)]


def test_every_kind_of_event_is_damaged() -> None:
    unknown = {EventType.UNKNOWN, EventType.START_V3, EventType.FORMAT_DESCRIPTION}
    left = {code for code in EventType if code not in kinds()} - unknown
    assert left == _OF_OLD_SERVERS


_OF_OLD_SERVERS = {
    EventType.SLAVE,
    EventType.LOAD,
    EventType.NEW_LOAD,
    EventType.CREATE_FILE,
    EventType.EXEC_LOAD,
    EventType.PRE_GA_WRITE_ROWS,
    EventType.PRE_GA_UPDATE_ROWS,
    EventType.PRE_GA_DELETE_ROWS,
}
"""Of servers before 5.1: refused like any code that is not known."""
