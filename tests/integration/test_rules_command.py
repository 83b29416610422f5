"""Tests `rules` at real servers: it reports what a task then does, and needs no existing table."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.daemon.commands.explain_rules import explain_rules
from shardmerge.worker.rules.transform.session import session
from tests.support.cluster import Cluster
from tests.support.database import Database
from tests.support.pair import KINDS, emptied
from tests.support.ports import free_port

pytestmark = pytest.mark.spark

Name = tuple[str, str]

TASK = """\
name: merge
task-mode: all
target-database: {login}
mysql-instances:
  - source-id: s1
    block-allow-list: shops
    route-rules: [all, carts]
block-allow-list:
  shops:
    do-dbs: ["shop_*"]
    ignore-tables: [{{db-name: "*", tbl-name: "tmp*"}}]
routes:
  all: {{schema-pattern: "shop_*", target-schema: everything}}
  carts: {{schema-pattern: "shop_*", table-pattern: "cart_*", target-schema: shop, target-table: cart}}
"""


@pytest.fixture(scope="module", autouse=True)
def _spark() -> None:
    """Start the JVM before gRPC's threads."""
    session()


@pytest.fixture(scope="module", params=list(KINDS))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Database]:
    made = KINDS[request.param](tmp_path_factory.mktemp("source"), 101)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def source(server: Database) -> Iterator[Database]:
    yield emptied(server)


def _config(server: Database, port: int = 0) -> config_pb2.SourceConfig:
    config = config_pb2.SourceConfig(source_id="s1")
    getattr(config, "from").CopyFrom(
        config_pb2.Endpoint(host=server.host, port=port or server.port, user=server.user, password=server.password)
    )
    return config


def _subtask(*mappings: config_pb2.ColumnMappingRule) -> config_pb2.SubTaskConfig:
    return config_pb2.SubTaskConfig(
        task="merge",
        source_id="s1",
        meta_schema="dm_meta",
        block_allow_list=config_pb2.BlockAllowList(name="shops", do_dbs=["shop_*"]),
        routes=[
            config_pb2.RouteRule(
                name="carts", schema_pattern="shop_*", table_pattern="cart_*", target_schema="shop", target_table="cart"
            )
        ],
        column_mappings=mappings,
    )


def _ids(*arguments: str) -> config_pb2.ColumnMappingRule:
    return config_pb2.ColumnMappingRule(
        name="ids", schema_pattern="shop_*", table_pattern="cart_*", source_column="id", target_column="id",
        expression="partition id", arguments=arguments,
    )  # fmt: skip


def _ask(
    source: config_pb2.SourceConfig, subtask: config_pb2.SubTaskConfig, *names: Name
) -> worker_pb2.WorkerExplainRulesResponse:
    tables = [worker_pb2.ShardTableName(schema=schema, table=table) for schema, table in names]
    return explain_rules(worker_pb2.WorkerExplainRulesRequest(source=source, subtask=subtask, tables=tables))


def _told(answer: worker_pb2.WorkerExplainRulesResponse) -> dict[str, tuple[str, str]]:
    return {f"{one.schema}.{one.table}": (one.target, one.existence) for one in answer.tables}


def test_every_table_of_the_source(source: Database) -> None:
    for schema in ("shop_1", "other"):
        source.execute(f"CREATE DATABASE {schema}")
    source.execute("CREATE TABLE shop_1.cart_1 (id BIGINT PRIMARY KEY)")
    source.execute("CREATE TABLE shop_1.cart_x (id VARCHAR(9) PRIMARY KEY)")
    source.execute("CREATE TABLE other.t (id BIGINT PRIMARY KEY)")
    answer = _ask(_config(source), _subtask(_ids("1", "shop_", "cart_")))
    assert _told(answer) == {
        "other.t": ("", "exists"), "shop_1.cart_1": ("`shop`.`cart`", "exists"),
        "shop_1.cart_x": ("`shop`.`cart`", "exists"),
    }  # fmt: skip
    refused = {one.table: one.error.name for one in answer.tables if one.HasField("error")}
    assert refused == {"cart_x": errors.config.PARTITION_NAME.name}


