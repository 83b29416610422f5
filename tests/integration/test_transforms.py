"""Tests transforms on real servers: history and changes have the same result."""

from __future__ import annotations

import random
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.rules.transform import TransformRefused
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.rules.transform.analyzer import analyse
from shardmerge.worker.rules.transform.session import session
from tests.integration.lane_rig import LaneRig
from tests.integration.snapshot_rig import subtask_config
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.wait import until

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
    """Start the JVM before gRPC's threads."""
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


@contextmanager
def two_servers(flavor: type[Database], directory: Path) -> Generator[tuple[Database, Database]]:
    source, target = flavor(directory / "source", 61), flavor(directory / "target", 62)
    try:
        yield source.start(), target.start()
    finally:
        source.stop()
        target.stop()


@pytest.mark.turns
@pytest.mark.parametrize("flavor", [MariaDB, MySQL])
@pytest.mark.parametrize("position", ["auto", "watermark"])
def test_history_and_changes_become_the_same(flavor: type[Database], position: str, tmp_path: Path) -> None:
    with two_servers(flavor, tmp_path) as (source, target):
        become_the_same(source, target, position, tmp_path)


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
            # Some rows begin to match the filter, some cease to, and others do not change in that.
            names = [part.split()[0] for part in COLUMNS.split(", ")]
            assert len(names) == 11
            pairs = ", ".join(f"c.{name} = o.{name}" for name in names)
            cursor.execute(f"UPDATE shard_1.changed c JOIN shard_1.old o ON c.id = o.id SET {pairs}")
            link.commit()
        expected = seen(target, "old")
        until(
            lambda: (seen(target, "new") == seen(target, "changed") == expected) or run.ended,
            "changes are applied",
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


FILTERS = {"here": "n = 2 OR d > 90000000", "there": "v = 'a' OR LENGTH(v) > 3"}
"""Filters by where they are evaluated: by the decoder, and by the target. Both name columns that are left out."""


@pytest.mark.parametrize("position", ["auto", "watermark"])
def test_expression_filters_come_first(position: str, tmp_path: Path) -> None:
    """They receive the row with the source's values, in both phases; the transform receives the rows that they
    accept."""
    with two_servers(MariaDB, tmp_path) as (source, target):
        come_first(source, target, position, tmp_path)


def come_first(source: Database, target: Database, position: str, directory: Path) -> None:
    source.execute("CREATE DATABASE shard_1")
    config = subtask_config(target, threads=2, chunk_rows=100, position=position)
    projection = "upper(l) AS l, id AS k, n + 1 AS more, * EXCEPT (id, l, n, v, d, e)"
    config.transforms.append(pb.Transform(name="t", schema_pattern="shard_1", projection=projection, filter="u > 0"))
    for name, text in FILTERS.items():
        for phase in ("old", "new"):
            source.execute(f"CREATE TABLE shard_1.{name}_{phase} (id INT PRIMARY KEY, {COLUMNS})")
            config.expression_filters.append(
                pb.ExpressionFilter(
                    name="f", schema="shard_1", table=f"{name}_{phase}", insert_value=text, delete_value="n = -1",
                    update_old_value="n = 0", update_new_value="n = 1",
                )
            )  # fmt: skip
    pick = random.Random(11)
    rows = [(*row(key, pick)[:8], pick.choice([None, 0, 7]), *row(key, pick)[9:]) for key in range(400)]

    def insert(phase: str) -> None:
        with source.connect() as link, link.cursor() as cursor:
            for name in FILTERS:
                cursor.executemany(f"INSERT INTO shard_1.{name}_{phase} VALUES (%s" + ", %s" * 11 + ")", rows)
            link.commit()

    def keys(server: Database, query: str) -> list[int]:
        return [int(str(found)) for (found,) in server.query(query)]

    insert("old")
    with LaneRig(source, target, directory, config) as rig:
        run = rig.begin(config)
        run.until_synced()
        insert("new")
        for name, text in FILTERS.items():
            passing = f"SELECT id FROM shard_1.{name}_{{}} WHERE ({text}) IS NOT TRUE AND u > 0 ORDER BY id"
            for phase in ("old", "new"):
                expected = keys(source, passing.format(phase))
                assert 40 < len(expected) < 110
                found = f"SELECT k FROM shard_1.{name}_{phase} ORDER BY k"
                until(lambda: keys(target, found) == expected or run.ended, "the rows are there")  # noqa: B023
                assert keys(target, found) == expected
        names = [str(found[0]) for found in target.query("SHOW COLUMNS FROM shard_1.here_old")]
        assert names == ["k", "at", "b", "u", "f", "t", "extra", "l", "more"]
        for name in FILTERS:
            before = target.query(f"SELECT k, more FROM shard_1.{name}_new WHERE more IN (0, 1) ORDER BY k")
            assert {more for _, more in before} == {0, 1}
            source.execute(
                f"UPDATE shard_1.{name}_new SET n = 1 WHERE n = 0", f"DELETE FROM shard_1.{name}_new WHERE n = -1"
            )
            source.execute(
                f"UPDATE shard_1.{name}_new SET n = 5 WHERE n > 2", f"DELETE FROM shard_1.{name}_new WHERE n = 5"
            )
            until(
                lambda: not target.query(f"SELECT 1 FROM shard_1.{name}_new WHERE more > 3") or run.ended,  # noqa: B023
                "the last rows are gone",
            )
            assert target.query(f"SELECT k, more FROM shard_1.{name}_new WHERE more IN (0, 1) ORDER BY k") == before
        assert not run.ended
        run.stop()


def seen(server: Database, table: str) -> list[tuple[object, ...]]:
    return list(server.query(f"SELECT * FROM shard_1.{table} ORDER BY id"))


# -- errors of Spark's analyzer

COLUMNS_GIVEN = (
    Column("id", ValueKind.INTEGER, "bigint", nullable=False),
    Column("name", ValueKind.STRING, "varchar(20)", nullable=True, charset="utf8mb4", collation="utf8mb4_bin"),
    Column("price", ValueKind.DECIMAL, "decimal(10,2)", nullable=True),
    Column("qty", ValueKind.INTEGER, "int", nullable=False),
    Column("j", ValueKind.JSON, "json", nullable=True),
    Column("d", ValueKind.DATE, "date", nullable=True),
)


@pytest.mark.parametrize(
    ("projection", "condition", "outputs", "given"),
    [
        ("", "qty > 0", "id name price qty j d", (3,)),
        ("*", "", "id name price qty j d", ()),
        ("id AS k, *", "", "k name price qty j d", ()),
        ("*, upper(name) AS NAME", "", "id price qty j d NAME:longtext", (1,)),
        ("id, price * qty AS total", "name IS NULL", "id total:decimal(31,2)", (1, 2, 3)),
        ("id, CAST(name AS VARCHAR(5))", "", "id name:varchar(5)", (1,)),
        ("* EXCEPT (j), qty + 1 AS more", "", "id name price qty d more:bigint", (3,)),
        ("id, ID = 1 AS one", "", "id one:tinyint(1)", (0,)),
    ],
)
def test_what_a_projection_makes(projection: str, condition: str, outputs: str, given: tuple[int, ...]) -> None:
    found = analyse(COLUMNS_GIVEN, projection, condition)
    told = [each.name + (f":{each.column.type_text}" if each.column else "") for each in found.outputs]
    assert (" ".join(told), found.inputs) == (outputs, given)


@pytest.mark.parametrize(
    ("projection", "condition", "why"),
    [
        ("id, nosuch", "", "nosuch"),
        ("id, qty + 1", "", "name with AS"),
        ("id, id AS k", "", "twice"),
        ("id, 1 AS x, 2 AS X", "", "two columns are named"),
        ("id, length(CAST(j AS STRING)) AS x", "", "can only be kept"),
        ("id, NULL AS x", "", "cast it"),
        ("id, array(1) AS x", "", "cast it"),
        ("*, *", "", "twice"),
        ("", "name", "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN in name"),
        ("", "qty > 0 AND nosuch", "nosuch"),
        ("id, CAST('today' AS DATE) AS x", "", "'today' or 'now'"),
        ("id, CAST(concat('to','day') AS DATE) AS x", "", "'today' or 'now'"),
        ("id, to_date(concat('tomorrow', ' UTC')) AS x", "", "'today' or 'now'"),
        ("id, qty + extract(YEAR FROM reverse('won')) AS x", "", "'today' or 'now'"),
        ("id, TRY_CAST(lower('EPOCH') AS TIMESTAMP_NTZ) AS x", "", "'today' or 'now'"),
        ("", "d < trim(' yesterday ')", "'today' or 'now'"),
    ],
)
def test_what_is_refused(projection: str, condition: str, why: str) -> None:
    with pytest.raises(TransformRefused, match=re.escape(why)):
        analyse(COLUMNS_GIVEN, projection, condition)
