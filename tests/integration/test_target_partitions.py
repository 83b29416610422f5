"""Tests `partitions: keep`: created targets have the partitions of their shard tables, or a check reports why."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.unit.contract import Finished
from shardmerge.worker.verify.precheck import check_subtask
from tests.integration.snapshot_rig import Rig, subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database

__all__ = ["servers", "source", "target"]

RANGES = (
    "PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (10) COMMENT = 'ENGINE = no', "
    "PARTITION high VALUES LESS THAN (1000))"
)
LISTS = "PARTITION BY LIST COLUMNS (v) (PARTITION a VALUES IN ('a  b', 'c'), PARTITION d VALUES IN ('D'))"
HASHES = "PARTITION BY LINEAR KEY ALGORITHM = 2 (id) PARTITIONS 3"
SUBPARTITIONS = (
    "PARTITION BY RANGE (TO_DAYS(day)) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 "
    "(PARTITION old VALUES LESS THAN (737000), PARTITION new VALUES LESS THAN MAXVALUE)"
)
KEYS = {RANGES: "id", LISTS: "id, v", HASHES: "id", SUBPARTITIONS: "id, day"}


def make(source: Database, *clauses: str) -> None:
    """Create a shard table for each clause."""
    make_tables(
        source,
        *(
            "CREATE TABLE t_{} (id INT NOT NULL, v VARCHAR(9) NOT NULL, day DATE NOT NULL, PRIMARY KEY ({})) {}".format(
                number, KEYS.get(clause, "id, v"), clause
            )
            for number, clause in enumerate(clauses, 1)
        ),
        *(
            f"INSERT INTO t_{number} VALUES ({number}, 'c', '2020-02-0{number}')"
            for number in range(1, len(clauses) + 1)
        ),
    )


def merged(target: Database, *, mapped: bool = False) -> config_pb2.SubTaskConfig:
    config = subtask_config(target)
    config.partitions = config_pb2.PARTITIONS_KEEP
    config.routes.add(name="r", schema_pattern="shard", table_pattern="t_*", target_schema="shop", target_table="t")
    if mapped:
        config.column_mappings.add(
            name="m",
            schema_pattern="shard",
            table_pattern="t_*",
            target_column="id",
            expression="partition id",
            arguments=["1", "", "t", "_"],
        )
    return config


def partitions(server: Database, schema: str, table: str) -> list[tuple[object, ...]]:
    """Return what information_schema shows of each partition, without its rows."""
    return server.query(
        "SELECT PARTITION_NAME, SUBPARTITION_NAME, PARTITION_METHOD, REPLACE(PARTITION_EXPRESSION, '`', ''), "
        "SUBPARTITION_METHOD, PARTITION_DESCRIPTION, PARTITION_COMMENT FROM information_schema.PARTITIONS "
        f"WHERE TABLE_SCHEMA = '{schema}' AND TABLE_NAME = '{table}' ORDER BY PARTITION_ORDINAL_POSITION, "
        "SUBPARTITION_ORDINAL_POSITION"
    )


def findings(source: Database, target: Database, *, mapped: bool = False) -> list[pb.CheckResult]:
    config = config_pb2.SourceConfig(source_id="s1")
    getattr(config, "from").CopyFrom(config_pb2.Endpoint(host=source.host, port=source.port, user="root"))
    subtask = merged(target, mapped=mapped)
    subtask.source_id = "s1"
    found = check_subtask(config, subtask)
    return [each for each in found if each.name == "table_schema" and each.state == pb.CHECK_STATE_FAIL]


@pytest.mark.parametrize("clause", list(KEYS), ids=["range", "list", "key", "subpartitions"])
def test_the_target_has_the_partitions_of_its_shard_tables(
    source: Database, target: Database, tmp_path: Path, clause: str
) -> None:
    make(source, clause, clause)
    assert not findings(source, target)
    with Rig(source, target, tmp_path, merged(target)) as rig:
        assert isinstance(rig.run(), Finished)
    own = partitions(source, "shard", "t_1")
    assert len(own) > 1
    assert partitions(target, "shop", "t") == own
    assert len(target.query("SELECT id FROM shop.t")) == 2


@pytest.mark.parametrize("clause", [RANGES, HASHES], ids=["range", "key"])
def test_ranges_of_mapped_columns_are_refused(source: Database, target: Database, tmp_path: Path, clause: str) -> None:
    make(source, clause)
    found = findings(source, target, mapped=True)
    with Rig(source, target, tmp_path, merged(target, mapped=True)) as rig:
        if clause == HASHES:
            assert not found
            assert isinstance(rig.run(), Finished)
            assert len(partitions(target, "shop", "t")) == 3
            return
        assert codes(found) == [errors.check_data.PARTITIONS_NOT_KEPT]
        assert "the values of id are mapped" in found[0].error_msg
        with pytest.raises(ShardmergeError, match="the values of id are mapped") as raised:
            rig.unit()
        assert raised.value.spec is errors.replicate.TARGET_CREATE_REFUSED


def test_shard_tables_with_different_partitions(source: Database, target: Database) -> None:
    make(source, HASHES, HASHES, HASHES.replace("3", "5"), "")
    found = findings(source, target)
    assert codes(found) == [errors.check_data.PARTITIONS_DIFFER]
    groups = found[0].error_msg.partition("cannot keep them: ")[2].split("; ")
    assert [group.partition(": ")[0] for group in groups] == ["shard.t_1, shard.t_2", "shard.t_3", "shard.t_4"]
    assert groups[2].endswith(": no partitions")


def codes(found: list[pb.CheckResult]) -> list[ErrorSpec]:
    specs = (errors.check_data.PARTITIONS_NOT_KEPT, errors.check_data.PARTITIONS_DIFFER)
    return [spec for each in found for spec in specs if spec.code == each.code]