def test_tables_that_contradict_each_other_and_columns_that_do_not_fit(source: Database) -> None:
    source.execute("CREATE DATABASE shop_1")
    source.execute("CREATE TABLE shop_1.cart_1 (id BIGINT PRIMARY KEY)")
    source.execute("CREATE TABLE shop_1.cart_01 (id BIGINT PRIMARY KEY)")
    source.execute("CREATE TABLE shop_1.cart_2 (id VARCHAR(9) PRIMARY KEY)")
    answer = _ask(_config(source), _subtask(_ids("1", "shop_", "cart_")))
    assert answer.error.name == errors.config.PARTITION_CLASH.name
    assert {one.table: one.error.name for one in answer.tables} == {
        "cart_01": "", "cart_1": "", "cart_2": errors.config.MAPPED_COLUMN_TYPE.name,
    }  # fmt: skip


def test_a_transform_that_one_table_cannot_have(source: Database) -> None:
    source.execute("CREATE DATABASE shop_1")
    source.execute("CREATE TABLE shop_1.cart_1 (id BIGINT PRIMARY KEY, n INT)")
    source.execute("CREATE TABLE shop_1.cart_2 (id BIGINT PRIMARY KEY)")
    subtask = _subtask()
    subtask.transforms.add(name="t", schema_pattern="shop_*", projection="id, n * 2 AS twice")
    answer = _ask(_config(source), subtask)
    assert {one.table: one.error.name for one in answer.tables} == {
        "cart_1": "", "cart_2": errors.config.TRANSFORM_REFUSED.name,
    }  # fmt: skip
    told = {one.table: [rule.name for rule in one.rules if rule.kind == "transform-rules"] for one in answer.tables}
    assert told == {"cart_1": ["t"], "cart_2": ["t"]}


def test_a_table_that_is_not_there_and_a_source_that_is_away(source: Database) -> None:
    source.execute("CREATE DATABASE shop_1")
    source.execute("CREATE TABLE shop_1.cart_1 (id BIGINT PRIMARY KEY)")
    names = ("shop_1", "cart_1"), ("shop_1", "cart_7")
    assert _told(_ask(_config(source), _subtask(), *names)) == {
        "shop_1.cart_1": ("`shop`.`cart`", "exists"), "shop_1.cart_7": ("`shop`.`cart`", "missing"),
    }  # fmt: skip
    away = _config(source, free_port())
    answer = _ask(away, _subtask(), *names)
    assert _told(answer)["shop_1.cart_7"] == ("`shop`.`cart`", "unseen")
    assert answer.unseen.code
    with pytest.raises(ShardmergeError) as caught:
        _ask(away, _subtask())
    assert caught.value.code == answer.unseen.code


def test_through_all_programs_before_a_task_is_there(source: Database, tmp_path: Path) -> None:
    for table in ("cart_1", "cart_2", "tmp_1", "lost"):
        source.execute("CREATE DATABASE IF NOT EXISTS shop_1")
        source.execute(f"CREATE TABLE shop_1.{table} (id BIGINT PRIMARY KEY)")
    with Cluster(tmp_path / "cluster", workers=1) as cluster:
        cluster.create_source("s1", source)
        text = TASK.format(login=source.login)
        file = cluster.write("merge.yaml", text)
        [part] = cluster.dmctl("rules", file).json["sources"]
        told = {table["table"]: table["target"] for table in part["tables"] if table["schema"] == "shop_1"}
        assert told == {
            "cart_1": "`shop`.`cart`",
            "cart_2": "`shop`.`cart`",
            "lost": "`everything`.`lost`",
            "tmp_1": "",
        }
        [cart] = [table for table in part["tables"] if table["table"] == "cart_1"]
        [route] = [rule for rule in cart["rules"] if rule["kind"] == "route-rules"]
        assert (route["name"], route["beaten"]) == ("carts", ["all"])
        settings = cluster.dmctl("--output", "json", "config", "worker", cluster.workers[0].name).json["cfg"]
        assert f"name: {cluster.workers[0].name}" in settings
        assert "master: local[16]" in settings
