"""Tests the data source mysql-cdc on both kinds of server: each change once, in order, with exact values.

The tests call the data source as Spark's processes do (tests/support/cdc_stream.py). Spark itself runs it in
test_stream_into_spark.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cdc_stream import Query, Replica, login
from tests.support.database import Database
from tests.support.pair import KINDS, emptied


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Database]]:
    folder = tmp_path_factory.mktemp("cdc")
    made = {name: kind(folder / name, 101 + number) for number, (name, kind) in enumerate(KINDS.items())}
    try:
        for server in made.values():
            server.start()
        yield made
    finally:
        for server in made.values():
            server.stop()


@pytest.fixture(params=KINDS)
def server(servers: dict[str, Database], request: pytest.FixtureRequest) -> Database:
    return emptied(servers[request.param])


def test_changes_from_a_position_and_restart(server: Database) -> None:
    server.execute(
        "CREATE DATABASE d", "CREATE TABLE d.t_1 (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO d.t_1 VALUES (1, 'a')"
    )
    query = Query(login(server) | {"tables": "d.t_*", "start": "latest"})
    query.begin()
    server.execute(
        "INSERT INTO d.t_1 VALUES (2, 'b'), (3, NULL)",
        "UPDATE d.t_1 SET v = 'c' WHERE id = 2",
        "DELETE FROM d.t_1 WHERE id = 3",
    )
    start = query.begin()
    changes = query.drained()
    assert [(change["op"], change["before"], change["after"]) for change in changes] == [
        ("insert", None, {"id": 2, "v": "b"}),
        ("insert", None, {"id": 3, "v": None}),
        ("update", {"id": 2, "v": "b"}, {"id": 2, "v": "c"}),
        ("delete", {"id": 3, "v": None}, None),
    ]
    assert [change["sequence"] for change in changes] == [0, 1, 0, 0]
    again = Query(query.options, start)
    end = again.next_offset()
    assert again.rows(start, end) == changes
    after = Query(query.options, end)
    assert after.drained() == []
    server.execute("INSERT INTO d.t_1 VALUES (4, 'd')")
    assert [change["after"] for change in after.drained()] == [{"id": 4, "v": "d"}]
