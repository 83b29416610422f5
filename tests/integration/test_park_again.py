"""Tests shard tables that are parked at their next statements without a stream, because they have no rows before them
(I1, I5, I6).

All statements are in the relay log before the first of them runs at the target: further ones wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors, failpoints
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.task_runner import TaskBody, TaskOutcome
from shardmerge.worker.replicate.join.unit import JoiningUnit
from shardmerge.worker.unit.contract import Failed
from tests.integration.lane_rig import LaneRig, Run, has_joined
from tests.integration.local_locks import LocalLocks
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database
from tests.support.task_runners import Threads
from tests.support.wait import until

__all__ = ["servers", "source", "target"]

QUEUED = 2
TABLES = "abc"


class _Jobs(Threads):
    """Counts the jobs of the joining stream, and their lanes."""

    def __init__(self, slots: int = 64) -> None:
        super().__init__(slots)
        self.lanes: list[int] = []

    @property
    def joining(self) -> int:
        return len(self.lanes)

    def run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
        if name.startswith(Stream.JOIN.job_name):
            self.lanes.append(count)
        return super().run(name, count, body, stop)


@dataclass
class Queue:
    """A task whose shard tables ``shard.a``, ``b`` and ``c`` have one target; its history is copied. ``seen``: how
    often each moment was reached; at ``crash`` the run ends, once."""

    rig: LaneRig
    seen: Counter[str] = field(default_factory=Counter[str])
    crash: str = ""
    jobs: _Jobs = field(default_factory=_Jobs)

    def hit(self, moment: str) -> None:
        self.seen[moment] += 1
        if moment == self.crash:
            self.crash = ""
            raise errors.worker.INTERNAL(kind="a crash", where=moment, reason="a test")

    def alter(self, number: int, tables: str = TABLES, more: str = "") -> None:
        self.execute(
            *(f"ALTER TABLE shard.{table} ADD COLUMN x{number} INT DEFAULT {number}{more}" for table in tables)
        )

    def execute(self, *statements: str) -> None:
        self.rig.source.execute(*statements)

    def begin(self) -> Run:
        """Start a run whose relay log has all statements."""
        self.rig.until_fetched()
        return self.rig.begin(self.rig.config, self.jobs)

    def same(self, run: Run, *names: str, seconds: float = 300) -> None:
        """Wait until everything has joined; the target must have the rows of these tables."""
        run.until_joined(self.rig.target, seconds)
        columns = ", ".join(("id", "v", *(f"x{number}" for number in range(QUEUED))))
        wanted = self.rig.source.query(
            " UNION ALL ".join(f"SELECT {columns} FROM {name}" for name in names) + " ORDER BY id"
        )
        assert self.rig.target.query(f"SELECT {columns} FROM merged.t ORDER BY id") == wanted


@pytest.fixture
def queue(source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    make_tables(
        source,
        "CREATE TABLE a (id INT PRIMARY KEY, v INT, u INT) ENGINE=InnoDB",
        "CREATE TABLE b LIKE a",
        "CREATE TABLE c LIKE a",
        *(f"INSERT INTO {table} VALUES ({number}, 0, 0)" for number, table in enumerate(TABLES)),
    )
    config = subtask_config(target)
    config.shard_mode = config_pb2.SHARD_MODE_PESSIMISTIC
    config.replicate.lanes = 2
    config.routes.add(name="r", schema_pattern="shard", table_pattern="*", target_schema="merged", target_table="t")
    with LaneRig(source, target, tmp_path, config) as rig:
        rig.locks = LocalLocks()
        run = rig.begin(config)
        until(lambda: has_joined(run, target), "the history is copied", 120)
        run.stop()
        made = Queue(rig)
        monkeypatch.setattr(failpoints, "hit", made.hit)
        yield made
    source.execute("DROP DATABASE shard")  # before the schema to whose table its foreign keys refer


def _inserts(id_: int, tables: str = TABLES) -> list[str]:
    return [
        text
        for number, table in enumerate(tables)
        for text in (
            f"INSERT INTO shard.{table} (id, v) VALUES ({id_ + number}, 1)",
            f"UPDATE shard.{table} SET v = v + 1 WHERE id < 100",
        )
    ]


def test_no_stream_begins_between_queued_statements(queue: Queue) -> None:
    queue.execute(*_inserts(10))
    queue.alter(0, "ab")
    queue.execute(*_inserts(15, "c"))  # before its own statement
    queue.alter(0, "c")
    for number in range(1, QUEUED):
        queue.alter(number)
    queue.execute(*_inserts(20))
    run = queue.begin()
    queue.same(run, "shard.a", "shard.b", "shard.c")
    assert queue.seen["park_again.recorded"] == QUEUED - 1
    assert queue.seen["ddl.passed"] == 1
    assert queue.jobs.joining == 1
    run.stop()


@pytest.mark.turns
def test_joining_tables_have_as_many_lanes_as_slots_are_free(queue: Queue) -> None:
    queue.execute(*_inserts(10))
    for number in range(QUEUED):
        queue.alter(number)
    for number in range(20, 60, 3):
        queue.execute(*_inserts(number))
    queue.jobs = _Jobs(3)
    run = queue.begin()
    queue.same(run, "shard.a", "shard.b", "shard.c", seconds=60)
    assert queue.jobs.lanes == [1]
    for number in range(62, 98, 3):  # the task's own lanes have the tables
        queue.execute(*_inserts(number))
    queue.rig.until_fetched()
    queue.same(run, "shard.a", "shard.b", "shard.c", seconds=60)
    run.stop()


@pytest.mark.turns
@pytest.mark.parametrize("moment", ["park_again.recording", "park_again.recorded"])
def test_a_crash(queue: Queue, moment: str) -> None:
    queue.execute(*_inserts(10))
    for number in range(QUEUED):
        queue.alter(number)
        queue.execute(*_inserts(20 + 10 * number, "b"))
    queue.execute(*_inserts(60))
    queue.crash = moment
    run = queue.begin()
    assert isinstance(run.join(), Failed)
    assert not queue.crash
    run = queue.begin()
    queue.same(run, "shard.a", "shard.b", "shard.c")
    run.stop()


BETWEEN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # Statements between the first two ALTERs; which names the shard tables have then.
    "a row": (("INSERT INTO shard.a (id, v) VALUES (50, 1)",), ("a", "b", "c")),
    "rows in one transaction": (
        (
            "BEGIN",
            "UPDATE shard.c SET v = 5",
            "UPDATE shard.b SET v = 5",
            "INSERT INTO shard.a (id, v) VALUES (51, 1)",
            "COMMIT",
        ),
        ("a", "b", "c"),
    ),
    "another name": (("RENAME TABLE shard.a TO shard.d",), ("d", "b", "c")),
    "a table like it": (("CREATE TABLE shard.n LIKE shard.a",), ("a", "b", "c", "n")),
    "a row that is gone": (
        ("INSERT INTO shard.b (id) VALUES (52)", "DELETE FROM shard.b WHERE id = 52"),
        ("a", "b", "c"),
    ),
    "no effect at the target": (("ANALYZE TABLE shard.a", "ALTER TABLE shard.a FORCE"), ("a", "b", "c")),
}


@pytest.mark.parametrize("between", BETWEEN)
def test_what_is_between_two_statements(queue: Queue, between: str) -> None:
    statements, names = BETWEEN[between]
    queue.execute(*_inserts(10))
    queue.alter(0)
    queue.execute(*statements)
    for number in range(1, QUEUED):
        queue.alter(number, "".join(names))
    queue.execute(*_inserts(20, "".join(names)))
    run = queue.begin()
    queue.same(run, *(f"shard.{name}" for name in names))
    run.stop()


def test_a_key_by_which_rows_change_is_refused_where_it_is_added(queue: Queue) -> None:
    queue.execute("CREATE DATABASE other", "CREATE TABLE other.p (id INT PRIMARY KEY) ENGINE=InnoDB")
    key = ", ADD FOREIGN KEY (u) REFERENCES other.p (id) ON DELETE CASCADE"
    queue.alter(0)
    queue.execute("INSERT INTO other.p VALUES (0)")
    queue.alter(1, more=key)
    run = queue.begin()

    def failed() -> bool:
        assert not run.ended, run.join()
        status = run.unit.join_status() if isinstance(run.unit, JoiningUnit) else None
        return status is not None and status.error.code == errors.ddl.ADDS_CASCADE.code

    until(failed, "the joining tables' stream stops before the statement", 120)
    run.stop()


def test_such_a_key_is_not_parked_ahead_of_the_lanes(queue: Queue) -> None:
    queue.execute("CREATE DATABASE other", "CREATE TABLE other.p (id INT PRIMARY KEY) ENGINE=InnoDB")
    queue.execute("INSERT INTO other.p VALUES (0)")
    queue.alter(0, "a")
    queue.alter(0, "bc", ", ADD FOREIGN KEY (u) REFERENCES other.p (id) ON DELETE CASCADE")
    run = queue.begin()
    outcome = run.join()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.ddl.ADDS_CASCADE
