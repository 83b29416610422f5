"""Tests random DDLs under random session settings: the target must have the source's structures and values.

``SHARDMERGE_SESSION_BATCHES`` sets how many batches each pair of servers runs (default 1), ``SHARDMERGE_SESSION_SEED``
the first seed, ``SHARDMERGE_SESSION_PAIRS`` the pairs, by the names of tests/versions/servers.py
(``mariadb-11.8>mysql-8.0,…``). A batch is one subtask of some 60 statements, which lags, or not.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pymysql
import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.replicate.unit import ReplicateUnit
from shardmerge.worker.unit.contract import Failed
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.session_statements import Drawer, Drawn, inserts
from tests.integration.session_tables import State, columns_of, differences, state_of
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
class Writer:
    """Draws statements, and keeps those that the source takes."""

    source: Database
    drawer: Drawer
    ran: list[Ran] = field(default_factory=list[Ran])
    _number: int = 0

    def run(self, count: int) -> None:
        watcher = self.source.connect()
        try:
            with watcher.cursor() as cursor:
                tries = 0
                end = len(self.ran) + count
                while len(self.ran) < end and tries < 20 * count:
                    tries += 1
                    self._try(self.drawer.statement(), cursor)
        finally:
            watcher.close()

    def _try(self, drawn: Drawn, watcher: pymysql.cursors.Cursor) -> None:
        watcher.execute(self.source.binlog_end_statement)
        place = watcher.fetchall()[0]
        connection, failed = self.source.connect(SCHEMA), False
        try:
            with connection.cursor() as cursor:
                for each in drawn.settings:
                    try:
                        cursor.execute(each)
                    except pymysql.MySQLError:
                        pass
                try:
                    cursor.execute(drawn.text)
                except pymysql.MySQLError:
                    watcher.execute(self.source.binlog_end_statement)
                    if watcher.fetchall()[0][:2] == place[:2]:
                        return
                    # A statement that has failed, and is in the binlog.
                    failed = True
        finally:
            connection.close()
        known, states = self.drawer.columns, dict[str, State | None]()
        watcher.execute(f"USE {SCHEMA}")
        watcher.execute("SET sql_mode = 'STRICT_ALL_TABLES,ALLOW_INVALID_DATES'")
        watcher.execute("SHOW TABLES")
        tables = [str(table) for (table,) in watcher.fetchall()]
        touched = {drawn.table, *(set(known) ^ set(tables))} - {""}
        for table in sorted(touched):
            columns = columns_of(watcher, SCHEMA, table)
            if not columns:
                known.pop(table, None)
                states[table] = None
                continue
            known[table] = [name for name, *_ in columns if name != "id"]
            plain = [each[:3] for each in columns if each[0] != "id" and "GENERATED" not in each[3]]
            for _ in range(self.drawer.draw.choice((0, 1, 1, 2))):
                self._number += 1
                for insert in inserts(self.drawer.draw, table, plain, self._number):
                    try:
                        watcher.execute(insert)
                    except pymysql.MySQLError:
                        continue
                    break
            states[table] = state_of(watcher, SCHEMA, table)
        if failed:
            drawn = replace(drawn, text=f"/* has failed */ {drawn.text}")
        self.ran.append(Ran((str(place[0]), int(str(place[1]))), drawn, states))


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
    seed: int, servers: tuple[Database, Database], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    began = time.monotonic()
    source, target = map(emptied, servers)
    draw = random.Random(seed)
    mode = draw.choice(("lags", "follows"))
    source.execute(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
    writer = Writer(source, Drawer(draw, source.flavor, SCHEMA))
    with LaneRig(source, target, tmp_path, subtask_config(target)) as rig:
        # The default of a schema is known from the statement that has set it.
        source.execute(f"ALTER DATABASE {SCHEMA} CHARACTER SET {draw.choice(('utf8mb4', 'latin1', 'cp1251'))}")
        run = rig.replicate(1)
        try:
            run.until_synced()
            if mode == "lags":
                run.stop()
                writer.run(STATEMENTS)
                run = rig.replicate(1)
            else:
                writer.run(STATEMENTS)
            until(lambda: run.ended or (isinstance(run.unit, ReplicateUnit) and run.unit.status().synced), "the end")
            error = _error(run)
            found = _compared(writer, target, error)
        finally:
            if not run.ended:
                run.stop()
    pair = request.node.callspec.params["servers"]
    code = "none" if error is None else error.spec.name
    print(
        f"\nRESULT {pair} {mode} seed={seed} statements={len(writer.ran)} applied={found.applied} "
        f"compared={found.tables} stopped={code} seconds={time.monotonic() - began:.1f}"
    )
    if error is not None:
        print(f"STOP {code} {pair} seed={seed}: {error}"[:1500], f"| session: {found.last}"[:1500])
    assert error is None or error.spec is not errors.worker.INTERNAL, f"{error}\n{found.last}"
    assert not found.lines, "\n".join(found.lines)


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


def _compared(writer: Writer, target: Database, error: ShardmergeError | None) -> Compared:
    """Compare the target with the source's states before the statement at which the task has stopped."""
    ran = list(writer.ran)
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
    states = {name: state for each in ran for name, state in each.states.items()}
    connection = target.connect()
    try:
        with connection.cursor() as cursor:
            for name in sorted(states.keys() - unknown):
                found.tables += 1
                if lines := differences(states[name], state_of(cursor, SCHEMA, name)):
                    names = {name}
                    for each in reversed(ran):
                        names |= each.states.keys() if names & each.states.keys() else set()
                    own = [f"  ran: {each}" for each in ran if names & each.states.keys()]
                    found.lines += [f"table {name}:", *lines, *own]
    finally:
        connection.close()
    return found
