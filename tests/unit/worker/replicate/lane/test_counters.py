"""Which key of a lane has most of the changes: one that transactions with many changes of few keys name most often."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.batch import Batch, ChangeCounts
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.replicate.lane import counters as module
from shardmerge.worker.replicate.lane.counters import CommitCounts, LaneCounters, RepeatedKey, repeated_key
from tests.support.plans import integer, table_plan, text

_PLAN = table_plan((integer(), text("v")), (0,))
_COUNTS = {TargetTable("shop", "orders"): ChangeCounts(0, 9, 0)}


def _batch(*keys: int) -> Batch:
    """A batch with an update of each of ``keys``, in this order."""
    batch = Batch(0, 1, "b.000001")
    for pos, key in enumerate(keys):
        batch.replace(_PLAN, b"%d" % key, b"%d,'x'" % key, pos)
    return batch


def _commit(key: int | None) -> CommitCounts:
    repeated = None if key is None else RepeatedKey(_PLAN, b"%d" % key)
    return CommitCounts(_COUNTS, 1, 1, 0.1, None, repeated)


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ([7] * 4, b"7"),
        ([7] * 3, None),
        ([1, 7, 7, 7, 7, 7, 7, 7], b"7"),
        ([7, 7, 7, 7, 7, 7, 7, 1], b"1"),
        (list(range(100)), None),
        (list(range(17)) * 9, None),
        ([], None),
    ],
    ids=["one key", "few changes", "two keys", "the last one", "many keys", "more keys than are looked at", "nothing"],
)
def test_the_key_that_was_changed_last_of_few_keys_with_many_changes(keys: list[int], wanted: bytes | None) -> None:
    found = repeated_key(_batch(*keys))
    assert (None if found is None else found.key) == wanted


def test_the_key_that_most_transactions_name() -> None:
    lane = LaneCounters()
    for key in (1, 7, 7, 1, 7, 7, None, 7):
        lane.add(_commit(key))
    hot = lane.message({}).hot_key
    assert (hot.target_schema, hot.target_table, hot.key) == ("shop", "orders", "(`id` = 7)")
    assert hot.transactions >= 1


def test_no_key_without_such_a_transaction() -> None:
    lane = LaneCounters()
    lane.add(_commit(None))
    assert not lane.message({}).HasField("hot_key")


def test_a_former_key_does_not_hide_the_present_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    lane = LaneCounters()
    for _ in range(10_000):
        lane.add(_commit(1))
    now[0] += 60
    assert lane.message({}).hot_key.age_seconds == 60
    for _ in range(50):
        lane.add(_commit(7))
    hot = lane.message({}).hot_key
    assert (hot.key, hot.age_seconds) == ("(`id` = 7)", 0)


def test_a_long_key_is_cut() -> None:
    plan = table_plan((text("k", "utf8mb4_bin"), text("v")), (0,))
    key = ("'" + "é" * 5000 + "'").encode()
    assert len(RepeatedKey(plan, key).text) == 100
