"""Tests random DDLs under random session settings: the target must have the source's structures and values.

``SHARDMERGE_SESSION_BATCHES`` sets how many batches each pair of servers runs (default 1), ``SHARDMERGE_SESSION_SEED``
the first seed, ``SHARDMERGE_SESSION_PAIRS`` the pairs, by the names of tests/versions/servers.py
(``mysql-8.0>mysql-9.7,…``; a MySQL and a MariaDB are compared in what both have), ``SHARDMERGE_SESSION_MODES`` what a
batch may be (``lags,follows`` unless set; also ``copies``, ``pessimistic``, ``optimistic``). A batch is one subtask of
some 60 statements. A stop must have a code; what was applied before it is compared.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pymysql
import pytest

from shardmerge.proto import config_pb2, errors, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.replicate.join.unit import JoiningUnit
from shardmerge.worker.unit.contract import Failed
from tests.integration.lane_rig import LaneRig, Run, has_joined
from tests.integration.local_locks import LocalLocks
from tests.integration.session_statements import Drawer, Drawn, inserts
from tests.integration.session_tables import State, columns_of, differences, quoted, state_of
from tests.integration.snapshot_rig import subtask_config
from tests.support.database import Database
from tests.support.pair import emptied
from tests.support.wait import until
from tests.versions.servers import server

pytestmark = pytest.mark.turns

BATCHES = int(os.environ.get("SHARDMERGE_SESSION_BATCHES", "1"))
FIRST = int(os.environ.get("SHARDMERGE_SESSION_SEED", "1"))
PAIRS = os.environ.get("SHARDMERGE_SESSION_PAIRS", "mariadb-10.11>mariadb-10.11,mysql-9.7>mysql-9.7").split(",")
STATEMENTS = int(os.environ.get("SHARDMERGE_SESSION_STATEMENTS", "60"))
SCHEMA = "shard"
_OF_SHARDS = {
    "pessimistic": config_pb2.SHARD_MODE_PESSIMISTIC,
    "optimistic": config_pb2.SHARD_MODE_OPTIMISTIC,
}
MODES = os.environ.get("SHARDMERGE_SESSION_MODES", "lags,follows").split(",")
_PLACE = re.compile(r"\((\S+\.\d+), (\d+)\)")


@dataclass(frozen=True)
class Ran:
    """A statement that the source has run at ``place``, with the rows inserted after it. ``states``: of its tables
    after that; None: dropped."""

    place: tuple[str, int]
    drawn: Drawn
    states: dict[str, State | None]

    def __str__(self) -> str:
        return "; ".join((*self.drawn.settings, self.drawn.text))


@dataclass
class Trial:
    """Runs statements in a schema of a server of the other family first: a merge can have only those that both take."""

    server: Database
    _before: dict[str, str] = field(default_factory=dict[str, str])

    def takes(self, drawn: Drawn) -> bool:
        with closing(self.server.connect("trial")) as connection, connection.cursor() as cursor:
            self._before = self._tables(cursor)
            try:
                for each in drawn.settings:
                    # The other settings are those of one family.
                    with suppress(*(() if "sql_mode" in each else (pymysql.MySQLError,))):
                        cursor.execute(each)
                cursor.execute(re.sub(rf"\b{SCHEMA}\b", "trial", drawn.text))
            except pymysql.MySQLError:
                return False
        return True

    def undo(self) -> None:
        """Let the tables be as they were before the statement."""
        with closing(self.server.connect("trial")) as connection, connection.cursor() as cursor:
            now = self._tables(cursor)
            cursor.execute("SET foreign_key_checks = 0")
            for name in {name for name, text in now.items() if self._before.get(name) != text}:
                cursor.execute(f"DROP TABLE {quoted(name)}")
            for text in (text for name, text in self._before.items() if now.get(name) != text):
                cursor.execute(text)

    @staticmethod
    def _tables(cursor: pymysql.cursors.Cursor) -> dict[str, str]:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
        cursor.execute("SHOW TABLES")
        found: dict[str, str] = {}
        for (name,) in cursor.fetchall():
            cursor.execute(f"SHOW CREATE TABLE {quoted(str(name))}")
            found[str(name)] = str(cursor.fetchall()[0][1])
        return found


@dataclass
class Writer:
    """Draws statements, and keeps those that the source takes."""

    source: Database
    drawer: Drawer
    trial: Trial | None = None
    """If the target is of the other family."""
    ran: list[Ran] = field(default_factory=list[Ran])
    _number: int = 0

    def run(self, count: int) -> None:
        with closing(self.source.connect()) as watcher, watcher.cursor() as cursor:
            end = len(self.ran) + count
            for _ in range(20 * count):
                if len(self.ran) >= end:
                    break
                self._try(self.drawer.statement(), cursor)

    def _try(self, drawn: Drawn, watcher: pymysql.cursors.Cursor) -> None:
        if self.trial is not None and not self.trial.takes(drawn):
            self.trial.undo()
            return
        place = self.run_one(drawn, watcher)
        if place is None:
            if self.trial is not None:
                self.trial.undo()
            return
        known, states = self.drawer.columns, dict[str, State | None]()
        tables = self._tables(watcher)
        touched = {drawn.table, *(set(known) ^ set(tables))} - {""}
        for table in sorted(touched):
            known.pop(table, None)
            if table in tables:
                self.fill(table, watcher, self.drawer.draw.choice((0, 1, 1, 2)))
                states[table] = self.state(watcher, table)
            else:
                states[table] = None
        self.ran.append(Ran(place, drawn, states))

    def run_one(self, drawn: Drawn, watcher: pymysql.cursors.Cursor) -> tuple[str, int] | None:
        """Run the statement in its session; return its place, None if it is not in the binlog."""
        place = self._end(watcher)
        with closing(self.source.connect(SCHEMA)) as connection, connection.cursor() as cursor:
            for each in drawn.settings:
                with suppress(pymysql.MySQLError):
                    cursor.execute(each)
            try:
                cursor.execute(drawn.text)
            except pymysql.MySQLError:
                # MariaDB logs a CREATE OR REPLACE that has failed after it has dropped the table.
                return None if self._end(watcher) == place else place
        return place

    def state(self, watcher: pymysql.cursors.Cursor, table: str) -> State | None:
        return state_of(watcher, SCHEMA, table, across=self.trial is not None)

    def fill(self, table: str, watcher: pymysql.cursors.Cursor, rows: int) -> None:
        """Learn the table's columns, and insert rows."""
        columns = columns_of(watcher, SCHEMA, table)
        self.drawer.columns[table] = [name for name, *_ in columns if name not in ("id", "u")]
        plain = [each[:3] for each in columns if each[0] != "id" and "GENERATED" not in each[3]]
        for _ in range(rows):
            self._number += 1
            for insert in inserts(self.drawer.draw, table, plain, self._number):
                with suppress(pymysql.MySQLError):
                    watcher.execute(insert)
                    break

    def _tables(self, watcher: pymysql.cursors.Cursor) -> set[str]:
        watcher.execute(f"USE {SCHEMA}")
        watcher.execute("SET sql_mode = 'STRICT_ALL_TABLES,ALLOW_INVALID_DATES'")
        watcher.execute("SHOW TABLES")
        return {str(table) for (table,) in watcher.fetchall()}

    def _end(self, watcher: pymysql.cursors.Cursor) -> tuple[str, int]:
        watcher.execute(self.source.binlog_end_statement)
        file, position, *_ = watcher.fetchall()[0]
        return str(file), int(str(position))


