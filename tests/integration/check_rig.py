"""Provides a server with two shards to check, and the expected results of the checks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import worker_pb2 as pb
from tests.support.database import Database
from tests.support.pair import KINDS

SOURCE_ITEMS = [
    "connection",
    "version",
    "server_id",
    "binlog_enable",
    "binlog_format",
    "binlog_row_image",
    "replication_privilege",
]


SUBTASK_ITEMS = [
    *SOURCE_ITEMS,
    "binlog_db",
    "dump_privilege",
    "online_ddl",
    "table_schema",
    "primary_key",
    "references",
    "auto_increment_ID",
    "filter_rules",
    "gtid_gaps",
    "binlog_retention",
    "target_connection",
    "downstream_version",
    "target_privilege",
    "schema_of_shard_tables",
    "target_indexes",
    "extracted_columns",
    "downstream_table_empty",
    "triggers",
    "collation",
    "sql_mode",
    "free_space",
    "conn_number",
    "clock_skew",
    "local_infile",
    "empty_region",
    "region_distribution",
    "downstream_mutex_features",
]


@pytest.fixture(scope="module", params=KINDS)
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = KINDS[request.param](tmp_path_factory.mktemp("check"), 21)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def fresh(server: Database) -> Database:
    """Return the server with empty schemas shard_1, shard_2 and users dm (source) and writer (target) without
    grants."""
    for schema in ("shard_1", "shard_2", "merged", "other"):
        server.execute(f"DROP DATABASE IF EXISTS {schema}")
    server.execute(
        "CREATE DATABASE shard_1",
        "CREATE DATABASE shard_2",
        "CREATE TABLE shard_1.t_1 (id bigint AUTO_INCREMENT PRIMARY KEY, v int)",
        "CREATE TABLE shard_2.t_2 (id bigint AUTO_INCREMENT PRIMARY KEY, v int)",
        "DROP USER IF EXISTS dm@'127.0.0.%'",
        "DROP USER IF EXISTS writer@'%'",
        "CREATE USER dm@'127.0.0.%' IDENTIFIED BY 'secret'",
        "CREATE USER writer@'%' IDENTIFIED BY 'secret'",
    )
    return server


def source_of(server: Database, user: str = "root", password: str = "", **more: object) -> config.SourceConfig:
    made = config.SourceConfig(source_id="mysql-01", flavor="auto", **more)  # pyright: ignore[reportArgumentType]
    getattr(made, "from").CopyFrom(endpoint(server, user, password))
    return made


def endpoint(server: Database, user: str = "root", password: str = "") -> config.Endpoint:
    return config.Endpoint(
        host="127.0.0.1", port=server.port, user=user, password=password, allow_public_key_retrieval=server.takes_key
    )


def subtask_of(server: Database, user: str = "root", password: str = "", mapped: bool = True) -> config.SubTaskConfig:
    made = config.SubTaskConfig(
        task="merge",
        source_id="mysql-01",
        mode=config.TASK_MODE_ALL,
        meta_schema="dm_meta",
        target=endpoint(server, user, password),
        block_allow_list=config.BlockAllowList(name="shards", do_dbs=["shard_*"]),
        routes=[
            config.RouteRule(
                name="r", schema_pattern="shard_*", table_pattern="t_*", target_schema="merged", target_table="t"
            )
        ],
    )
    if mapped:
        made.column_mappings.add(
            name="m", schema_pattern="shard_*", table_pattern="t_*", source_column="id", target_column="id",
            expression="partition id", arguments=["1", "shard", "t", "_"],
        )  # fmt: skip
    return made


def found(results: list[pb.CheckResult], state: pb.CheckState) -> dict[str, pb.CheckResult]:
    return {result.name: result for result in results if result.state == state}


def failures(results: list[pb.CheckResult]) -> dict[str, pb.CheckResult]:
    return found(results, pb.CHECK_STATE_FAIL)


def warnings(results: list[pb.CheckResult]) -> dict[str, pb.CheckResult]:
    return found(results, pb.CHECK_STATE_WARN)
