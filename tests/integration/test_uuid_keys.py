"""Tests keys of MariaDB's UUID and INET types: cut into chunks in the server's order, which may differ from byte
order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.rows.literal_text import literals_of
from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.key_order import bound_columns, key_bound
from shardmerge.worker.snapshot.source.chunk_source import ChunkSource
from shardmerge.worker.snapshot.table_planner import TablePlanner
from tests.support.capture import described
from tests.support.mariadb import MariaDB

_UUID = (
    "INSERT(INSERT(MD5(seq), 13, 1, ELT(1 + seq MOD 7, '1', '2', '3', '4', '5', '6', '7')), "
    "17, 1, ELT(1 + seq MOD 4, '8', '9', 'a', 'b'))"
)
"""UUIDs of the versions 1 to 7."""

TABLES = {
    "uuid": ("u UUID PRIMARY KEY, v INT", f"{_UUID}, seq"),
    "behind a number": ("n INT, u UUID, PRIMARY KEY (n, u)", f"seq MOD 3, {_UUID}"),
    "before a number": ("u UUID, n INT, PRIMARY KEY (u, n)", f"{_UUID}, seq MOD 3"),
    "inet6": ("i INET6 PRIMARY KEY, v INT", "UNHEX(MD5(seq)), seq"),
    "inet4": ("i INET4 PRIMARY KEY, v INT", "LEFT(UNHEX(MD5(seq)), 4), seq"),
}
ROWS = 1000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    server = MariaDB(tmp_path_factory.mktemp("uuid") / "source", 1)
    try:
        yield server.start()
    finally:
        server.stop()


def filled(server: MariaDB, columns: str, values: str) -> TablePlan:
    server.execute("DROP DATABASE IF EXISTS d", "CREATE DATABASE d", "USE d", f"CREATE TABLE t ({columns})",
                   f"INSERT INTO t SELECT {values} FROM seq_1_to_{ROWS}", "ANALYZE TABLE t")  # fmt: skip
    return described(server, "d", "t")


def planned(server: MariaDB, plan: TablePlan) -> list[Chunk]:
    session = connect(Endpoint(server.host, server.port, "root"), Side.SOURCE, name="s1", raw=True)
    try:
        return list(TablePlanner(session, plan, 50).chunks())
    finally:
        session.close()


@pytest.mark.parametrize(("columns", "values"), TABLES.values(), ids=TABLES.keys())
def test_each_row_is_in_one_chunk_where_its_key_is_placed(server: MariaDB, columns: str, values: str) -> None:
    plan = filled(server, columns, values)
    chunks = planned(server, plan)
    assert len(chunks) >= ROWS // 101
    bounded = bound_columns(plan.table)
    bounds = [chunk.upper for chunk in chunks[:-1]]
    seen: list[tuple[bytes, ...]] = []
    reader = ChunkSource(Endpoint(server.host, server.port, "root"), "s1")
    try:
        for chunk in chunks:
            with reader.exact(plan, chunk, lambda low, end: True) as (_, batches):
                found = [literals_of(row) for batch in batches for row in batch]
            keys = [tuple(row[index] for index in plan.key) for row in found]
            places = reader.places(bounded, bounds, [key_bound(bounded, key) for key in keys])
            assert places == [chunk.number] * len(found)
            assert reader.in_chunk(plan, chunk, keys) == [True] * len(keys)
            seen += found
    finally:
        reader.close()
    assert len(seen) == len(set(seen)) == ROWS


@pytest.mark.parametrize("name", ["uuid", "behind a number", "before a number"])
def test_rows_that_mariadb_does_not_find_again_are_reported(server: MariaDB, name: str) -> None:
    """With random bytes, the server shows for one row in sixteen a UUID by which it does not find the row."""
    columns, values = TABLES[name]
    plan = filled(server, columns, values.replace(_UUID, "UNHEX(MD5(seq))"))
    with pytest.raises(ShardmergeError) as caught:
        planned(server, plan)
    assert caught.value.spec.name == "keys-not-found-by-value"
    ((found,),) = server.query(
        "SELECT COUNT(*) FROM d.t AS a WHERE EXISTS (SELECT 1 FROM d.t AS b WHERE b.u = CAST(a.u AS BINARY(16)))"
    )
    assert f"{ROWS - int(str(found))} row(s) of d.t" in caught.value.message
