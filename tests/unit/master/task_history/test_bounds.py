"""What of the history is removed: never the newest, never one task for another."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.master.task_history.bounds import (
    DAY_SECONDS,
    RecordLimits,
    Stored,
    fair_share,
    stored_blocks,
    stored_entries,
    to_remove,
)
from shardmerge.proto import etcd_keys

_NOW = 100 * DAY_SECONDS
_DAYS = 30.0


def _stored(number: int, task: str, group: str, age_days: float) -> Stored:
    return Stored(f"{task}/{group}/{number:04d}", task, group, _NOW - age_days * DAY_SECONDS)


_RECORDS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(("x", "y")), st.floats(0, 60)), max_size=80).map(
    lambda found: [_stored(number, *each) for number, each in enumerate(found)]
)


@given(_RECORDS, st.integers(1, 12), st.integers(1, 30))
def test_what_stays_is_young_within_all_bounds_and_the_newest(records: list[Stored], group: int, total: int) -> None:
    removed = set(to_remove(records, _NOW, _DAYS, RecordLimits(group, total)))
    stay = [record for record in records if record.key not in removed]
    assert all(record.at >= _NOW - _DAYS * DAY_SECONDS for record in stay)
    assert all(count <= group for count in Counter((one.task, one.group) for one in stay).values())
    assert len(stay) <= total
    by_task: dict[str, list[Stored]] = defaultdict(list)
    for record in records:
        by_task[record.task].append(record)
    for record in stay:
        newer = [
            one
            for one in by_task[record.task]
            if (one.task, one.group) == (record.task, record.group) and (one.at, one.key) > (record.at, record.key)
        ]
        assert not removed & {one.key for one in newer}


@given(_RECORDS, st.integers(3, 30))
def test_a_task_below_its_share_loses_nothing_to_others(records: list[Stored], total: int) -> None:
    young = [record for record in records if record.at >= _NOW - _DAYS * DAY_SECONDS]
    counts = Counter(record.task for record in young)
    removed = set(to_remove(young, _NOW, _DAYS, RecordLimits(1_000, total)))
    for task, count in counts.items():
        if count <= total // len(counts):
            assert not any(record.key in removed for record in young if record.task == task)


@given(st.lists(st.integers(0, 100), max_size=20), st.integers(0, 300))
def test_the_share_uses_the_total_and_never_exceeds_it(counts: list[int], total: int) -> None:
    share = fair_share(counts, total)
    assert sum(min(count, share) for count in counts) <= total
    if share < max(counts, default=0):
        assert sum(min(count, share + 1) for count in counts) > total


def test_the_records_of_keys_and_what_this_version_does_not_know() -> None:
    known = etcd_keys.history_entry("a/b", "error", "0000000001500-w-1")
    newer = [f"{etcd_keys.history_entries('t')}error", f"{etcd_keys.history_entries('t')}error/x-1/part"]
    assert stored_entries([known, *newer]) == [Stored(known, "a/b", "error", 1.5)]
    block = etcd_keys.history_block("t", "0000086400-3600")
    assert stored_blocks([block, f"{etcd_keys.history_blocks('t')}later/1"]) == [Stored(block, "t", "", 86_400.0)]
