"""Tests a merge of sources of both families, whose default collations differ, in a shard mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Answer, Json
from tests.support.kills import locks_of
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.world import Family, World

pytestmark = pytest.mark.turns

_OPTIMISTIC = "shard-mode: optimistic\n"


@pytest.fixture(scope="module")
def two_families(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("families"), sources=(MariaDB, MySQL))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def world(two_families: World, watch_logs: Callable[[Path], None]) -> World:
    watch_logs(two_families.directory)
    two_families.heal()
    return two_families


def _found(answer: Answer, *codes: int) -> list[Json]:
    return [one for one in answer.json["checkResult"] if one["code"] in codes]


def _collation(world: World, family: Family, column: str) -> object:
    [(found,)] = world.target.query(
        f"SELECT COLLATION_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{family.name}' "
        f"AND TABLE_NAME = 'orders' AND COLUMN_NAME = '{column}'"
    )
    return found


def _alter(family: Family, clause: str) -> None:
    for _, server in family.sources:
        for table in range(1, family.tables + 1):
            server.execute(f"ALTER TABLE {family.name}_01.order_{table:02d} {clause}")


@pytest.mark.parametrize(
    ("mode", "first"), [("optimistic", "mysql-01"), ("optimistic", "mysql-02"), ("pessimistic", "mysql-01")]
)
def test_texts_are_altered_without_an_operator(world: World, mode: str, first: str) -> None:
    """Each source has its own collation; the target's is that of the source that was first. The check reports that."""
    family, cluster = world.family(f"{mode}_{first[-2:]}"), world.cluster
    family.create(100)
    for at, (_, server) in enumerate(family.sources):
        [(of_table,)] = server.query(
            f"SELECT DISTINCT TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{family.name}_01'"
        )
        assert of_table == ("utf8mb4_general_ci", "utf8mb4_0900_ai_ci")[at]
    path = cluster.write(f"{family.name}.task.yaml", family.task(extra=f"shard-mode: {mode}\n"))
    answer = cluster.dmctl("check-task", path)
    [replaced] = _found(answer, 12032)
    other = "utf8mb4_uca1400_nopad_ai_ci"
    assert f"if source mysql-02 creates {family.name}.orders" in str(replaced["errorMsg"])
    assert f"it gets {other} for utf8mb4_0900_ai_ci" in str(replaced["errorMsg"])
    assert _found(answer, 12109) == []
    cluster.dmctl("start-task", path, "-s", first)
    cluster.wait_replicating(family.name)
    cluster.dmctl("start-task", path)
    cluster.wait_replicating(family.name)
    assert _collation(world, family, "customer") == ("utf8mb4_general_ci" if first == "mysql-01" else other)
    for clause in (
        "ADD COLUMN memo VARCHAR(20) NULL",
        "MODIFY customer VARCHAR(100) NOT NULL",
        "ADD COLUMN kind ENUM('a','b') NOT NULL DEFAULT 'b', MODIFY note TEXT NULL",
        "MODIFY state ENUM('new','paid','sent','returned','lost') NOT NULL",
        "MODIFY memo VARCHAR(30) NULL DEFAULT 'none'",
        "ADD INDEX by_memo (memo)",
    ):
        _alter(family, clause)
    for _, server in family.sources:
        server.execute(
            f"INSERT INTO {family.name}_01.order_01 (customer, amount, state, note, token, created, memo, kind) "
            "VALUES (REPEAT('ß', 100), 1, 'lost', REPEAT('n', 500), '', '2024-01-01', 'ẞ and ß ', 'a')"
        )
    world.judge(family)
    assert locks_of(world, family.name) == []
    cluster.dmctl("stop-task", family.name)


def test_a_source_with_further_columns_starts(world: World) -> None:
    """The target gets them, although its texts have another collation."""
    family, cluster = world.family("further"), world.cluster
    family.create(50)
    for table in (1, 2):
        world.sources[1][1].execute(
            f"ALTER TABLE further_01.order_{table:02d} ADD COLUMN memo VARCHAR(9) NULL, MODIFY customer VARCHAR(80)"
        )
    # The check compares the second source with the target before it gets the columns.
    ignored = "ignore-checking-items: [schema_of_shard_tables]\n"
    path = cluster.write("further.task.yaml", family.task(extra=_OPTIMISTIC + ignored))
    cluster.dmctl("start-task", path, "-s", "mysql-01")
    cluster.wait_replicating("further")
    cluster.dmctl("start-task", path)
    cluster.wait_replicating("further")
    assert _collation(world, family, "customer") == "utf8mb4_general_ci"
    _alter(family, "MODIFY customer VARCHAR(90)")
    world.judge(family)
    cluster.dmctl("stop-task", "further")


