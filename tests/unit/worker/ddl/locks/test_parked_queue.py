"""Which tables are parked while the lanes still apply rows of some of them."""

from __future__ import annotations

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.ddl.locks.parked_queue import ParkedQueue


def test_a_table_departs_until_all_lanes_have_committed_its_rows() -> None:
    queue = ParkedQueue()
    changes: list[int] = []
    queue.on_change = lambda: changes.append(queue.version())
    queue.announce({1: RelayOffset(1, 50), 2: RelayOffset(1, 90)})
    assert queue.departing() == {1, 2}
    assert not changes
    for lowest in (None, RelayOffset(1, 49)):
        queue.committed(lowest)
        assert queue.departing() == {1, 2}
        assert not changes
    queue.committed(RelayOffset(1, 50))
    assert queue.departing() == {2}
    assert len(changes) == 1, "the lock agent publishes that the table waits"
    queue.committed(RelayOffset(2, 4))
    assert queue.departing() == frozenset()
    assert len(changes) == 2
