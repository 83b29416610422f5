"""Tests expression filters on real servers: equal for history and changes, and after kills (I9)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2 as pb
from tests.integration.lane_rig import LaneRig
from tests.integration.snapshot_rig import subtask_config
from tests.support.database import Database
from tests.support.kills import VICTIMS
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.wait import until
from tests.support.world import World

CONDITIONS = {
    "here": "n > 2 AND d <> 1.5 OR n IS NULL",
    "there": "v = 'a' OR LENGTH(v) > 2 OR n = -1",
}
NUMBERS = [None, -1, 0, 1, 2, 3, 2147483647]
DECIMALS = [None, "-0.01", "0", "1.5", "1.50", "99999999.99"]
TEXTS = [None, "", "a", "A", "a ", "\u00e1", "aa", "x'y", "\\", "1e0"]


def filled(seed: int, rows: int) -> list[tuple[object, ...]]:
    pick = random.Random(seed)
    return [(key, pick.choice(NUMBERS), pick.choice(DECIMALS), pick.choice(TEXTS)) for key in range(rows)]


@pytest.mark.parametrize("flavor", [MariaDB, MySQL])
@pytest.mark.parametrize("position", ["auto", "watermark"])
def test_history_and_changes_leave_the_same_rows_out(flavor: type[Database], position: str, tmp_path: Path) -> None:
    source, target = flavor(tmp_path / "source", 61), flavor(tmp_path / "target", 62)
    try:
        source.start()
        target.start()
        leave_the_same_rows_out(source, target, position, tmp_path)
    finally:
        source.stop()
        target.stop()


def leave_the_same_rows_out(source: Database, target: Database, position: str, directory: Path) -> None:
    columns = "n INT, d DECIMAL(10,2), v VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
    source.execute("CREATE DATABASE shard_1")
    filters: list[pb.ExpressionFilter] = []
    for name, condition in CONDITIONS.items():
        for phase, key in (("old", "PRIMARY KEY"), ("new", "PRIMARY KEY"), ("oldest", ""), ("newest", "")):
            source.execute(f"CREATE TABLE shard_1.{name}_{phase} (id INT {key}, {columns})")
            filters.append(
                pb.ExpressionFilter(name="f", schema="shard_1", table=f"{name}_{phase}", insert_value=condition)
            )
    rows = filled(7, 600)

    def insert(*phases: str) -> None:
        with source.connect() as session, session.cursor() as cursor:
            for name in CONDITIONS:
                for phase in phases:
                    cursor.executemany(f"INSERT INTO shard_1.{name}_{phase} VALUES (%s, %s, %s, %s)", rows)
            session.commit()

    insert("old", "oldest")
    config = subtask_config(target, threads=2, chunk_rows=100, position=position)
    config.expression_filters.extend(filters)
    with LaneRig(source, target, directory, config) as rig:
        run = rig.begin(config)
        run.until_synced()
        insert("new", "newest")
        run.until_synced()
        last = f"SELECT COUNT(*) FROM shard_1.{list(CONDITIONS)[-1]}_newest"
        left_there = len(left(source, "there_newest", CONDITIONS["there"]))
        until(lambda: int(str(target.query(last)[0][0])) == left_there or run.ended, "the new rows are applied")
        run.stop()
    for name, condition in CONDITIONS.items():
        for phase in ("old", "new", "oldest", "newest"):
            expected = left(source, f"{name}_{phase}", condition)
            assert 50 < len(expected) < 550
            assert left(target, f"{name}_{phase}", "FALSE") == expected


def left(server: Database, table: str, condition: str) -> list[object]:
    return list(server.query(f"SELECT * FROM shard_1.{table} WHERE ({condition}) IS NOT TRUE ORDER BY id"))


# -- kills

GROUPS = {"numbers": "grp = 3", "words": "name LIKE 'x%'", "both": "grp IN (1, 3) AND name IS NOT NULL"}


@pytest.mark.turns
@pytest.mark.parametrize(
    "victim", ["tasks", *(pytest.param(victim, marks=pytest.mark.grid) for victim in ("worker", "target"))]
)
def test_a_kill_between_filtered_changes(world: World, victim: str) -> None:
    """Columns that never change decide whether a row is left out, so that the expected rows are known."""
    task = f"filtered_{victim}"
    killed_between_changes(world, victim, task, file(world, task))
    server = world.sources[0][1]
    for table, condition in GROUPS.items():
        asked = f"SELECT * FROM {task}.{table} WHERE ({condition}) IS NOT TRUE ORDER BY id"
        expected = server.query(asked)
        assert len(expected) > 50
        assert world.target.query(f"SELECT * FROM {task}.{table} ORDER BY id") == expected
    world.cluster.dmctl("stop-task", task)


def killed_between_changes(world: World, victim: str, task: str, text: str) -> None:
    """Copy and change the tables of GROUPS in the schema ``task``, with a task file, until everything is applied."""
    server = world.sources[0][1]
    server.execute(f"CREATE DATABASE {task}")
    for table in GROUPS:
        server.execute(
            f"CREATE TABLE {task}.{table} (id INT PRIMARY KEY, grp INT, name VARCHAR(10), v INT) CHARSET utf8mb4"
        )
        server.execute(f"INSERT INTO {task}.{table} VALUES " + ", ".join(row(number) for number in range(200)))
    with writing(server, task) as go_on:
        world.cluster.start_task(text)
        world.cluster.wait_replicating(task)
        for _ in range(2):
            go_on(150)
            world.cluster.hooks.hold("lane0.before_commit")
            world.cluster.hooks.reached("lane0.before_commit")
            try:
                VICTIMS[victim](world)
            finally:
                world.cluster.hooks.release("lane0.before_commit")
            go_on(150)
    world.settle([task])


def row(number: int) -> str:
    name = "NULL" if number % 7 == 0 else f"'{'xyX'[number % 3]}{number % 5}'"
    return f"({number}, {number % 5}, {name}, 0)"


def file(world: World, task: str) -> str:
    rules = [
        f'  {table}: {{schema: {task}, table: {table}, insert-value-expr: "{condition}"}}'
        for table, condition in GROUPS.items()
    ]
    return "\n".join(
        [
            *world.head_of_task(task, f"expression-filters: [{', '.join(GROUPS)}]"),
            f"block-allow-list: {{own: {{do-dbs: [{task}]}}}}",
            "expression-filter:",
            *rules,
        ]
    )


@contextmanager
def writing(server: Database, task: str) -> Generator[Callable[[int], None]]:
    """Write changes in one session until the block ends; the provided function waits for so many more."""
    stop = threading.Event()
    done = [0]

    def write() -> None:
        pick = random.Random(5)
        fresh = 200
        with server.connect() as session, session.cursor() as cursor:
            while not stop.is_set():
                for table in GROUPS:
                    known = pick.randrange(fresh)
                    cursor.execute(f"UPDATE {task}.{table} SET v = v + 1 WHERE id = {known}")
                    cursor.execute(f"INSERT INTO {task}.{table} VALUES {row(fresh)}")
                    if pick.random() < 0.5:
                        cursor.execute(f"DELETE FROM {task}.{table} WHERE id = {pick.randrange(fresh)}")
                session.commit()
                fresh += 1
                done[0] += 1
                stop.wait(0.002)

    thread = threading.Thread(target=write)
    thread.start()

    def go_on(changes: int) -> None:
        wanted = done[0] + changes
        until(lambda: done[0] >= wanted, f"{changes} more rounds of changes")

    try:
        yield go_on
    finally:
        stop.set()
        thread.join(300)
