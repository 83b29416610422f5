"""Tests RENAME and CREATE TABLE … LIKE of shard tables that are parked at a sharding DDL or away from the stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors, failpoints
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from shardmerge.worker.replicate.join.unit import JoiningUnit
from shardmerge.worker.unit.contract import Failed
from tests.integration.lane_rig import LaneRig, Run, has_joined
from tests.integration.local_locks import LocalLocks
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database
from tests.support.wait import until

__all__ = ["servers", "source", "target"]

MODES = {
    # The statement of the mode at which a table is parked, and a column's name after it.
    "pessimistic": (config_pb2.SHARD_MODE_PESSIMISTIC, "ADD COLUMN x INT NOT NULL DEFAULT 7", "v"),
    "optimistic": (config_pb2.SHARD_MODE_OPTIMISTIC, "CHANGE v w INT", "w"),
}


@dataclass
class Away:
    """A run of a task whose shard tables ``shard.a``, ``b`` and ``c`` have one target."""

    rig: LaneRig
    locks: LocalLocks
    run: Run
    alter: str
    value: str

    def execute(self, *statements: str) -> None:
        """``{alter}``: the statement of the mode; ``{v}``: the column that it renames."""
        self.rig.source.execute(*(text.format(alter=self.alter, v=self.value) for text in statements))

    def parked(self, *names: str) -> None:
        until(lambda: self.locks.parked() == set(names), f"{names} wait")

    def restart(self) -> None:
        self.run.stop()
        self.run = self.rig.begin(self.rig.config)

    def same(self, *names: str) -> None:
        """Wait until everything has joined; the target must have the rows of these tables."""
        self.run.until_joined(self.rig.target)
        columns = "id, x, v" if self.value == "v" else "id, w"
        wanted = self.rig.source.query(
            " UNION ALL ".join(f"SELECT {columns} FROM {name}" for name in names) + " ORDER BY id"
        )
        assert self.rig.target.query(f"SELECT {columns} FROM shard.t ORDER BY id") == wanted


@pytest.fixture
def away(source: Database, target: Database, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Away]:
    mode, alter, value = MODES[request.param]
    make_tables(
        source,
        "CREATE TABLE a (id INT PRIMARY KEY, v INT) ENGINE=InnoDB",
        "CREATE TABLE b LIKE a",
        "CREATE TABLE c LIKE a",
        "INSERT INTO a VALUES (1, 1)",
        "INSERT INTO b VALUES (2, 2)",
        "INSERT INTO c VALUES (3, 3)",
    )
    source.execute("CREATE DATABASE shard_2")
    config = subtask_config(target)
    config.shard_mode = mode
    config.replicate.lanes = 2
    config.routes.add(name="r", schema_pattern="shard*", table_pattern="*", target_schema="shard", target_table="t")
    with LaneRig(source, target, tmp_path, config) as rig:
        locks = rig.locks = LocalLocks()
        made = Away(rig, locks, rig.begin(config), alter, value)
        until(lambda: locks.record.targets, "the history is copied, and the tables are published")
        yield made
        made.run.stop()


def _parked_a(away: Away) -> None:
    away.execute("ALTER TABLE shard.a {alter}", "INSERT INTO shard.a (id, {v}) VALUES (10, 10)")
    away.parked("a")


SCRIPTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # Statements after `a` is parked, in two parts; the names of the shard tables at the end.
    "alter rename": (
        ("ALTER TABLE shard.a RENAME TO shard_2.q", "INSERT INTO shard_2.q (id, {v}) VALUES (11, 11)"),
        ("shard_2.q", "shard.b", "shard.c"),
    ),
    "rename": (
        (
            "RENAME TABLE shard.a TO shard.a2",
            "INSERT INTO shard.a2 (id, {v}) VALUES (11, 11)",
            "RENAME TABLE shard.a2 TO shard.a3",
            "INSERT INTO shard.a3 (id, {v}) VALUES (12, 12)",
            "UPDATE shard.a3 SET {v} = 100 WHERE id IN (10, 11)",
            "DELETE FROM shard.a3 WHERE id = 1",
        ),
        ("shard.a3", "shard.b", "shard.c"),
    ),
    "with one that is not parked": (
        (
            "RENAME TABLE shard.a TO shard.x, shard.b TO shard.y",
            "INSERT INTO shard.x (id, {v}) VALUES (11, 11)",
            "INSERT INTO shard.y (id, v) VALUES (21, 21)",
            "UPDATE shard.y SET v = v + 1",
            "UPDATE shard.x SET {v} = {v} + 1",
        ),
        ("shard.x", "shard.y", "shard.c"),
    ),
    "swap": (
        (
            "RENAME TABLE shard.a TO shard.tmp, shard.b TO shard.a, shard.tmp TO shard.b",
            "INSERT INTO shard.b (id, {v}) VALUES (11, 11)",
            "INSERT INTO shard.a (id, v) VALUES (21, 21)",
            "UPDATE shard.a SET v = v + 1",
            "UPDATE shard.b SET {v} = {v} + 1",
        ),
        ("shard.a", "shard.b", "shard.c"),
    ),
    "the old name again": (
        (
            "RENAME TABLE shard.a TO shard.a2",
            "CREATE TABLE shard.a (id INT PRIMARY KEY, v INT)",
            "INSERT INTO shard.a VALUES (30, 30)",
            "INSERT INTO shard.a2 (id, {v}) VALUES (11, 11)",
        ),
        ("shard.a", "shard.a2", "shard.b", "shard.c"),
    ),
    "like": (
        (
            "CREATE TABLE shard.n LIKE shard.a",
            "INSERT INTO shard.n (id, {v}) VALUES (31, 31), (32, 32)",
            "UPDATE shard.n SET {v} = {v} + 1 WHERE id = 31",
            "INSERT INTO shard.a (id, {v}) VALUES (11, 11)",
        ),
        ("shard.a", "shard.n", "shard.b", "shard.c"),
    ),
    "rotation": (
        (
            "CREATE TABLE shard.n LIKE shard.a",
            "RENAME TABLE shard.a TO shard.old, shard.n TO shard.a",
            "INSERT INTO shard.a (id, {v}) VALUES (31, 31)",
            "INSERT INTO shard.old (id, {v}) VALUES (11, 11)",
            "CREATE TABLE shard.n LIKE shard.a",
            "INSERT INTO shard.n (id, {v}) VALUES (41, 41)",
            "RENAME TABLE shard.n TO shard.m",
            "INSERT INTO shard.m (id, {v}) VALUES (42, 42)",
        ),
        ("shard.a", "shard.old", "shard.m", "shard.b", "shard.c"),
    ),
}


ALTERED_LATER = {"with one that is not parked": ("y", "c"), "swap": ("a", "c"), "the old name again": ("a", "b", "c")}
"""The other shard tables, under their names after the statements; ``b`` and ``c`` if there is no entry."""


@pytest.mark.turns
@pytest.mark.parametrize(
    ("away", "restarts"),
    [("pessimistic", False), ("pessimistic", True), ("optimistic", True)],
    indirect=["away"],
    ids=["pessimistic", "pessimistic, restarts", "optimistic, restarts"],
)
@pytest.mark.parametrize("name", list(SCRIPTS))
def test_a_parked_table(away: Away, name: str, restarts: bool) -> None:
    statements, names = SCRIPTS[name]
    _parked_a(away)
    for statement in statements:
        away.execute(statement)
        if restarts:
            away.restart()
    away.execute("INSERT INTO shard.c (id, v) VALUES (50, 50)")
    for table in ALTERED_LATER.get(name, ("b", "c")):
        away.execute(f"ALTER TABLE shard.{table} {{alter}}")
        if restarts:
            away.restart()
    away.execute("INSERT INTO shard.c (id, {v}) VALUES (51, 51)")
    away.same(*names)
    for number, table in enumerate(names):
        away.execute(f"INSERT INTO {table} (id, {{v}}) VALUES ({60 + number}, 6)")
    away.restart()
    away.same(*names)
    [(recorded,)] = away.rig.target.query("SELECT dealing FROM dm_meta.subtask")
    assert '"away":[]' in str(recorded), "the main stream needs no names of others any more"
    [(place,)] = away.rig.target.query("SELECT place FROM dm_meta.statement_passed WHERE stream = 'MAIN'")
    assert "renamed" not in str(place)


class _Crash(Exception):
    """The program ends at a moment."""


class _Crashes:
    """Lets the program end at a moment, at the first times that it comes there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, moment: str, times: int) -> None:
        self._moment, self._left = moment, times
        self.crashed = threading.Event()
        self.count = 0
        monkeypatch.setattr(failpoints, "hit", self._hit)

    def _hit(self, moment: str) -> None:
        if moment == self._moment and self._left > 0:
            self._left -= 1
            self.count += 1
            self.crashed.set()
            raise _Crash(moment)


