"""Follows the pages Back up and restore the target, and The binlog is lost."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest

from tests.integration.page_rig import Orders, instance, orders, page, yaml_of
from tests.support.page import blocks
from tests.support.writer import Writer


@pytest.fixture(scope="module", params=["mariadb", pytest.param("mysql", marks=pytest.mark.grid)])
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Orders]:
    with orders(tmp_path_factory.mktemp("pages"), request.param) as found:
        for source in found.sources:
            found.create_source(source)
        for name, server in found.sources.items():
            for shard in found.of(name).shard_tables():
                server.execute(f"ALTER TABLE {shard.name} ADD ratio FLOAT NOT NULL DEFAULT 16777216")
        found.start(1, 2)
        yield found


def test_the_binlog_is_lost(made: Orders) -> None:
    """The lost part inserts, changes and removes rows; so does the part that is left, also the same rows."""
    cluster, reader, name = made.cluster, made.reader, "lost-binlog"
    source = made.sources["mysql-01"]
    for worker in cluster.workers:
        worker.kill()
    for shard in made.of("mysql-01").shard_tables():
        source.execute(
            f"UPDATE {shard.name} SET amount = 77 WHERE id BETWEEN 20 AND 29",
            f"DELETE FROM {shard.name} WHERE id BETWEEN 30 AND 39",
            f"INSERT INTO {shard.name} (id, customer, amount, state, token, created) "
            "VALUES (1001, 'lost', 1, 'new', '', '2026-01-01'), (1002, 'lost', 1, 'new', '', '2026-01-01'), "
            "(1003, 'lost', 1, 'new', '', '2026-01-01')",
        )
    source.purge()
    for shard in made.of("mysql-01").shard_tables():
        source.execute(
            f"UPDATE {shard.name} SET amount = 78 WHERE id IN (21, 1001)",
            f"DELETE FROM {shard.name} WHERE id IN (22, 1002)",
            f"INSERT INTO {shard.name} (id, customer, amount, state, token, created) "
            "VALUES (31, 'again', 1, 'new', '', '2026-01-01')",
        )
    for worker in cluster.workers:
        shutil.rmtree(cluster.directory / f"{worker.name}-relay", ignore_errors=True)
    for worker in cluster.workers:
        worker.start()
    made.wait_error("mysql-01", 20011 if source.flavor == "mysql" else 20001)
    made.change("mysql-02")
    for section in ("1.", "2."):
        for block in blocks(page(name), section):
            if "start-task" in block.text:
                cluster.write("orders-gap.yaml", gap_file(made))
            reader.run(block)
    reader.follow(page(name), "3.")
    made.judge()
    reader.follow(page(name), "4.")
    made.change()
    made.judge()


def gap_file(made: Orders) -> str:
    """Return the task file with the changes that the page describes."""
    mode, line, syncers = yaml_of("lost-binlog", "2.")
    text = made.task(1, 2)
    assert " ".join(line.split()).startswith(instance(1).strip().removesuffix("}"))
    text = text.replace(instance(1), line).replace("task-mode: all", mode)
    return f"{text}{syncers}\n"


def test_back_up_and_restore(made: Orders) -> None:
    if made.target.flavor == "mysql":
        pytest.skip("the test machine has MariaDB's client programs only")
    made.wait_replicating()
    name = "back-up-the-target"
    reader = made.reading({"mariadb-dump": made.run_here, "mariadb": made.run_here})
    with Writer(made.family.shard_tables(), seed=5) as writer:
        writer.go_on()
        for block in blocks(page(name), "1."):
            reader.run(block)
        writer.go_on()
        writer.stop()
    made.judge()
    made.change()
    stop, drop, *restore = blocks(page(name), "2.")
    reader.run(stop)
    # Rows without their records, or the records without the rows: the check refuses the former.
    made.target.execute("CREATE DATABASE kept", "RENAME TABLE shop.orders TO kept.orders", "DROP DATABASE shop")
    made.target.execute("DROP DATABASE dm_meta", "CREATE DATABASE shop", "RENAME TABLE kept.orders TO shop.orders")
    made.target.execute("DROP DATABASE kept")
    answer = reader.command("dmctl check-task orders.yaml", check=False)
    assert answer is not None and answer.code == 1
    assert {one["code"] for one in answer.json["checkResult"] if one["state"] == "fail"} == {12037}
    reader.run(drop)
    for block in restore:
        reader.run(block)
    dump = (made.cluster.directory / "target.sql").read_text(encoding="utf-8", errors="replace")
    assert re.search("INSERT INTO `subtask`", dump), "the dump has the positions"
    assert "16777200" in dump, "or no value shows that the rows are exact again"
    assert made.target.query("SELECT COUNT(*) FROM shop.orders WHERE ratio <> 16777216") == [(0,)]
    made.change()
    made.judge()
