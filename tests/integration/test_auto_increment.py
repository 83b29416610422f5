"""Tests AUTO_INCREMENT of created targets: after a cut-over, an INSERT that names no id gets one above all ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.proto import config_pb2
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.target.tables.index_adder import IndexAdder
from shardmerge.worker.unit.contract import Finished
from tests.integration.snapshot_rig import META, Rig, subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database

__all__ = ["servers", "source", "target"]

TARGET = TargetTable("shop", "orders")
ZERO_IS_AN_ID = "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'"


def merged(
    target: Database, auto_increment: config_pb2.AutoIncrement, *, mapped: bool = False
) -> config_pb2.SubTaskConfig:
    """Return a configuration that merges shard.orders_* into shop.orders."""
    config = subtask_config(target)
    config.auto_increment = auto_increment
    config.routes.add(
        name="r", schema_pattern="shard", table_pattern="orders_*", target_schema="shop", target_table="orders"
    )
    if mapped:
        config.column_mappings.add(
            name="m",
            schema_pattern="shard",
            table_pattern="orders_*",
            source_column="id",
            target_column="id",
            expression="partition id",
            arguments=["1", "", "orders", "_"],
        )
    return config


def make(source: Database) -> None:
    """Create two shard tables: ids 1 and 2, and an id 0 and 70."""
    definition = "(id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20), KEY v (v))"
    make_tables(
        source,
        f"CREATE TABLE orders_1 {definition}",
        f"CREATE TABLE orders_2 {definition}",
        "INSERT INTO orders_1 (v) VALUES ('a'), ('b')",
        ZERO_IS_AN_ID,
        "INSERT INTO orders_2 VALUES (0, 'zero'), (70, 'c')",
    )


def ids(target: Database) -> list[object]:
    return [row[0] for row in target.query("SELECT id FROM shop.orders ORDER BY id")]


def is_numbered(target: Database) -> bool:
    [(text,)] = target.query(
        "SELECT EXTRA FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'shop' AND TABLE_NAME = 'orders' "
        "AND COLUMN_NAME = 'id'"
    )
    return "auto_increment" in str(text).lower()


def adder_of(rig: Rig) -> IndexAdder:
    return IndexAdder(rig.target_endpoint, META, rig.config.task, [plan.target for plan in rig.plans], patient=True)


def test_keep_numbers_from_the_start(source: Database, target: Database, tmp_path: Path) -> None:
    """Ids of the sources stay, 0 included; the next id is above them all."""
    make(source)
    with Rig(source, target, tmp_path, merged(target, config_pb2.AUTO_INCREMENT_KEEP)) as rig:
        unit = rig.unit()
        assert is_numbered(target)
        assert isinstance(unit.run(StopSignal()), Finished)
        assert ids(target) == [0, 1, 2, 70]
        source.execute("INSERT INTO shard.orders_1 VALUES (900, 'd')")
        rig.follow()
    target.execute("INSERT INTO shop.orders (v) VALUES ('after the cut-over')")
    assert ids(target) == [0, 1, 2, 70, 900, 901]


def test_keep_numbers_above_mapped_ids(source: Database, target: Database, tmp_path: Path) -> None:
    make(source)
    with Rig(source, target, tmp_path, merged(target, config_pb2.AUTO_INCREMENT_KEEP, mapped=True)) as rig:
        assert isinstance(rig.run(), Finished)
    before = ids(target)
    assert len(before) == 4
    highest = before[-1]
    assert isinstance(highest, int)
    assert highest > 2**44
    target.execute("INSERT INTO shop.orders (v) VALUES ('after the cut-over')")
    assert ids(target) == [*before, highest + 1]


def test_after_max_numbers_when_the_load_has_ended(source: Database, target: Database, tmp_path: Path) -> None:
    """The ALTER TABLE that adds AUTO_INCREMENT keeps every id, 0 included."""
    make(source)
    with Rig(source, target, tmp_path, merged(target, config_pb2.AUTO_INCREMENT_AFTER_MAX)) as rig:
        unit = rig.unit()
        assert not is_numbered(target)
        adder = adder_of(rig)
        assert isinstance(unit.run(StopSignal()), Finished)
        assert not is_numbered(target)
        adder.add(StopSignal())
    assert is_numbered(target)
    assert ids(target) == [0, 1, 2, 70]
    assert not target.query(f"SELECT 1 FROM {META}.deferred_index")
    target.execute("INSERT INTO shop.orders (v) VALUES ('after the cut-over')")
    assert ids(target) == [0, 1, 2, 70, 71]


def test_after_max_keeps_what_changed_meanwhile(source: Database, target: Database, tmp_path: Path) -> None:
    """The column is altered as the target has it, not as it was created."""
    make(source)
    with Rig(source, target, tmp_path, merged(target, config_pb2.AUTO_INCREMENT_AFTER_MAX)) as rig:
        assert isinstance(rig.run(), Finished)
        target.execute("ALTER TABLE shop.orders MODIFY id BIGINT NOT NULL COMMENT 'AUTO_INCREMENT, NOT NULL'")
        adder_of(rig).add(StopSignal())
    [(kind, comment)] = target.query(
        "SELECT DATA_TYPE, COLUMN_COMMENT FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'shop' "
        "AND COLUMN_NAME = 'id'"
    )
    assert (str(kind).lower(), comment) == ("bigint", "AUTO_INCREMENT, NOT NULL")
    assert is_numbered(target)


def test_a_deferred_index_that_the_column_needs_stays(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only index that begins with the column is not dropped for the load; the other one is."""
    monkeypatch.setattr("shardmerge.worker.target.tables.deferred_index.DEFER_FROM_ROWS", 0)
    make_tables(
        source,
        "CREATE TABLE orders_1 (k INT PRIMARY KEY, id INT NOT NULL AUTO_INCREMENT, v INT, KEY id (id), KEY v (v))",
        "INSERT INTO orders_1 (k, v) VALUES (1, 1), (2, 2)",
    )
    config = merged(target, config_pb2.AUTO_INCREMENT_KEEP)
    config.load.defer_indexes = True
    with Rig(source, target, tmp_path, config) as rig:
        rig.unit()
        assert is_numbered(target)
        assert {row[2] for row in target.query("SHOW INDEX FROM shop.orders")} == {"PRIMARY", "id"}


def test_none_has_no_numbers(source: Database, target: Database, tmp_path: Path) -> None:
    make(source)
    with Rig(source, target, tmp_path, merged(target, config_pb2.AUTO_INCREMENT_NONE)) as rig:
        assert isinstance(rig.run(), Finished)
        adder_of(rig).add(StopSignal())
    assert not is_numbered(target)


def test_the_value_of_a_route_wins(source: Database, target: Database, tmp_path: Path) -> None:
    make(source)
    config = merged(target, config_pb2.AUTO_INCREMENT_KEEP)
    config.routes[0].auto_increment = config_pb2.AUTO_INCREMENT_NONE
    with Rig(source, target, tmp_path, config) as rig:
        rig.unit()
    assert not is_numbered(target)