MOMENTS = (
    ("ddl.before", 4, "pessimistic"),
    ("ddl.before_passing", 4, "optimistic"),
    ("ddl.passing", 4, "pessimistic"),
    ("ddl.passed", 4, "optimistic"),
    ("replay.beginning", 2, "pessimistic"),
    ("replay.begun", 2, "optimistic"),
    ("join.before_adopting", 2, "pessimistic"),
    ("join.adopting", 2, "optimistic"),
    ("join.adopted", 2, "pessimistic"),
)
"""Moments, how often the program ends there, and in which mode."""

EVERYTHING = (
    (
        "CREATE TABLE shard.n LIKE shard.a",
        "RENAME TABLE shard.a TO shard.tmp, shard.b TO shard.a, shard.tmp TO shard.b",
        "INSERT INTO shard.b (id, {v}) VALUES (11, 11)",
        "INSERT INTO shard.a (id, v) VALUES (21, 21)",
        "INSERT INTO shard.n (id, {v}) VALUES (31, 31)",
        "RENAME TABLE shard.b TO shard.old, shard.n TO shard.b",
        "CREATE TABLE shard.n (id INT PRIMARY KEY, v INT)",
        "INSERT INTO shard.n VALUES (41, 41)",
        "INSERT INTO shard.b (id, {v}) VALUES (32, 32)",
        "RENAME TABLE shard.old TO shard.older",
        "CREATE TABLE shard.old LIKE shard.b",
        "INSERT INTO shard.old (id, {v}) VALUES (61, 61)",
    ),
    ("shard.a", "shard.b", "shard.c", "shard.n", "shard.old", "shard.older"),
)


