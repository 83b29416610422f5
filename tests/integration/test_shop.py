"""Follows docs/tutorial/shop.md: a shop of 12 tables is merged under writes and kills, and its
application moves to the target."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.cluster import Answer, Json
from tests.support.database import Database
from tests.support.kills import VICTIMS, kill_at_each
from tests.support.page import DOCS, Block, Reader, Rows, Schema, blocks
from tests.support.pair import KINDS
from tests.support.wait import until
from tests.support.world import World

PAGE = DOCS / "tutorial" / "shop.md"
FILES = DOCS / "tutorial" / "shop"
SHARDS = ("shop_1", "shop_2", "shop_3")
REFERENCE = re.compile(r"\{from: (\w+)\.(\w+), to: (\w+)\.(\w+)\}")
WITH_IDS = ("users", "addresses", "categories", "products", "tags", "orders", "payments", "reviews", "moves")


class Shop:
    """The world with the shop: its places, its applications, and its task file."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._running: list[subprocess.Popen[bytes]] = []
        self.sources = [server for _, server in world.sources]
        self.shards = [Schema(server, name) for server in self.sources for name in SHARDS]
        self.target = Schema(world.target, "shop")
        self.text = re.sub(
            "^target-database: .*$",
            f"target-database: {world.target.login}",
            (FILES / "shop.yaml").read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        )
        world.cluster.write("shop.yaml", self.text)
        self.reader = Reader(
            world.cluster,
            {
                "at each source": [Schema(server) for server in self.sources],
                "in each shard": self.shards,
                "at the target": [Schema(world.target)],
                "in the schema shop of the target": [self.target],
            },
            {"export": lambda line: None, "python": self._start},
            {
                f"--host {address}": f"--host {server.host} --port {server.port}"
                for address, server in zip(("10.0.1.1", "10.0.1.2", "10.0.2.1"), self._servers, strict=True)
            },
            FILES,
        )

    @property
    def _servers(self) -> list[Database]:
        return [*self.sources, self.world.target]

    def _start(self, line: str) -> None:
        words = line.removesuffix("&").split()
        assert words[:2] == ["python", "application.py"]
        self._running.append(
            subprocess.Popen(
                [sys.executable, *words[1:]], cwd=FILES, env={**os.environ, "SHOP_PASSWORD": "shop-password"}
            )
        )

    def end_applications(self) -> None:
        """End every application, which must not have failed."""
        for one in self._running:
            one.send_signal(signal.SIGTERM)
        codes = [one.wait(60) for one in self._running]
        self._running.clear()
        assert set(codes) == {0}, codes

    def wait_for_orders(self, *schemas: Schema, count: int = 25) -> None:
        """Wait until the applications have inserted this many orders into each schema."""

        def last(schema: Schema) -> int:
            [[(number,)]] = schema.run(["SELECT MAX(id) FROM orders"])
            return int(str(number))

        for schema in schemas:
            first = last(schema)
            until(lambda schema=schema, first=first: last(schema) >= first + count, f"{schema.name} gets orders", 60)

    def kill_applications(self) -> None:
        for one in self._running:
            one.kill()
            one.wait()

    def checked(self, text: str) -> Answer:
        """Return the answer of check-task for a task file of this text."""
        return self.world.cluster.dmctl("check-task", self.world.cluster.write("wrong.yaml", text), check=False)


# MySQL in the grid: that tables with cascades merge from it is tested in test_derived_cascades.py, the rest in many.
@pytest.fixture(scope="module", params=["mariadb", pytest.param("mysql", marks=pytest.mark.grid)])
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Shop]:
    kind = KINDS[request.param]
    world = World(tmp_path_factory.mktemp("shop"), (kind, kind), (kind,))
    try:
        shop = Shop(world.start())
        for block in blocks(PAGE, "1."):
            if block.language == "sql":
                shop.reader.run(block)
        yield shop
    finally:
        world.stop()


@pytest.fixture
def shop(made: Shop) -> Iterator[Shop]:
    made.world.heal()
    try:
        yield made
    finally:
        made.kill_applications()


