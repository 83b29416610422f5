"""Tests that dmctl compare judges tables without a key of two sources while writers change both."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import cast

import pytest

from tests.support.cluster import Compared, Json
from tests.support.database import Database
from tests.support.world import World

_ROWS = 20_000
_QUIET_IDS = 100
"""Rows with ids up to this one are not touched by the writers."""
_PLACES = (((1, 1), (2, 2)), ((1, 2), (2, 1)))
"""Of each source: (schema, table). Neither the schema nor the table shows the source, both do, crosswise."""
_EXTRACT = "    target-table: orders\n"
_SOURCE = '    extract-source: {source-regexp: "(.*)", target-column: c_source}\n'
_NAMES = (
    '    extract-schema: {schema-regexp: "_([0-9]+)$", target-column: c_schema}\n'
    '    extract-table: {table-regexp: "order_(.*)", target-column: c_table}\n'
)
MODES = ("partition id", "extract-source", "extract-schema and extract-table")


def _row(mode: str, source: int, number: int) -> str:
    """The condition of a row of the first shard table of a source, at the target; ``source`` 2: of no source."""
    schema, table = _PLACES[source][0] if source < 2 else (9, 9)
    if mode == "partition id":
        return f"id = ({schema} << 56) + ({table} << 48) + {number}"
    if mode == "extract-source":
        return f"id = {number} AND c_source = '{('mysql-01', 'mysql-02', 'nobody')[source]}'"
    return f"id = {number} AND c_schema = '{schema:02d}' AND c_table = '{table:02d}'"


def _task(world: World, name: str, mode: str) -> str:
    text = world.family(name, tables=2).task()
    for number in (1, 2):
        text = text.replace(f'arguments: ["{number}",', 'arguments: ["",')
    if mode == "partition id":
        return text
    text = text.replace(_EXTRACT, _EXTRACT + (_SOURCE if mode == "extract-source" else _NAMES))
    lines = [line for line in text.partition("column-mappings:")[0].splitlines() if "column-mapping-rules" not in line]
    return "\n".join(lines) + "\n"


def _create(server: Database, name: str, places: Sequence[tuple[int, int]]) -> list[str]:
    tables = [f"{name}_{schema:02d}.order_{table:02d}" for schema, table in places]
    for table in tables:
        server.execute(
            f"CREATE DATABASE {table.partition('.')[0]}",
            f"USE {table.partition('.')[0]}",  # of the sequence
            f"CREATE TABLE {table} (id INT NOT NULL, n INT NULL, note VARCHAR(60) NULL, INDEX (id))",
            f"INSERT INTO {table} SELECT seq, seq % 7, CONCAT('row ', seq % 50) FROM seq_1_to_{_ROWS}",
        )
    return tables


def _write(server: Database, tables: Sequence[str], seed: int, over: threading.Event) -> None:
    dice = random.Random(seed)
    connection = server.connect()
    with connection.cursor() as cursor:
        for count in itertools.count():
            if over.wait(0.004):
                break
            table, one = dice.choice(tables), dice.randint(_QUIET_IDS + 1, _ROWS)
            statement = (
                f"INSERT INTO {table} VALUES ({one}, {count}, 'written')",
                f"UPDATE {table} SET note = 'updated {count}' WHERE id = {one} LIMIT 1",
                f"DELETE FROM {table} WHERE id = {one} LIMIT 1",
            )[count % 3]
            cursor.execute(statement)
    connection.close()


@contextmanager
def _writers(world: World, tables: Sequence[Sequence[str]]) -> Generator[None]:
    over = threading.Event()
    threads = [
        threading.Thread(target=_write, args=(server, names, seed, over))
        for seed, ((_, server), names) in enumerate(zip(world.sources, tables, strict=True))
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _counts(done: Compared) -> dict[str, tuple[int, int, int]]:
    """Of each source: how many rows are missing, extra and different."""
    tables = cast("list[Json]", done.answer.json["tables"])
    assert {(table["notCompared"], str(table["unjudged"])) for table in tables} == {("", "0")}, done.answer.text
    return {
        str(table["source"]): (int(str(table["missing"])), int(str(table["extra"])), int(str(table["different"])))
        for table in tables
    }


@pytest.mark.parametrize("mode", MODES)
def test_sources_are_judged_under_writers_where_their_rows_are_known(world: World, mode: str) -> None:
    name = f"cmp_own_{MODES.index(mode)}"
    tables = [_create(server, name, places) for (_, server), places in zip(world.sources, _PLACES, strict=True)]
    world.cluster.start_task(_task(world, name, mode))
    world.cluster.wait_replicating(name)
    merged, target = f"{name}.orders", world.target
    with _writers(world, tables):
        done = world.cluster.compare(name, check=False)
        assert (done.answer.code, _counts(done)) == (0, {"mysql-01": (0, 0, 0), "mysql-02": (0, 0, 0)})

        # A row of the first source twice, another value in one of the second source.
        extra = _row(mode, 0, 5)
        target.execute(
            f"INSERT INTO {merged} SELECT * FROM {merged} WHERE {extra} LIMIT 1",
            f"UPDATE {merged} SET note = 'ROW 7' WHERE {_row(mode, 1, 7)} LIMIT 1",
        )
        done = world.cluster.compare(name, check=False)
        assert (done.answer.code, _counts(done)) == (1, {"mysql-01": (0, 1, 0), "mysql-02": (0, 0, 1)})

        # One row of the second source less, and one that no source can have.
        stray = _row(mode, 2, 5)
        values = [part.partition(" = ") for part in stray.split(" AND ")]
        target.execute(
            f"DELETE FROM {merged} WHERE {extra} LIMIT 1",
            f"DELETE FROM {merged} WHERE {_row(mode, 1, 7)} LIMIT 1",
            f"INSERT INTO {merged} ({', '.join(column for column, _, _ in values)}) "
            f"VALUES ({', '.join(value for _, _, value in values)})",
        )
        done = world.cluster.compare(name, check=False)
        assert (done.answer.code, _counts(done)) == (1, {"mysql-01": (0, 1, 0), "mysql-02": (1, 0, 0)})
    world.settle([name])
    [[stray_rows]] = target.query(f"SELECT COUNT(*) FROM {merged} WHERE {stray}")
    [[lost_rows]] = target.query(f"SELECT COUNT(*) FROM {merged} WHERE {_row(mode, 1, 7)}")
    assert (stray_rows, lost_rows) == (1, 1 if mode == "extract-source" else 0)
    at_sources = sum(
        int(str(server.query(f"SELECT COUNT(*) FROM {table}")[0][0]))
        for (_, server), names in zip(world.sources, tables, strict=True)
        for table in names
    )
    # One is missing, one is extra.
    assert target.query(f"SELECT COUNT(*) FROM {merged}") == [(at_sources,)]
    world.cluster.dmctl("stop-task", name)
