"""Repeated events become one entry, different ones are limited, and none is lost without a count."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto.task_history.event import Event, HistoryEntry, HistoryEntryKind
from shardmerge.proto.task_history.pending import (
    BURST,
    GAP_SECONDS,
    MOST_WAITING,
    REFILL_SECONDS,
    SPAN_SECONDS,
    PendingEntries,
)

_DAY = 86_400


def _event(
    at: float, same: str = "e", *, task: str = "t", kind: HistoryEntryKind = HistoryEntryKind.ERROR, source: str = "s1"
) -> Event:
    return Event(task, kind, at, f"text at {at}", (source,), same=same)


def _take(pending: PendingEntries, now: float) -> list[HistoryEntry]:
    return pending.take_due(now, 1_000_000)


def test_an_event_is_due_at_once_and_its_repetition_after_a_minute() -> None:
    pending = PendingEntries("w")
    pending.add(_event(100.0), 0.0)
    [first] = _take(pending, 0.0)
    assert (first.count, first.first, first.event.at) == (1, 100.0, 100.0)
    pending.add(_event(101.0), 1.0)
    assert _take(pending, 59.0) == []
    [again] = _take(pending, 60.0)
    assert (again.name, again.count, again.first, again.event.at) == (first.name, 2, 100.0, 101.0)


def test_a_day_of_failures_each_second_is_one_entry_written_about_a_hundred_times() -> None:
    pending, writes, last = PendingEntries("w"), 0, None
    for second in range(_DAY):
        pending.add(_event(float(second)), float(second))
        for entry in _take(pending, float(second)):
            writes, last = writes + 1, entry
    pending.hurry()
    [last] = _take(pending, float(_DAY))
    assert last.count == _DAY
    assert 50 < writes < 150


def test_a_decision_ends_the_repetitions_of_its_subtask_only() -> None:
    pending = PendingEntries("w")
    for source in ("s1", "s2"):
        pending.add(_event(1.0, source=source), 1.0)
    pending.separate("t", "s1")
    for source in ("s1", "s2"):
        pending.add(_event(2.0, source=source), 2.0)
    pending.hurry()
    assert sorted((entry.event.sources[0], entry.count) for entry in _take(pending, 3.0)) == [
        ("s1", 1),
        ("s1", 1),
        ("s2", 2),
    ]


def test_a_late_repetition_and_a_long_series_begin_a_new_entry() -> None:
    pending = PendingEntries("w")
    pending.add(_event(0.0), 0.0)
    pending.add(_event(GAP_SECONDS + 1), GAP_SECONDS + 1)
    pending.hurry()
    assert [entry.count for entry in _take(pending, 1e9)] == [1, 1]
    pending = PendingEntries("w")
    for at in range(0, int(SPAN_SECONDS) + 7_200, 1_800):
        pending.add(_event(float(at)), float(at))
    pending.hurry()
    entries = _take(pending, 1e9)
    assert len(entries) == 2
    assert all(entry.event.at - entry.first <= SPAN_SECONDS for entry in entries)


def test_events_without_a_likeness_are_never_merged() -> None:
    pending = PendingEntries("w")
    pending.add(_event(1.0, ""), 1.0)
    pending.add(_event(1.0, ""), 1.0)
    one, two = _take(pending, 1.0)
    assert one.name != two.name


def test_a_kind_has_its_own_limit_and_what_is_left_out_is_counted() -> None:
    pending = PendingEntries("w")
    for number in range(BURST + 7):
        pending.add(_event(float(number), f"{number}"), 0.0)
    pending.add(_event(1.0, kind=HistoryEntryKind.COMMAND), 0.0)
    assert Counter(entry.event.kind for entry in _take(pending, 0.0)) == {
        HistoryEntryKind.ERROR: BURST,
        HistoryEntryKind.COMMAND: 1,
    }
    pending.add(_event(2.0, "later"), REFILL_SECONDS)
    [entry] = _take(pending, REFILL_SECONDS)
    assert entry.left_out == 7


def test_what_could_not_be_written_waits_unless_there_is_a_newer_form() -> None:
    pending = PendingEntries("w")
    pending.add(_event(1.0), 1.0)
    taken = _take(pending, 1.0)
    pending.put_back(taken, 2.0)
    assert _take(pending, 2.0) == taken
    pending.add(_event(3.0), 3.0)
    pending.put_back(taken, 3.0)
    pending.hurry()
    assert [entry.count for entry in _take(pending, 3.0)] == [2]


def test_the_memory_is_bounded_while_nothing_can_be_written() -> None:
    pending, events = PendingEntries("w"), MOST_WAITING * 3
    for number in range(events):
        pending.add(_event(float(number), "", task=f"t{number}"), float(number))
    assert len(_take(pending, 1e9)) == MOST_WAITING


_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("", "a", "b")),
        st.sampled_from(("s1", "s2")),
        st.sampled_from((HistoryEntryKind.ERROR, HistoryEntryKind.STAGE)),
        st.floats(0, 4_000),
        st.sampled_from(("write", "fail", "separate", "nothing")),
    ),
    max_size=150,
)


@given(_EVENTS)
def test_every_event_is_counted_exactly_once(events: list[tuple[str, str, HistoryEntryKind, float, str]]) -> None:
    pending, stored, now = PendingEntries("w"), dict[str, HistoryEntry](), 0.0
    for same, source, kind, pause, then in events:
        now += pause
        pending.add(_event(now, same, source=source, kind=kind), now)
        match then:
            case "write":
                stored |= {entry.name: entry for entry in _take(pending, now)}
            case "fail":
                pending.put_back(_take(pending, now), now)
            case "separate":
                pending.separate("t", source)
            case _:
                pass
    now += REFILL_SECONDS
    for kind in (HistoryEntryKind.ERROR, HistoryEntryKind.STAGE):
        pending.add(_event(now, "", kind=kind), now)  # takes over the count of what was left out
    pending.hurry()
    stored |= {entry.name: entry for entry in _take(pending, now)}
    assert sum(entry.count + entry.left_out for entry in stored.values()) == len(events) + 2
    assert all(entry.first <= entry.event.at for entry in stored.values())
    assert sorted(stored) == sorted(stored, key=lambda name: (stored[name].first, name))
    for kind in (HistoryEntryKind.ERROR, HistoryEntryKind.STAGE):
        written = sum(entry.event.kind is kind for entry in stored.values())
        assert written <= BURST + now / REFILL_SECONDS + 1