def failures(answer: Answer, source: str = "mysql-01") -> list[Json]:
    return [one for one in answer.json["checkResult"] if one["state"] == "fail" and one["source"] == source]


def without(text: str, line: str) -> str:
    """Return the task file without the one line that contains ``line``."""
    lines = text.splitlines()
    [found] = [one for one in lines if line in one]
    return "\n".join(one for one in lines if one != found) + "\n"


def test_a_foreign_key_without_reference_is_refused(shop: Shop) -> None:
    answer = shop.checked(without(shop.text, "from: orders.user_id,"))
    assert answer.code == 1
    for source in ("mysql-01", "mysql-02"):
        [failure] = failures(answer, source)
        assert failure["code"] == 12085
        assert all(word in failure["errorMsg"] for word in ("orders.user_id", "users.id", "shop_1.orders (order_user"))
        assert failure["instruction"].endswith("references:\n- {from: orders.user_id, to: users.id}")


@pytest.mark.parametrize("with_reference", [True, False], ids=["reference", "no reference"])
def test_a_mapping_with_the_numbers_of_another_source_is_refused(shop: Shop, with_reference: bool) -> None:
    wrong = '{schema-pattern: "shop_*", table-pattern: orders, source-column: user_id, target-column: user_id, '
    wrong += 'expression: partition id, arguments: ["2", shop, "", _]}'
    text = shop.text.replace("column-mappings:\n", f"column-mappings:\n  wrong: {wrong}\n")
    text = text.replace("column-mapping-rules: [ids-1]", "column-mapping-rules: [ids-1, wrong]")
    if not with_reference:
        text = without(text, "from: orders.user_id,")
    found = failures(shop.checked(text))
    if with_reference:
        assert any("11015" in one["errorMsg"] and "shop_1.orders.user_id" in one["errorMsg"] for one in found), found
        assert any("orders.user_id to users.id" in one["errorMsg"] for one in found)
    else:
        [failure] = found
        assert (failure["code"], "orders.user_id" in failure["errorMsg"]) == (12085, True)
        assert "{from: orders.user_id, to: users.id}" in failure["instruction"]


def test_a_reference_to_a_column_without_mapping_is_refused(shop: Shop) -> None:
    found = failures(shop.checked(shop.text.replace("~^(users|", "~^(")))
    [failure] = [one for one in found if one["code"] == 12096 and "orders.user_id" in one["errorMsg"]]
    assert "maps id of: shop_1.users" in failure["errorMsg"]
    assert "column-mappings" in failure["instruction"]


def test_a_reference_to_a_table_outside_the_task_is_refused(shop: Shop) -> None:
    outside = '"~^shop_[0-9]+$"], ignore-tables: [{db-name: "shop_*", tbl-name: categories}]'
    text = shop.text.replace('"~^shop_[0-9]+$"]', outside)
    found = failures(shop.checked(text))
    failure = next(one for one in found if "11014" in one["errorMsg"] and "shop_1.products" in one["errorMsg"])
    assert "products.category_id to categories.id" in failure["errorMsg"]
    assert "shop_1.categories, which takes no part" in failure["errorMsg"]
    # Without the reference it is a warning: the values stay as they are.
    answer = shop.checked(without(without(text, "from: products.category_id,"), "from: categories.parent_id,"))
    assert answer.code == 0, answer.text
    [warning] = [one for one in answer.json["checkResult"] if one["code"] == 12087 and one["source"] == "mysql-01"]
    assert "shop_1.products.category_id (product_category to shop_1.categories.id)" in warning["errorMsg"]


def test_a_cascade_is_refused(shop: Shop) -> None:
    """Without the setting, and with it where the changes cannot be derived."""
    [failure] = failures(shop.checked(without(shop.text, "cascades: derive")))
    assert failure["code"] == 12013
    assert "shop_1.payments (payment_order)" in failure["errorMsg"]
    # Without a mapping, the rows of one shard are not known by their key.
    text = without(shop.text.replace("orders|payments|", "orders|"), "from: payments.order_id,")
    [failure] = [one for one in failures(shop.checked(text)) if one["code"] == 12093]
    assert "shop_1.payments (payment_order)" in failure["errorMsg"]


