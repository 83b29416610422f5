"""Tests that the SQL which splits a merged id has the function's result, on both kinds of servers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from shardmerge.proto.config.rules.partition_id import Parts, partition_of, parts_sql, shard_sql
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL


@pytest.fixture(scope="module", params=[MariaDB, MySQL], ids=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    kind: type[Database] = request.param
    made = kind(tmp_path_factory.mktemp("parts") / "target", server_id=9).start()
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("kind", ["BIGINT", "BIGINT UNSIGNED"])
def test_sql_and_function_agree(server: Database, kind: str) -> None:
    pick = Random(7)
    ids = sorted({0, 1, (1 << 63) - 1, *(pick.getrandbits(63) for _ in range(200)), *(1 << at for at in range(63))})
    server.execute(
        "CREATE OR REPLACE DATABASE parts" if isinstance(server, MariaDB) else "DROP DATABASE IF EXISTS parts",
        "CREATE DATABASE IF NOT EXISTS parts",
        f"CREATE TABLE parts.t (id {kind} PRIMARY KEY)",
        "INSERT INTO parts.t VALUES " + ",".join(f"({number})" for number in ids),
    )
    for given in range(8):
        arguments = ["1" if given & 1 else "", "s" if given & 2 else "", "t" if given & 4 else "", "_"]
        found = server.query(f"SELECT id, {', '.join(parts_sql('id', arguments))} FROM parts.t ORDER BY id")
        assert len(found) == len(ids)
        for number, *parts in found:
            merged = int(str(number))
            instance, schema, table, original = (None if part is None else int(str(part)) for part in parts)
            assert original is not None
            assert Parts(instance, schema, table, original) == partition_of(merged, arguments)
        one = pick.choice(ids)
        wanted = partition_of(one, arguments)
        same = [each for each in ids if _shard(each, arguments) == (wanted.instance, wanted.schema, wanted.table)]
        listed = server.query(f"SELECT id FROM parts.t WHERE {shard_sql('id', one, arguments)} ORDER BY id")
        assert [int(str(each)) for (each,) in listed] == same


def _shard(merged: int, arguments: list[str]) -> tuple[int | None, int | None, int | None]:
    parts = partition_of(merged, arguments)
    return parts.instance, parts.schema, parts.table
