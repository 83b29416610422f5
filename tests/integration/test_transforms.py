"""Transforms on real servers: history and changes alike."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from proto import config_pb2 as pb
from tests.integration.lane_rig import LaneRig
from tests.integration.snapshot_rig import subtask_config
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.wait import until
from worker.transform.session import session

PROJECTION = (
    "id, upper(v) AS v, n * 2 AS twice, d / 3 AS third, date_trunc('HOUR', at) AS hour, hex(b) AS b, "
    "concat(l, '-', e) AS both, u + 1 AS more, f * 2 AS f2, cast(v AS varchar(30)) AS kept, t AS renamed, *"
)
CONDITION = "n > 0 OR v LIKE 'a%'"
COLUMNS = (
    "n INT, d DECIMAL(10,2), v VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, "
    "l VARCHAR(20) CHARACTER SET latin1, at DATETIME(6), b VARBINARY(8), e ENUM('x','y'), u BIGINT UNSIGNED, f DOUBLE, "
    "t TIME(3), extra VARCHAR(10)"
)
TEXTS = [None, "", "a", "A", "a ", "\u00e1", "\u4e2d\U0001f600", "x'y", "\\", "a\nb", "NULL"]
LATIN = [None, "", "\u00e9\u20ac", "x'", "\\"]


@pytest.fixture(scope="module", autouse=True)
def _spark() -> Iterator[None]:
    """The JVM comes before gRPC's threads."""
    session()
    yield


def row(key: int, pick: random.Random) -> tuple[object, ...]:
    return (
        key,
        pick.choice([None, -1, 0, 1, 2, 2147483647]),
        pick.choice([None, "-0.01", "0", "1.5", "99999999.99"]),
        pick.choice(TEXTS),
        pick.choice(LATIN),
        pick.choice([None, "2020-02-29 23:59:59.000001", "1000-01-01 00:00:00", "9999-12-31 23:59:59.999999"]),
        pick.choice([None, b"", b"\0\xff'"]),
        pick.choice([None, "x", "y"]),
        pick.choice([None, 0, 18446744073709551615]),
        pick.choice([None, 0.1, -1.5e300, 1e-300]),
        pick.choice([None, "-838:59:59.000", "12:00:00.123"]),
        pick.choice([None, "extra"]),
    )


@pytest.mark.parametrize("flavor", [MariaDB, MySQL])
@pytest.mark.parametrize("position", ["auto", "watermark"])
def test_history_and_changes_become_the_same(flavor: type[Database], position: str, tmp_path: Path) -> None:
    source, target = flavor(tmp_path / "source", 61), flavor(tmp_path / "target", 62)
    try:
        source.start()
        target.start()
        become_the_same(source, target, position, tmp_path)
    finally:
        source.stop()
        target.stop()


def become_the_same(source: Database, target: Database, position: str, directory: Path) -> None:
    source.execute("CREATE DATABASE shard_1")
    for phase in ("old", "new", "changed"):
        source.execute(f"CREATE TABLE shard_1.{phase} (id INT PRIMARY KEY, {COLUMNS}, KEY (v), KEY (extra))")
    pick = random.Random(7)
    rows = [row(key, pick) for key in range(400)]
    others = [row(key, pick) for key in range(400)]
    insert = "INSERT INTO shard_1.{} VALUES (%s" + ", %s" * 11 + ")"
    with source.connect() as link, link.cursor() as cursor:
        cursor.executemany(insert.format("old"), rows)
        cursor.executemany(insert.format("changed"), others)
        link.commit()
    config = subtask_config(target, threads=2, chunk_rows=100, position=position)
    config.transforms.append(pb.Transform(name="t", schema_pattern="shard_*", projection=PROJECTION, filter=CONDITION))
    with LaneRig(source, target, directory, config) as rig:
        run = rig.begin(config)
        run.until_synced()
        with source.connect() as link, link.cursor() as cursor:
            cursor.executemany(insert.format("new"), rows)
            # Rows come into the filter, go out of it, and stay on either side.
            names = [part.split()[0] for part in COLUMNS.split(", ")]
            assert len(names) == 11
            pairs = ", ".join(f"c.{name} = o.{name}" for name in names)
            cursor.execute(f"UPDATE shard_1.changed c JOIN shard_1.old o ON c.id = o.id SET {pairs}")
            link.commit()
        expected = seen(target, "old")
        until(
            lambda: (seen(target, "new") == seen(target, "changed") == expected) or run.ended,
            "changes are applied",
            60,
        )
        assert seen(target, "new") == seen(target, "changed") == expected
        assert not run.ended
        run.stop()
    assert 100 < len(expected) < 350
    passing = "WHERE n > 0 OR v LIKE BINARY 'a%' ORDER BY id"
    assert [row[0] for row in expected] == [row[0] for row in source.query(f"SELECT id FROM shard_1.old {passing}")]
    simple = "id, n * 2, CONCAT(l, '-', e), CAST(u AS DECIMAL(21)) + 1, HEX(b), t"
    assert target.query("SELECT id, twice, `both`, more, b, renamed FROM shard_1.old ORDER BY id") == source.query(
        f"SELECT {simple} FROM shard_1.old {passing}"
    )
    names = {str(row[0]) for row in target.query("SHOW COLUMNS FROM shard_1.old")}
    assert {"twice", "both", "renamed", "extra"} <= names
    assert "t" not in names


def seen(server: Database, table: str) -> list[tuple[object, ...]]:
    return list(server.query(f"SELECT * FROM shard_1.{table} ORDER BY id"))