def test_a_column_without_foreign_key_is_proposed(shop: Shop) -> None:
    answer = shop.checked(without(shop.text, "from: visits.user_id,"))
    assert answer.code == 0, answer.text
    found = [one for one in answer.json["checkResult"] if one["code"] == 12088]
    assert len(found) == 2
    assert all("- {from: visits.user_id, to: users.id}" in one["instruction"] for one in found)


def orphans(shop: Shop) -> dict[str, object]:
    """Return, by column, how many rows of the target refer to no row."""
    references = REFERENCE.findall(shop.text)
    assert len(references) == 14
    statements = [
        f"SELECT COUNT(*) FROM {child} c LEFT JOIN {parent} p ON p.{key} = c.{column} "
        f"WHERE c.{column} IS NOT NULL AND p.{key} IS NULL"
        for child, column, parent, key in references
    ]
    counts = [count for [(count,)] in shop.target.run(statements)]
    return {f"{child}.{column}": count for (child, column, _, _), count in zip(references, counts, strict=True)}


def sums(answers: list[list[Rows]]) -> list[list[object]]:
    """Add up what the statements of joins.sql return at several places."""
    found: list[list[object]] = []
    for each in zip(*answers, strict=True):
        (name, *_), *_ = (rows[0] for rows in each)
        figures = zip(*(rows[0][1:] for rows in each), strict=True)
        found.append([name, *(sum(int(str(figure)) for figure in one) for one in figures)])
    return found


def test_the_page(shop: Shop) -> None:
    excerpt = [block.text for block in blocks(PAGE, "2.")]
    assert excerpt and all(text in shop.text for text in excerpt)
    reader, world = shop.reader, shop.world
    for block in blocks(PAGE, "1."):
        if block.language == "bash":
            reader.run(block)
    reader.follow(PAGE, "3.")
    start, *afterwards = lines(blocks(PAGE, "4."))
    world.cluster.hooks.hold("snapshot.before_commit")
    reader.command(start)
    kill_at_each(world, {"snapshot.before_commit": "worker", "handover": "master"})
    world.cluster.wait_subtasks("shop", lambda sub: sub.unit == "Sync" and sub.stage == "Running", "replicates", 300)
    for victim in ("worker", "master"):
        shop.wait_for_orders(*shop.shards[::3])
        VICTIMS[victim](world)
    shop.wait_for_orders(*shop.shards[::3])
    world.cluster.wait_replicating("shop")
    for line in afterwards:
        reader.command(line)
    shop.end_applications()
    prove(shop)
    move(shop)


def lines(found: list[Block]) -> list[str]:
    return [line for block in found for line in block.text.splitlines()]


def prove(shop: Shop) -> None:
    answers = [shop.reader.run(block) for block in blocks(PAGE, "5.")]
    *_, orphaned, of_shards, of_target = answers
    assert orphaned == [[[(0,)], [(0,)]]]
    assert set(orphans(shop).values()) == {0}
    assert sums(of_shards) == sums(of_target)
    assert len(of_target[0]) == 14 and all(int(str(rows[0][1])) > 0 for rows in of_target[0])


def move(shop: Shop) -> None:
    stop, numbered, keys, account, start = blocks(PAGE, "6.")
    shop.reader.run(stop)
    [[rows]] = shop.reader.run(numbered)
    assert {name for (name,) in rows} == set(WITH_IDS)
    shop.reader.run(keys)
    shop.reader.run(account)
    highest = [f"SELECT MAX(id) FROM {table}" for table in WITH_IDS]
    before = [number for [(number,)] in shop.target.run(highest)]
    shop.reader.run(start)
    shop.wait_for_orders(shop.target, count=100)
    shop.end_applications()
    after = [number for [(number,)] in shop.target.run(highest)]
    grown = [
        table for table, one, other in zip(WITH_IDS, before, after, strict=True) if int(str(other)) > int(str(one))
    ]
    assert set(grown) == set(WITH_IDS) - {"tags"}
    assert set(orphans(shop).values()) == {0}
