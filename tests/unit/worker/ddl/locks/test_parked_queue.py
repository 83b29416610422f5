"""Which tables are parked while the lanes still apply rows of some of them."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.ddl.locks.parked_queue import ParkedQueue, ParkedTable, Stage
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION


def test_a_table_departs_until_all_lanes_have_committed_its_rows() -> None:
    changes: list[bool] = []
    queue = ParkedQueue(lambda: changes.append(True))
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


def _parked(number: int, *, released: bool, resumes_copy: int = 0) -> Parked:
    place = SourcePosition("bin.000001", 10 * number)
    return Parked(
        number,
        "ALTER TABLE t ADD c INT",
        "db",
        0,
        is_mariadb=True,
        session=UNKNOWN_SESSION,
        place=StatementPlace(place, 0),
        resume_at=place,
        since=1.0,
        released=released,
        resumes_copy=resumes_copy,
    )


def test_a_table_that_is_copied_in_part_resumes_once_the_rest_is_copied() -> None:
    queue = ParkedQueue()
    items = [_parked(1, released=True, resumes_copy=2), _parked(2, released=True), _parked(3, released=False)]
    queue.park({item.number: item for item in items}, {item.number: RelayOffset(1, item.number) for item in items})
    assert (list(queue.released()), list(queue.uncopied())) == ([2], [1])
    queue.copied({1: 1})
    assert list(queue.uncopied()) == [1], "that was an earlier interruption"
    queue.copied({1: 2})
    assert (list(queue.released()), list(queue.uncopied())) == ([1, 2], [])
    assert list(queue.parked()) == [3]


def test_a_release_that_precedes_the_parking_is_kept() -> None:
    """The lock agent reads the record before the driver adds the table to the queue."""
    queue = ParkedQueue()
    queue.release([_parked(1, released=True, resumes_copy=1)])
    queue.park({1: _parked(1, released=False)}, {1: RelayOffset(1, 1)})
    assert list(queue.uncopied()) == [1]
    queue.park({1: _parked(1, released=False)}, {1: RelayOffset(1, 1)})
    assert queue.parked() == {}


def test_a_release_with_further_statements_that_precedes_the_parking_is_kept() -> None:
    queue = ParkedQueue()
    released = replace(_parked(1, released=True), skips=StatementPlace(SourcePosition("bin.000001", 90), 0))
    queue.release([released])
    queue.park({1: _parked(1, released=False)}, {1: RelayOffset(1, 1)})
    assert queue.parked() == {}
    assert queue.released() == {1: (released, RelayOffset(1, 1))}
    assert queue.waiting() == {}


def test_a_released_table_is_not_ready_while_the_lanes_apply_its_rows() -> None:
    queue = ParkedQueue()
    queue.announce({1: RelayOffset(1, 9)})
    queue.park({1: _parked(1, released=True)}, {1: RelayOffset(1, 9)})
    assert (queue.released(), queue.parked().keys()) == ({}, {1})
    queue.committed(RelayOffset(1, 9))
    assert (queue.released().keys(), queue.parked()) == ({1}, {})


def test_the_stages_of_a_parked_table() -> None:
    item, place = _parked(1, released=True, resumes_copy=2), RelayOffset(1, 9)
    assert [
        table.stage
        for table in (
            ParkedTable(leaves_at=place),
            ParkedTable(replace(item, released=False), place, place),
            ParkedTable(replace(item, released=False), place),
            ParkedTable(item),
            ParkedTable(item, place, copied=1),
            ParkedTable(item, place, copied=2),
        )
    ] == list(Stage)