@pytest.mark.turns
@pytest.mark.parametrize(
    ("moment", "times", "away"), MOMENTS, indirect=["away"], ids=[moment for moment, _, _ in MOMENTS]
)
def test_a_crash_at_any_moment(away: Away, monkeypatch: pytest.MonkeyPatch, moment: str, times: int) -> None:
    statements, names = EVERYTHING
    _parked_a(away)
    crashes = _Crashes(monkeypatch, moment, times)
    away.execute(*statements)
    later = (f"ALTER TABLE shard.{table} {{alter}}" for table in "acn")
    away.execute(*later, "INSERT INTO shard.c (id, {v}) VALUES (51, 51)")

    def done() -> bool:
        if crashes.crashed.is_set():
            crashes.crashed.clear()
            away.restart()
        return not crashes.crashed.is_set() and has_joined(away.run, away.rig.target)

    until(done, "everything is applied", 300)
    assert crashes.count >= 1
    away.same(*names)


@pytest.mark.parametrize("away", ["pessimistic"], indirect=True)
def test_the_target_of_a_parked_table_is_not_renamed(away: Away) -> None:
    """Only one shard table is in the stream, but its target has the rows of those that are parked too."""
    config = away.rig.config
    config.routes[0].table_pattern = "[!z]*"
    config.routes.add(name="z", schema_pattern="shard*", table_pattern="z*", target_schema="shard", target_table="z")
    away.restart()
    _parked_a(away)
    away.execute("RENAME TABLE shard.b TO shard.z")
    outcome = away.run.join()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.ddl.RENAME_REMAPS


@pytest.mark.parametrize("away", ["pessimistic"], indirect=True)
def test_a_name_that_the_rules_do_not_let_through(away: Away) -> None:
    """Only the parked table stops, and an operator's skip lets it continue."""
    _parked_a(away)
    away.rig.source.execute("CREATE DATABASE other")
    place = away.rig.position()
    away.execute("RENAME TABLE shard.a TO other.q", "INSERT INTO other.q (id, v) VALUES (99, 99)")
    away.execute("ALTER TABLE shard.b {alter}", "ALTER TABLE shard.c {alter}")

    def error() -> str:
        assert not away.run.ended, away.run.join()
        joining = away.run.unit.join_status() if isinstance(away.run.unit, JoiningUnit) else None
        return joining.error.name if joining is not None else ""

    until(lambda: error() == errors.ddl.RENAME_LEAVES.name, "the table has stopped")
    away.run.stop()
    skip = StoredOverride(kind=OverrideKind.SKIP, file=place.file, pos=place.pos)
    away.run = away.rig.begin(away.rig.config, ops=(skip,))
    away.execute("INSERT INTO shard.b (id, v) VALUES (51, 51)")
    until(lambda: has_joined(away.run, away.rig.target), "the others are in the stream")
    assert away.rig.target.query("SELECT id FROM shard.t ORDER BY id") == [(1,), (2,), (3,), (10,), (51,)]
