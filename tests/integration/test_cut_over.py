"""Runs the statements and commands of docs/how-to/cut-over.md in their order, on both kinds of server."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.database import Database
from tests.support.page import DOCS, Reader, Schema, blocks
from tests.support.pair import KINDS

PAGE = DOCS / "how-to" / "cut-over.md"
_FOR_NONE = "MODIFY id BIGINT"
"""In the block for a target without AUTO_INCREMENT."""

TASK = """\
name: orders
task-mode: all
auto-increment: {auto_increment}
target-database: {login}
mysql-instances:
  - source-id: s1
    block-allow-list: shop
    route-rules: [orders, items, visits]
block-allow-list:
  shop:
    do-dbs: ["shop_1"]
routes:
  orders: {{schema-pattern: "shop_1", table-pattern: "orders_*", target-schema: shop, target-table: orders}}
  items: {{schema-pattern: "shop_1", table-pattern: "items_*", target-schema: shop, target-table: items}}
  visits: {{schema-pattern: "shop_1", table-pattern: "visits_*", target-schema: shop, target-table: visits}}
"""


@dataclass(frozen=True, slots=True)
class Place:
    cluster: Cluster
    source: Database
    target: Database

    @property
    def reader(self) -> Reader:
        return Reader(self.cluster, {"at the target": [Schema(self.target)], "at each source": [Schema(self.source)]})


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    kind = KINDS[request.param]
    source, target = kind(tmp_path / "source", 101).start(), kind(tmp_path / "target", 102).start()
    cluster = Cluster(tmp_path / "cluster", workers=1).start()
    try:
        cluster.create_source("s1", source)
        yield Place(cluster, source, target)
    finally:
        cluster.stop()
        target.stop()
        source.stop()


@contextmanager
def visited(source: Database) -> Generator[None]:
    """Write to the tables without a key during the block, equal rows too."""
    over = threading.Event()
    begun = threading.Event()

    def write() -> None:
        with closing(source.connect("shop_1")) as connection, connection.cursor() as cursor:
            while not over.is_set():
                for table in ("visits_1", "visits_2"):
                    cursor.execute(f"INSERT INTO {table} VALUES (NOW(3), 'ä', RAND(), 1.5), (NULL, 'ä', 0.1, 1.5)")
                begun.set()
                over.wait(0.005)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        over.set()
        thread.join()


def ids(place: Place) -> list[object]:
    return [row[0] for row in place.target.query("SELECT id FROM shop.orders ORDER BY id")]


@pytest.mark.parametrize(
    ("place", "auto_increment"),
    [
        ("mariadb", "keep"),
        ("mysql", "none"),
        pytest.param("mariadb", "none", marks=pytest.mark.grid),
        pytest.param("mysql", "keep", marks=pytest.mark.grid),
    ],
    indirect=["place"],
)
def test_the_page(place: Place, auto_increment: str) -> None:
    """The way back works before the applications move; then they move, and their first row gets the next id. A table
    without a key, of one source, is judged while it is written."""
    definition = "(id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, v VARCHAR(40))"
    place.source.execute(
        "CREATE DATABASE shop_1",
        f"CREATE TABLE shop_1.orders_1 {definition}",
        "CREATE TABLE shop_1.items_1 (id BIGINT PRIMARY KEY, order_id BIGINT, FOREIGN KEY (order_id) "
        "REFERENCES shop_1.orders_1 (id))",
        *(
            f"CREATE TABLE shop_1.visits_{number} (at DATETIME(3), page VARCHAR(90), seconds DOUBLE, cost DECIMAL(9,3))"
            for number in (1, 2)
        ),
        # Reading the sums takes many times as long as the pause between two changes.
        "USE shop_1",  # in which MariaDB finds the numbers
        place.source.spelt("INSERT INTO shop_1.visits_1 (page, seconds) SELECT 'x', seq FROM seq_1_to_100000"),
        "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'",
        "INSERT INTO shop_1.orders_1 VALUES (0, 'zero'), (7, 'seven')",
        "INSERT INTO shop_1.items_1 VALUES (1, 7), (2, 0), (3, NULL)",
    )
    login = f"{{host: {place.target.host}, port: {place.target.port}, user: root}}"
    place.cluster.write("orders.yaml", TASK.format(login=login, auto_increment=auto_increment))
    file = str(place.cluster.directory / "orders.yaml")
    before = place.cluster.dmctl("schema", file).json["sources"]
    place.cluster.dmctl("start-task", file)

    def until_ready() -> None:
        with visited(place.source):
            reader.follow(PAGE, "1.")
        reader.follow(PAGE, "2.", "3.")
        for block in blocks(PAGE, "4."):
            if "ALTER TABLE shop.orders AUTO_INCREMENT" in block.text and auto_increment == "none":
                continue
            if _FOR_NONE in block.text and numbered:
                continue
            answer = reader.run(block)
            if "EXTRA LIKE" in block.text:
                assert bool(answer[0][0]) == numbered
            if "COUNT(*)" in block.text:
                assert answer == [[[(0,)]]]

    reader, numbered = place.reader, auto_increment == "keep"
    assert ('"exists": true' in json.dumps(before), "AUTO_INCREMENT" in json.dumps(before)) == (False, True)
    until_ready()
    targets = place.cluster.dmctl("schema", file, "--foreign-keys").json["sources"][0]["targets"]
    [key] = [key for shown in targets for key in shown["foreignKeys"]]
    assert key["exists"]
    assert {f"{key[name]};\n" in PAGE.read_text(encoding="utf-8") for name in ("orphans", "add", "drop")} == {True}
    assert '"exists": true' in json.dumps(place.cluster.dmctl("schema", file).json["sources"])
    reader.follow(PAGE, "The way back")
    assert ids(place) == [0, 7]
    place.source.execute("INSERT INTO shop_1.orders_1 VALUES (90, 'after the way back')")

    numbered = True
    until_ready()
    reader.follow(PAGE, "5.")
    assert ids(place) == [0, 7, 90, 91]
