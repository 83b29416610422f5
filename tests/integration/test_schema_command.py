"""Tests `schema` at real servers: the definitions of target tables, and the groups of shard tables that differ."""

from __future__ import annotations

import pytest

from shardmerge.proto import config_pb2, errors, worker_pb2
from shardmerge.worker.daemon.commands.show_targets import show_targets
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database

__all__ = ["servers", "source", "target"]

PLAIN = "(id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9), KEY v (v))"


@pytest.fixture
def request_(source: Database, target: Database) -> worker_pb2.WorkerExplainRulesRequest:
    """Provide the request for schema shard, merged into shop.orders."""
    subtask = subtask_config(target)
    subtask.auto_increment = config_pb2.AUTO_INCREMENT_KEEP
    subtask.routes.add(
        name="r", schema_pattern="shard", table_pattern="orders_*", target_schema="shop", target_table="orders"
    )
    config = config_pb2.SourceConfig(source_id="s1")
    getattr(config, "from").CopyFrom(config_pb2.Endpoint(host=source.host, port=source.port, user="root"))
    return worker_pb2.WorkerExplainRulesRequest(source=config, subtask=subtask)


def make(source: Database) -> None:
    make_tables(
        source,
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        *(f"CREATE TABLE orders_{number} {PLAIN}" for number in range(1, 6)),
        "CREATE TABLE orders_6 (id INT NOT NULL PRIMARY KEY, v VARCHAR(9), p INT, "
        "CONSTRAINT of_parent FOREIGN KEY (p) REFERENCES parent (id))",
        "CREATE TABLE orders_7 (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9), KEY v (v)) "
        "COMMENT 'PARTITION BY no' PARTITION BY HASH (id) PARTITIONS 2",
    )


def test_before_the_target_exists(
    source: Database, target: Database, request_: worker_pb2.WorkerExplainRulesRequest
) -> None:
    """Equal shard tables are one group; the others show what they have alone, what they lack and what is left out."""
    make(source)
    source.execute("INSERT INTO shard.orders_2 (v) VALUES ('next id')")  # no difference
    orders, parent = sorted(show_targets(request_).targets, key=lambda each: each.target != "`shop`.`orders`")
    assert (parent.target, [group.count for group in parent.groups]) == ("`shard`.`parent`", [1])
    assert not orders.exists
    assert not orders.HasField("error")
    assert orders.statement.startswith("CREATE TABLE IF NOT EXISTS `shop`.`orders` (\n  `id` int")
    assert "NOT NULL AUTO_INCREMENT,\n" in orders.statement
    alike, sixth, seventh = orders.groups
    assert (alike.count, list(alike.examples)) == (5, ["shard.orders_1", "shard.orders_2", "shard.orders_3"])
    assert not alike.only_here
    assert not alike.lacking
    assert not alike.left_out
    assert list(sixth.examples) == ["shard.orders_6"]
    assert [part.split("(")[0].split(" ")[0] for part in sixth.only_here] == ["`id`", "`p`", "KEY"]
    assert [part.split(" ")[0] for part in sixth.lacking] == ["`id`", "KEY"]
    assert [part.split(" REFERENCES")[0] for part in sixth.left_out] == ["CONSTRAINT `of_parent` FOREIGN KEY (`p`)"]
    [clause] = seventh.left_out
    assert clause.upper().startswith("PARTITION BY HASH (")
    assert not target.query("SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'shop'")


def test_an_existing_target(source: Database, target: Database, request_: worker_pb2.WorkerExplainRulesRequest) -> None:
    """Its definition is that of the target's server; a task would stop where a shard table does not fit."""
    make(source)
    target.execute("CREATE DATABASE shop", "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, v VARCHAR(9))")
    request_.tables.add(schema="shard", table="orders_1")
    [orders] = show_targets(request_).targets
    assert orders.exists
    assert orders.statement.startswith("CREATE TABLE `orders` (\n  `id` bigint")
    assert not orders.HasField("error")
    request_.tables.add(schema="shard", table="orders_6")
    [orders] = show_targets(request_).targets
    assert orders.error.code == errors.replicate.TARGET_TABLE_DIFFERS.code
    assert "column p is missing at the target (shard.orders_6)" in orders.error.message


def test_auto_increment_that_is_left_out(
    source: Database, target: Database, request_: worker_pb2.WorkerExplainRulesRequest
) -> None:
    make(source)
    request_.subtask.auto_increment = config_pb2.AUTO_INCREMENT_NONE
    request_.tables.add(schema="shard", table="orders_1")
    [orders] = show_targets(request_).targets
    assert [list(group.left_out) for group in orders.groups] == [["AUTO_INCREMENT"]]
