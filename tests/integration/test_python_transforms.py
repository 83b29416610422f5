"""Tests transforms in Python with real daemons: history and changes, errors and their way out, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors
from tests.support.cluster import Cluster
from tests.support.mariadb import MariaDB
from tests.support.wait import until

MODULE = """
import functools
import os
import pyarrow as pa
import pyarrow.compute as pc
from os import popen, system

alias, part = os.system, functools.partial(os.system)

class Totals:
    def __new__(cls, batch): return totals(batch)

def _private(batch): return totals(batch)

@functools.wraps(popen)
def wrapped(batch): return totals(batch)

def totals(batch):
    if 13 in batch.column("qty").to_pylist():
        raise ValueError(f"13 is in {batch.to_pylist()}")
    passes = pc.greater(batch.column("qty"), 0)
    total = pc.multiply(batch.column("price"), batch.column("qty").cast(pa.decimal128(19, 0)))
    name = pc.utf8_upper(batch.column("name"))
    return pa.RecordBatch.from_arrays([passes, total.cast(pa.decimal128(20, 2)), name], names=["p", "t", "n"])
"""
VIEW = "SELECT id, name, price, qty, price * qty, UPPER(name) FROM shop.{} WHERE qty > 0 ORDER BY id"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    made = MariaDB(tmp_path_factory.mktemp("server") / "both", 101)
    try:
        made.start()
        made.execute("CREATE DATABASE shop")
        for table in ("order_1", "order_2"):
            made.execute(
                f"CREATE TABLE shop.{table} (id BIGINT PRIMARY KEY, name VARCHAR(20) CHARACTER SET latin1, "
                "price DECIMAL(10,2) NOT NULL, qty INT NOT NULL)"
            )
        made.execute(
            "INSERT INTO shop.order_1 SELECT seq, CONCAT('\u00e9t\u00e9', seq), seq / 4, seq % 5 "
            "FROM shop.seq_1_to_3000",
            "INSERT INTO shop.order_2 SELECT 10000 + seq, NULL, seq, 1 FROM shop.seq_1_to_10",
        )
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the user's modules."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module")
def cluster(server: MariaDB, modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    (modules / "own_rows.py").write_text(MODULE)
    made = Cluster(
        tmp_path_factory.mktemp("cluster"),
        workers=1,
        worker_settings={"transform-modules": ["own_rows"]},
        environment={"PYTHONPATH": str(modules)},
    )
    with made:
        made.create_source("s1", server)
        yield made


def _task(server: MariaDB, python: str, output: str = "{total: 'DECIMAL(20,2) NOT NULL', shown: VARCHAR(20)}") -> str:
    return (
        f"name: merge\ntask-mode: all\ntarget-database: {server.login}\n"
        "mysql-instances:\n  - source-id: s1\n    block-allow-list: one\n    route-rules: [all]\n"
        "    transform-rules: [own]\n"
        "block-allow-list:\n  one: {do-dbs: [shop]}\n"
        "routes:\n"
        "  all: {schema-pattern: shop, table-pattern: 'order_*', target-schema: merged, target-table: orders}\n"
        f"transforms:\n  own: {{schema-pattern: shop, python: '{python}', columns: [price, qty, name], "
        f"output: {output}, row-filter: true}}\n"
    )


@pytest.mark.parametrize(
    "python",
    [
        "os:removedirs",
        "subprocess:run",
        "shardmerge.proto.secret:use",
        "own_rows.more:f",
        "own_rows.os:system",
        "own_rows.__builtins__:exec",
        "__main__:exec",
        "not_named:totals",  # it is beside the allowed one
        "tests.support.own_functions:twice",  # it is in the working directory of the worker
        "in_relay:totals",
    ],
)
def test_modules_that_the_worker_s_file_does_not_name(
    cluster: Cluster, server: MariaDB, modules: Path, python: str
) -> None:
    file = cluster.write("refused.yaml", _task(server, python))
    [worker], marker = cluster.workers, cluster.directory / "imported"
    relay = cluster.directory / f"{worker.name}-relay"
    for place in (relay / "in_relay.py", modules / "not_named.py"):
        place.write_text(f"open({str(marker)!r}, 'w').close()\n{MODULE}")
    for command in ("check-task", "start-task"):
        answer = cluster.dmctl(command, file, check=False)
        assert answer.code == 1, answer.text
        assert f"{errors.config.MODULE_NOT_ALLOWED.code}" in answer.text, answer.text
        assert f"transform-modules: [{python.partition(':')[0]}]" in answer.text.replace("\n", " "), answer.text
    assert not marker.exists()


@pytest.mark.parametrize("name", ["system", "popen", "alias", "part", "wrapped", "Totals", "os", "functools", "absent"])
def test_what_an_allowed_module_does_not_define_as_a_function(cluster: Cluster, server: MariaDB, name: str) -> None:
    file = cluster.write("refused.yaml", _task(server, f"own_rows:{name}"))
    for command in ("check-task", "start-task"):
        answer = cluster.dmctl(command, file, check=False)
        assert answer.code == 1, answer.text
        assert f"{errors.config.TRANSFORM_REFUSED.code}" in answer.text, answer.text
        assert f"module own_rows defines no function {name}" in " ".join(answer.text.split()), answer.text


@pytest.mark.parametrize(
    "python",
    [
        "own_rows:_private",
        "own_rows:__loader__",
        "own_rows:__builtins__",
        "own_rows:totals.__globals__",
        "own_rows:os.system",
        "own_rows:totals()",
        "own_rows:totals:system",
        "own_rows/../not_named:totals",
        ".own_rows:totals",
        "own_rows\u2024more:totals",
    ],
)
def test_what_is_no_name_of_a_function(cluster: Cluster, server: MariaDB, python: str) -> None:
    file = cluster.write("refused.yaml", _task(server, python))
    for command in ("check-task", "start-task"):
        answer = cluster.dmctl(command, file, check=False)
        assert answer.code == 1, answer.text
        assert "must be package.module:function" in " ".join(answer.text.split()), answer.text


def test_a_function_that_does_not_fit_is_found_before_anything_begins(cluster: Cluster, server: MariaDB) -> None:
    file = cluster.write("misfit.yaml", _task(server, "own_rows:totals", "{total: BIGINT, shown: STRING}"))
    answer = cluster.dmctl("check-task", file, check=False)
    assert answer.code == 1, answer.text
    assert f"{errors.config.TRANSFORM_REFUSED.code}" in answer.text, answer.text
    assert "decimal128(20, 2) instead of int64" in " ".join(answer.text.split()), answer.text


def test_history_and_changes_are_computed(cluster: Cluster, server: MariaDB) -> None:
    cluster.start_task(_task(server, "own_rows:totals"))
    cluster.wait_replicating("merge")
    merged = "SELECT id, name, price, qty, total, shown FROM merged.orders ORDER BY id"

    def expected() -> list[tuple[object, ...]]:
        return sorted(
            [*server.query(VIEW.format("order_1")), *server.query(VIEW.format("order_2"))],
            key=lambda row: int(str(row[0])),
        )

    assert list(server.query(merged)) == expected()
    assert len(expected()) > 2000
    server.execute(
        "UPDATE shop.order_1 SET qty = qty - 2 WHERE id % 3 = 0",
        "UPDATE shop.order_1 SET name = LOWER(CONCAT('X', id)) WHERE id % 7 = 0",
        "DELETE FROM shop.order_1 WHERE id % 11 = 0",
        "UPDATE shop.order_1 SET id = id + 100000, qty = 2 WHERE id % 13 = 0",
        "INSERT INTO shop.order_2 VALUES (20000, 'new', 1.25, 3)",
    )
    until(lambda: list(server.query(merged)) == expected(), "the changes are computed", seconds=60)

    # An exception names the function, and no value of a row; the event can be skipped.
    server.execute("INSERT INTO shop.order_2 VALUES (20001, 'confidential', 77.25, 13)")
    state = cluster.wait_paused("merge")["s1"]
    [(code, message)] = state.errors
    assert code == errors.replicate.FUNCTION_RAISED.code, message
    assert "own_rows:totals raised ValueError" in message and "shop.order_2" in message, message
    assert "confidential" not in message and "77" not in message.partition(" at ")[0] and "20001" not in message
    position = message.rpartition(" at ")[2].strip(" .()").replace(", ", ":")
    cluster.dmctl("binlog", "skip", "merge", "-s", "s1", "-b", position)
    cluster.dmctl("resume-task", "merge")
    server.execute("INSERT INTO shop.order_2 VALUES (20002, 'next', 2, 2)")
    until(lambda: server.query("SELECT total FROM merged.orders WHERE id = 20002") != [], "later changes are computed")
    assert [row for row in expected() if row[0] != 20001] == list(server.query(merged))
    cluster.dmctl("stop-task", "merge")