_SHARDS = ("1", "2")


@dataclass
class ShardWriter(Writer):
    """Runs each statement on two shard tables of a target table, whose name ends with m, some later on the second.
    ``broken``: targets whose second shard table did not take a statement that the first has run."""

    broken: set[str] = field(default_factory=set[str])
    _later: list[Drawn] = field(default_factory=list[Drawn])

    def run(self, count: int) -> None:
        super().run(count)
        with closing(self.source.connect()) as watcher, watcher.cursor() as cursor:
            while self._later:
                self._second(cursor)

    def _try(self, drawn: Drawn, watcher: pymysql.cursors.Cursor) -> None:
        if any(each.table == drawn.table for each in self._later) or self.drawer.draw.random() < 0.5:
            while self._later:
                self._second(watcher)
        tables = self._tables(watcher)
        if drawn.table in self.broken or (drawn.table in self.drawer.columns and "CREATE TABLE" in drawn.text):
            return
        place = self.run_one(_of_shard(drawn, 0), watcher)
        if place is None:
            return
        first, _ = _names(drawn.table)
        self.fill(first, watcher, 1)
        self.drawer.columns[drawn.table] = self.drawer.columns[first]
        self.ran.append(Ran(place, _of_shard(drawn, 0), {drawn.table: None}))
        others = self.drawer.again() if self.drawer.draw.random() < 0.15 and tables else ()
        self._later.append(replace(drawn, settings=(*drawn.settings, *others)))

    def _second(self, watcher: pymysql.cursors.Cursor) -> None:
        drawn = self._later.pop(0)
        self._tables(watcher)
        place = self.run_one(_of_shard(drawn, 1), watcher)
        if place is None:
            self.broken.add(drawn.table)
            return
        self.fill(_names(drawn.table)[1], watcher, 1)
        self.ran.append(Ran(place, _of_shard(drawn, 1), {drawn.table: None}))

    def states(self) -> dict[str, tuple[State | None, State | None]]:
        """The states of both shard tables, by their target."""
        with closing(self.source.connect()) as watcher, watcher.cursor() as cursor:
            return {
                name: tuple(  # pyright: ignore
                    state_of(cursor, SCHEMA, shard, ("id",), across=self.trial is not None) for shard in _names(name)
                )
                for name in self.drawer.tables
                if name in self.drawer.columns and name not in self.broken
            }