def test_different_character_sets_are_reported_before_the_start(world: World) -> None:
    family, cluster = world.family("charsets"), world.cluster
    family.create(10)
    for table in (1, 2):
        world.sources[1][1].execute(
            f"ALTER TABLE charsets_01.order_{table:02d} MODIFY note VARCHAR(120) CHARACTER SET latin1 NULL"
        )
    path = cluster.write("charsets.task.yaml", family.task(extra=_OPTIMISTIC))
    [warning] = _found(cluster.dmctl("check-task", path), 12109)
    assert warning["state"] == "warn"
    for part in (
        "charsets.orders",
        "note is utf8mb4 in charsets_01.order_01 (source mysql-01) and latin1 in charsets_01.order_01 ",
    ):
        assert part in str(warning["errorMsg"]), warning["errorMsg"]
    assert _found(cluster.dmctl("check-task", cluster.write("charsets.task.yaml", family.task())), 12109) == []
    # The way out.
    for table in (1, 2):
        world.sources[1][1].execute(
            f"ALTER TABLE charsets_01.order_{table:02d} MODIFY note VARCHAR(120) CHARACTER SET utf8mb4 NULL"
        )
    path = cluster.write("charsets.task.yaml", family.task(extra=_OPTIMISTIC))
    assert _found(cluster.dmctl("check-task", path), 12109) == []


def test_tables_without_a_key_are_equal_after_the_last_write(world: World) -> None:
    """As in a cut-over: `compare` exits with 0, although each family prints values in its own way."""
    cluster = world.cluster
    for number, (_, server) in enumerate(world.sources, 1):
        server.execute(
            "CREATE DATABASE visits_1",
            "CREATE TABLE visits_1.visit_1 (at DATETIME(3), page VARCHAR(90), kind ENUM('a','b'), cost DECIMAL(9,3), "
            "share FLOAT, seconds DOUBLE, about JSON, day DATE, bits BIT(9), raw VARBINARY(9)) DEFAULT CHARSET=utf8mb4",
            "CREATE TABLE visits_1.visit_2 LIKE visits_1.visit_1",
        )
        values = (
            "'2024-01-01 10:00:00.5', 'ß ', 'b', 1.5, 0.1, 0.1, '{\"b\": 1, \"a\": [1.50]}', '2024-02-29', 257, 'a'",
            ", ".join(["NULL"] * 10),
            f"NOW(3), '{number}', 'a', {number}, 16777217, 1e300, 'null', NULL, 1, 'x'",
        )
        server.execute(*(f"INSERT INTO visits_1.visit_{at} VALUES ({row})" for at in (1, 2) for row in values))
    text = world.family("visits").task()
    lines = [line for line in text.partition("column-mappings:")[0].splitlines() if "column-mapping-rules" not in line]
    text = "\n".join(lines).replace('"order_*"', '"visit_*"').replace("target-table: orders", "target-table: visits")
    cluster.start_task(text + "\n")
    cluster.wait_replicating("visits")
    for _, server in world.sources:
        server.execute(
            "INSERT INTO visits_1.visit_1 SELECT * FROM visits_1.visit_2",
            "UPDATE visits_1.visit_1 SET page = 'ẞ', share = share / 3, about = '{}' WHERE cost > 1",
            "DELETE FROM visits_1.visit_2 WHERE kind = 'a' LIMIT 1",
        )
    world.settle(["visits"])
    compared = cluster.compare("visits")
    assert compared.rows == sum(
        int(str(server.query(f"SELECT COUNT(*) FROM visits_1.visit_{table}")[0][0]))
        for _, server in world.sources
        for table in (1, 2)
    )
    cluster.dmctl("stop-task", "visits")
