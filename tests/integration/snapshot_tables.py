"""Provides servers of either kind for snapshots, tables with keys of every sort, and shards that are merged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardmerge.proto import config_pb2
from shardmerge.worker.core.mysql.connection import Side, connect
from shardmerge.worker.core.mysql.information_schema import read_table
from shardmerge.worker.core.table_plan import ColumnPlan, TablePlan
from tests.integration.snapshot_rig import META, SOURCE, endpoint, subtask_config
from tests.support.database import Database
from tests.support.judge import PartitionIds, Shard, Target, compare
from tests.support.pair import KINDS, emptied, started_pair
from tests.support.writer import ShardTable, create_tables, fill


@pytest.fixture(scope="module", params=KINDS)
def servers(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Database, Database]]:
    """Provide two servers of the same kind; tests/integration/test_pairs.py combines different kinds."""
    kind = KINDS[request.param]
    with started_pair(tmp_path_factory.mktemp("snapshot"), kind, kind) as pair:
        yield pair


@pytest.fixture
def source(servers: tuple[Database, Database]) -> Database:
    return emptied(servers[0])


@pytest.fixture
def target(servers: tuple[Database, Database]) -> Database:
    return emptied(servers[1])


def make_tables(source: Database, *statements: str, schema: str = "shard") -> None:
    """Execute statements in a new schema; the sequence engine needs a default schema."""
    source.execute(f"CREATE DATABASE {schema}", f"USE {schema}", *map(source.spelt, statements))


def make_table(source: Database, name: str) -> None:
    definition, rows = TABLES[name]
    make_tables(source, f"CREATE TABLE t ({definition}) ENGINE=InnoDB", f"INSERT INTO t {rows}", "ANALYZE TABLE t")


def plan_of(source: Database, schema: str, name: str) -> TablePlan:
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE)
    try:
        table = read_table(session, schema, name)
    finally:
        session.close()
    assert table is not None
    columns = tuple(
        ColumnPlan(index, column, column.name) for index, column in enumerate(table.columns) if not column.generated
    )
    return TablePlan(0, SOURCE, table, schema, name, columns, table.key)


TABLES = {
    "composite": (
        "a INT NOT NULL, b VARCHAR(20) NOT NULL, c DATE NOT NULL, v INT, PRIMARY KEY (a, b, c)",
        "SELECT seq DIV 400, CONCAT('k', seq MOD 37), DATE'2020-01-01' + INTERVAL seq DAY, seq FROM seq_1_to_1000",
    ),
    "case_insensitive": (
        "k VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, v INT",
        "SELECT CONCAT(IF(seq % 2, 'Name ', 'nAME '), seq, IF(seq % 3, '', '  ')), seq FROM seq_1_to_990 UNION ALL "
        "SELECT CONCAT('😀', seq), seq FROM seq_1_to_9 UNION ALL SELECT 'ÄÖ''\\\\', 1",
    ),
    "no_pad": (
        "k VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_nopad_ci PRIMARY KEY, v INT",
        "SELECT CONCAT(CHAR(65 + seq % 26), REPEAT(' ', seq % 5), IF(seq % 7, seq, '😀')), MIN(seq) FROM seq_1_to_1000 "
        "GROUP BY 1",
    ),
    "latin1": (
        "k CHAR(12) CHARACTER SET latin1 COLLATE latin1_german2_ci PRIMARY KEY, v INT",
        "SELECT CONCAT(CHAR(0xE4 + seq % 20 USING latin1), seq), seq FROM seq_1_to_1000",
    ),
    "unsigned_limits": (
        "k BIGINT UNSIGNED PRIMARY KEY, v INT",
        "SELECT 18446744073709551615 - seq + 1, seq FROM seq_1_to_1000",
    ),
    "negative": ("k BIGINT PRIMARY KEY, v INT", "SELECT CAST(seq AS SIGNED) - 700, seq FROM seq_1_to_1000"),
    "signed_limits": (
        "k BIGINT PRIMARY KEY, v INT",
        "SELECT -9223372036854775808 + CAST(seq - 1 AS SIGNED), seq FROM seq_1_to_500 UNION ALL "
        "SELECT 9223372036854775807 - CAST(seq - 1 AS SIGNED), seq FROM seq_1_to_500",
    ),
    "big_holes": (
        "k BIGINT PRIMARY KEY, v INT",
        "SELECT seq * seq * seq * 1000003, seq FROM seq_1_to_1000",
    ),
    "crowded": (
        "k BIGINT PRIMARY KEY, v INT",
        "SELECT seq, seq FROM seq_1_to_999 UNION ALL SELECT 500000, 1",
    ),
    "binary": (
        "k BINARY(8) PRIMARY KEY, v INT",
        "SELECT UNHEX(CONCAT(LEFT(SHA2(seq, 256), 14), '00')), seq FROM seq_1_to_1000",
    ),
    "decimals": (
        "k DECIMAL(20,5) PRIMARY KEY, v INT",
        "SELECT (CAST(seq AS SIGNED) - 500) / 3, seq FROM seq_1_to_1000",
    ),
    "floats": ("k FLOAT PRIMARY KEY, v INT", "SELECT (CAST(seq AS SIGNED) - 500) / 7, seq FROM seq_1_to_1000"),
    "moments": (
        "k DATETIME(6) NOT NULL, t TIME(3) NOT NULL, v INT, UNIQUE KEY moment (k, t)",
        "SELECT TIMESTAMP'2020-01-01 00:00:00' + INTERVAL (seq DIV 100) HOUR, "
        "SEC_TO_TIME((CAST(seq % 100 AS SIGNED) - 50) * 777.125), seq FROM seq_1_to_1000",
    ),
    "enums": (
        "e ENUM('zebra','it''s','apple') NOT NULL, n INT NOT NULL, v INT, PRIMARY KEY (e, n)",
        "SELECT seq % 3 + 1, seq, seq FROM seq_1_to_1000",
    ),
    "sets": (
        "n INT NOT NULL, s SET('x','y') NOT NULL, v INT, PRIMARY KEY (n, s)",
        "SELECT seq DIV 3, seq % 3 + 1, seq FROM seq_1_to_1000",
    ),
    "hidden_beside": (
        "k INT NOT NULL, a INT NOT NULL, b INT NOT NULL, UNIQUE read_by (a, b), UNIQUE hidden (k) IGNORED",
        "SELECT seq, seq DIV 7, seq % 7 FROM seq_1_to_1000",
    ),
    "hidden_alone": (
        "k INT NOT NULL, t VARCHAR(9) NOT NULL, PRIMARY KEY (t(3)), UNIQUE hidden (k) IGNORED",
        "SELECT seq, CONCAT(LPAD(seq, 3, '0'), 'tail') FROM seq_1_to_990",
    ),
    "empty": ("k INT PRIMARY KEY, v INT", "SELECT 1, 1 FROM DUAL WHERE FALSE"),
    "one": ("k VARCHAR(10) PRIMARY KEY, v INT", "SELECT 'x', 1"),
    "nullable_unique": ("k INT NULL UNIQUE, v INT", "SELECT IF(seq % 10, NULL, seq), seq FROM seq_1_to_1000"),
}


def shards_of(source: Database, count: int) -> list[ShardTable]:
    return [ShardTable(source.connect, "shard_1", f"t_{number}") for number in range(1, count + 1)]


def merging(target: Database, **snapshot: object) -> config_pb2.SubTaskConfig:
    config = subtask_config(target, **snapshot)
    config.routes.add(
        name="merge", schema_pattern="shard_*", table_pattern="t_*", target_schema="merged", target_table="t"
    )
    config.column_mappings.add(
        name="ids",
        schema_pattern="shard_*",
        table_pattern="t_*",
        source_column="id",
        target_column="id",
        expression="partition id",
        arguments=["1", "shard_", "t_"],
    )
    return config


def assert_merged(source: Database, target: Database, shards: list[ShardTable]) -> None:
    judged = [
        Shard(source.connect, shard.schema, shard.table, PartitionIds(1, 1, number))
        for number, shard in enumerate(shards, 1)
    ]
    verdict = compare(judged, Target(target.connect, "merged", "t"))
    assert verdict.differences == 0, str(verdict)


def prepared(source: Database, rows: int = 3000) -> list[ShardTable]:
    shards = shards_of(source, 2)
    create_tables(shards)
    for shard in shards:
        fill(shard, rows, seed=3)
    source.execute("ANALYZE TABLE shard_1.t_1, shard_1.t_2")
    return shards


def loaded_chunks(target: Database) -> dict[tuple[object, object], tuple[object, ...]]:
    """Return the loaded chunks: (shard, number) → all other columns."""
    found = target.query(f"SELECT * FROM {META}.snapshot_chunk WHERE state = 1")
    return {(row[2], row[3]): row for row in found}