def _names(table: str) -> tuple[str, str]:
    first, second = (table.replace("_m", f"_{shard}") for shard in _SHARDS)
    return first, second


def _of_shard(drawn: Drawn, number: int) -> Drawn:
    return replace(drawn, text=re.sub(r"\b(zq\d_)m\b", rf"\g<1>{_SHARDS[number]}", drawn.text))


@pytest.fixture(scope="module", params=PAIRS)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Database, Database]]:
    folder = tmp_path_factory.mktemp("random_sessions")
    one, other = request.param.split(">")
    source, target = server(one, folder / "source", 101), server(other, folder / "target", 102)
    try:
        yield source.start(), target.start()
    finally:
        source.stop()
        target.stop()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + BATCHES))
def test_random_statements_in_random_sessions(
    seed: int,
    servers: tuple[Database, Database],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began = time.monotonic()
    source, target = map(emptied, servers)
    draw = random.Random(seed)
    mode = draw.choice(MODES)
    source.execute(f"CREATE DATABASE {SCHEMA}")
    batch = Batch(source, target, draw, mode)
    if mode == "copies":
        monkeypatch.setattr(failpoints, "hit", _slowed)
    with LaneRig(source, target, tmp_path, batch.config()) as rig:
        # The default of a schema is known from the statement that has set it.
        charset = draw.choice(("utf8mb4", "latin1", "cp1251"))
        source.execute(f"ALTER DATABASE {SCHEMA} CHARACTER SET {charset}")
        if batch.writer.trial is not None:
            target.execute(f"CREATE DATABASE trial CHARACTER SET {charset}")
        outcome = batch.run(rig)
    found = batch.compared(outcome)
    pair = request.node.callspec.params["servers"]
    code = "none" if outcome is None else outcome.spec.name
    print(
        f"\nRESULT {pair} {mode} seed={seed} statements={len(batch.writer.ran)} applied={found.applied} "
        f"compared={found.tables} stopped={code} seconds={time.monotonic() - began:.1f}"
    )
    if batch.failed:
        print(f"COPIES {batch.failed} {pair} {mode} seed={seed}")
    if outcome is not None:
        print(f"STOP {code} {pair} {mode} seed={seed}: {outcome}"[:1500], f"| session: {found.last}"[:1500])
    assert outcome is None or outcome.spec is not errors.worker.INTERNAL, f"{outcome}\n{found.last}"
    assert not found.lines, "\n".join(found.lines)


def _slowed(moment: str) -> None:
    if moment == "snapshot.before_commit":
        threading.Event().wait(0.05)


@dataclass
class Batch:
    """One subtask in ``mode``, and what is written at its source."""

    source: Database
    target: Database
    draw: random.Random
    mode: str
    writer: Writer = field(init=False)

    def __post_init__(self) -> None:
        trial = Trial(self.target) if self.source.flavor != self.target.flavor else None
        if self.mode in _OF_SHARDS:
            drawer = Drawer(self.draw, self.source.flavor, SCHEMA, ("zq0_m", "zq1_m", "zq2_m"), of_shards=True)
            self.writer = ShardWriter(self.source, drawer, trial)
        else:
            self.writer = Writer(self.source, Drawer(self.draw, self.source.flavor, SCHEMA), trial)

    def config(self) -> config_pb2.SubTaskConfig:
        config = subtask_config(self.target, threads=2, chunk_rows=25)
        if self.mode in _OF_SHARDS:
            config.shard_mode = _OF_SHARDS[self.mode]
            for number in range(3):
                names = {"schema_pattern": SCHEMA, "table_pattern": f"zq{number}_*"}
                config.routes.add(name=f"r{number}", **names, target_schema=SCHEMA, target_table=f"zq{number}_m")
                config.column_mappings.add(
                    name=f"m{number}",
                    **names,
                    source_column="id",
                    target_column="id",
                    expression="partition id",
                    arguments=["1", "", f"zq{number}", "_"],
                )
        return config

    def run(self, rig: LaneRig) -> ShardmergeError | None:
        """Let the source run the statements, and the subtask apply them; return the error that has stopped it."""
        if self.mode in _OF_SHARDS:
            rig.locks = LocalLocks()
        if self.mode == "copies":
            self.writer.run(8)
            with closing(self.source.connect()) as watcher, watcher.cursor() as cursor:
                cursor.execute(f"USE {SCHEMA}")
                cursor.execute("SET sql_mode = 'STRICT_ALL_TABLES,ALLOW_INVALID_DATES'")
                for name in tuple(self.writer.drawer.columns):
                    self.writer.fill(name, cursor, 80)
                states = {name: self.writer.state(cursor, name) for name in self.writer.drawer.columns}
            self.writer.ran = [Ran(("", 0), Drawn("", "before"), states)]
            run = rig.begin(rig.config)
            self.writer.run(12)
        else:
            run = rig.replicate(1)
            run.until_joined(self.target)  # the unit differs by mode
            if self.mode == "follows" or (self.mode in _OF_SHARDS and self.draw.random() < 0.5):
                self.writer.run(STATEMENTS)
            else:
                run.stop()
                self.writer.run(STATEMENTS)
                run = rig.replicate(1)
        try:
            self._until_applied(rig, run)
            return _error(run)
        finally:
            if not run.ended:
                run.stop()

    def _until_applied(self, rig: LaneRig, run: Run) -> None:
        end = self.source.binlog_end()

        def applied() -> bool:
            reached = rig.relay.head().position.reaches(SourcePosition(*end))
            self.failed = _failed_copies(run)
            joined = bool(self.failed) or has_joined(run, self.target)
            return run.ended or (reached and joined and not self._parked(rig))

        try:
            until(applied, "everything is applied", 60 if self.mode in _OF_SHARDS else 300, every=0.25)
        except AssertionError:
            if not (parked := self._parked(rig)):
                raise
            self.waiting = {f"{name[:-1]}m" for name in parked}
            print("PARKED", rig.locks.record)  # pyright: ignore

    waiting: set[str] = field(default_factory=set[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Tables of which the rest of the history waits for an operator, each with the error's code."""

    def _parked(self, rig: LaneRig) -> set[str]:
        return rig.locks.parked() if isinstance(rig.locks, LocalLocks) else set()

    def compared(self, error: ShardmergeError | None) -> Compared:
        """Compare the target with the source's states before the statement at which the task has stopped."""
        ran = list(self.writer.ran)
        if error is not None:
            place = _PLACE.search(error.message)
            if place is None:
                return Compared(0, last="(no position)")
            at = (place.group(1), int(place.group(2)))
            ran = [each for each in ran if each.place <= at]
        found = Compared(len(ran) - (error is not None))
        unknown: set[str] = set()
        if error is not None and ran:
            found.last = str(ran[-1])
            unknown = set(ran[-1].states)
        unknown |= self.failed.keys()
        if isinstance(self.writer, ShardWriter):
            if error is None:
                self._compare_shards(self.writer, found)
            return found
        states = {name: state for each in ran for name, state in each.states.items()}
        with closing(self.target.connect()) as connection, connection.cursor() as cursor:
            for name in sorted(states.keys() - unknown):
                found.tables += 1
                if lines := differences(
                    states[name], state_of(cursor, SCHEMA, name, across=self.writer.trial is not None)
                ):
                    names = {name}
                    for each in reversed(ran):
                        names |= each.states.keys() if names & each.states.keys() else set()
                    own = [f"  ran: {each}" for each in ran if names & each.states.keys()]
                    found.lines += [f"table {name}:", *lines, *own]
        return found

    def _compare_shards(self, writer: ShardWriter, found: Compared) -> None:
        with closing(self.target.connect()) as connection, connection.cursor() as cursor:
            for name, (one, other) in writer.states().items():
                if one is None or other is None or name in self.waiting:
                    continue
                found.tables += 1
                definition = tuple(line for line in one if not line.startswith("("))
                rows = sorted(line for line in (*one, *other) if line.startswith("("))
                merged = state_of(cursor, SCHEMA, name, ("id",), across=writer.trial is not None)
                lines = differences((*definition, *rows), merged)
                lines += [f"shards: {line}" for line in other if not line.startswith("(") and line not in one]
                if lines:
                    own = [f"  ran: {each}" for each in writer.ran if name in each.states]
                    found.lines += [f"target {name}:", *lines, *own]


def _failed_copies(run: Run) -> dict[str, str]:
    """The tables whose copy an operator has to help, if no other copy continues."""
    statuses = run.unit.copy_status() if isinstance(run.unit, JoiningUnit) else ()
    if any(each.phase != "failed" or each.retry_seconds for each in statuses):
        return {}
    return {name.split(".", 1)[1]: str(each.error.code) for each in statuses for name in each.tables}


def _error(run: Run) -> ShardmergeError | None:
    if not run.ended:
        return None
    outcome = run.join()
    assert isinstance(outcome, Failed), outcome
    return outcome.error


@dataclass
class Compared:
    """``applied``: statements before the stop. ``last``: the one at which it stopped."""

    applied: int
    tables: int = 0
    lines: list[str] = field(default_factory=list[str])
    last: str = ""
