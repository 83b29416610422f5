"""Tests each server version as source and as target: history, changes of each kind, sharding DDL, every type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import all_types
from tests.support.cluster import Cluster
from tests.support.database import Database
from tests.support.exact import assert_same_bytes
from tests.support.wait import until
from tests.support.world import Family
from tests.versions.servers import NAMES, server

_TABLE = "all_types.t"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), workers=1) as made:
        yield made


@dataclass(frozen=True, slots=True)
class Pair:
    """A source and a target of the same version. ``name``: of the version."""

    name: str
    source: Database
    target: Database

    @property
    def source_id(self) -> str:
        return self.name.replace(".", "-")


@pytest.fixture(params=NAMES)
def pair(request: pytest.FixtureRequest, tmp_path: Path, watch_logs: Callable[[Path], None]) -> Iterator[Pair]:
    name = str(request.param)
    source, target = server(name, tmp_path / "source", 101), server(name, tmp_path / "target", 201)
    for one in (source, target):
        watch_logs(one.directory)
    try:
        yield Pair(name, source.start(), target.start())
    finally:
        source.stop()
        target.stop()


def _all_types(pair: Pair, *statements: str) -> None:
    texts = [one.replace("d.all_types", _TABLE) for one in statements]
    if pair.name == "mariadb-10.2":
        # It has no syntax for the collation of a generated column (docs/reference/versions.md).
        texts = [one.replace("VARCHAR(40) CHARACTER SET utf8mb4 AS", "VARCHAR(40) AS") for one in texts]
    pair.source.execute("SET sql_mode = ''", *texts)


def test_a_merge_and_every_type(pair: Pair, cluster: Cluster) -> None:
    [[version]] = pair.source.query("SELECT VERSION()")
    print(f"version: {version}")
    try:
        cluster.create_source(pair.source_id, pair.source)
        _merge(pair, cluster)
        _types(pair, cluster)
    finally:
        for task in ("versions", "types"):
            cluster.dmctl("stop-task", task, check=False)
        cluster.dmctl("operate-source", "stop", pair.source_id, check=False)


def _merge(pair: Pair, cluster: Cluster) -> None:
    """Two shard tables with equal keys: history, changes of each kind, a sharding DDL that one table reaches first."""
    source, target = pair.source, pair.target
    family = Family("versions", ((pair.source_id, source),), target)
    family.create(300)
    cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
    cluster.wait_replicating("versions")
    for table in ("order_01", "order_02"):
        name = f"versions_01.{table}"
        source.execute(
            f"INSERT INTO {name} (customer, amount, state, token, created) "
            "VALUES ('Zoë 🚀', 1.5, 'new', X'00FF', NOW(3))",
            f"UPDATE {name} SET amount = amount + 1, state = 'paid' WHERE id % 3 = 0",
            f"UPDATE {name} SET id = id + 100000 WHERE id BETWEEN 50 AND 60",
            f"DELETE FROM {name} WHERE id BETWEEN 70 AND 90",
        )
    columns = "ADD COLUMN remark VARCHAR(20) DEFAULT 'none' AFTER state, MODIFY COLUMN customer VARCHAR(200)"
    source.execute(f"ALTER TABLE versions_01.order_01 {columns}")
    source.execute("UPDATE versions_01.order_01 SET remark = 'first' WHERE id < 20")
    until(lambda: _is_parked(cluster), "one table waits for the other")
    source.execute(f"ALTER TABLE versions_01.order_02 {columns}")
    source.execute("UPDATE versions_01.order_02 SET remark = 'second' WHERE id < 20")
    cluster.wait_caught_up("versions", {pair.source_id: source})
    verdict = family.verdict()
    assert verdict.differences == 0 and verdict.rows > 500, verdict
    assert target.query("SELECT remark, COUNT(*) > 0 FROM versions.orders GROUP BY remark ORDER BY remark") == [
        ("first", 1),
        ("none", 1),
        ("second", 1),
    ]
    assert cluster.compare("versions").rows == verdict.rows


def _is_parked(cluster: Cluster) -> bool:
    [subtask] = cluster.subtasks("versions").values()
    return bool(subtask.raw["sync"]["unresolvedGroups"])


def _types(pair: Pair, cluster: Cluster) -> None:
    """The edge values of every type: by the snapshot, by the stream, and changed."""
    source, target = pair.source, pair.target
    _all_types(pair, "CREATE DATABASE all_types", all_types.CREATE, *all_types.INSERTS[:14])
    cluster.start_task(
        "name: types\ntask-mode: all\nmeta-schema: dm_meta\n"
        f"target-database: {target.login}\n"
        f"mysql-instances:\n  - {{source-id: {pair.source_id}, block-allow-list: own}}\n"
        "block-allow-list:\n  own: {do-dbs: [all_types]}\n"
    )
    cluster.wait_replicating("types")
    _all_types(pair, *all_types.INSERTS[14:])
    cluster.wait_caught_up("types", {pair.source_id: source})
    assert_same_bytes(source, target, _TABLE, ("id",))
    _all_types(pair, *all_types.CHANGES)
    cluster.wait_caught_up("types", {pair.source_id: source})
    assert_same_bytes(source, target, _TABLE, ("id",))
    cluster.compare("types")
