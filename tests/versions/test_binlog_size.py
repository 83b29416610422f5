"""Tests the forecast for a source that limits the size of its binlog: MariaDB 11.4 and newer do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.database import Database
from tests.support.wait import until
from tests.support.world import Family
from tests.versions.servers import server

_LIMIT = 8 << 20
_TASK = "binlog_size"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Database, Database]]:
    source, target = server("mariadb-11.8", tmp_path / "source", 101), server("mariadb-10.11", tmp_path / "target", 201)
    try:
        yield source.start(), target.start()
    finally:
        source.stop()
        target.stop()


def _bytes(source: Database) -> int:
    return sum(int(str(row[1])) for row in source.query("SHOW BINARY LOGS"))


def test_a_limit_of_the_size_is_foreseen(servers: tuple[Database, Database], tmp_path: Path) -> None:
    source, target = servers
    source.execute(
        f"SET GLOBAL max_binlog_size = {1 << 20}",
        f"SET GLOBAL max_binlog_total_size = {_LIMIT}",
        "CREATE DATABASE other",
        "CREATE TABLE other.big (id INT AUTO_INCREMENT PRIMARY KEY, v LONGTEXT)",
    )
    family = Family(_TASK, (("mysql-01", source),), target)
    family.create(50)
    with Cluster(tmp_path / "cluster", workers=1) as cluster:
        cluster.create_source("mysql-01", source)
        cluster.start_task(family.task())
        cluster.wait_replicating(_TASK)
        cluster.dmctl("pause-relay", "-s", "mysql-01")

        def due() -> float:
            """Write 100 kB a second; return when the source may delete what is not fetched, by its warning."""
            source.execute("INSERT INTO other.big (v) VALUES (REPEAT('x', 100000))")
            found: Any = cluster.dmctl("query-status", _TASK).json["sources"][0]["sourceStatus"]["warnings"]
            return next((float(each["due"]) for each in found if each["name"] == "binlog-expiring"), 0.0)

        first = until(due, "the warning", 120, every=1.0)
        began, written = time.time(), _bytes(source)
        until(lambda: (due(), _bytes(source) > written + 1_500_000)[1], "the source writes", 60, every=1.0)
        speed = (_bytes(source) - written) / (time.time() - began)
        reached = time.time() + (_LIMIT - _bytes(source)) / speed
        assert due() == pytest.approx(first, abs=5), "the forecast stays at one time"
        assert first == pytest.approx(reached, abs=15)
        cluster.dmctl("resume-relay", "-s", "mysql-01")
        cluster.wait_caught_up(_TASK, {"mysql-01": source})
        assert family.verdict().differences == 0
