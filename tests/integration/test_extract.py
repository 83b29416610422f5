"""Tests columns from names: `dmctl compare` checks and repairs them, and finds a shard table's rows by them; tables
that join later have them in their keys."""

from __future__ import annotations

from typing import cast

from tests.support.cluster import Json
from tests.support.world import Family, World

_COLUMNS = (
    '    extract-table: {table-regexp: "order_(.*)", target-column: c_table}\n'
    '    extract-source: {source-regexp: "(.*)", target-column: c_source}\n'
)
_BY_SHARD = "SELECT c_source, c_table, COUNT(*), SUM(id) FROM {}.orders GROUP BY 1, 2 ORDER BY 1, 2"


def test_compare_looks_at_columns_from_names(world: World) -> None:
    family, cluster = world.family("extracted", tables=2), world.cluster
    family.create(300)
    text = family.task().replace("    target-table: orders\n", f"    target-table: orders\n{_COLUMNS}")
    cluster.start_task(text)
    cluster.wait_replicating("extracted")
    same = cluster.compare("extracted")
    assert same.rows >= 1200
    world.target.execute("UPDATE extracted.orders SET c_table = 'x' WHERE c_table = '01' LIMIT 1")
    other = cluster.compare("extracted", check=False)
    assert other.answer.code == 1
    assert {line["kind"] for line in other.lines} <= {"missing", "extra", "different"}
    assert other.lines, other.answer.text
    cluster.dmctl("stop-task", "extracted")


def _without_mapping(family: Family, tables: str, more: str = "") -> str:
    """Return the family's task file, with equal ids in all shard tables."""
    text = more + family.task().replace("    target-table: orders\n", f"    target-table: orders\n{_COLUMNS}")
    lines = [line for line in text.partition("column-mappings:")[0].splitlines() if "column-mapping-rules" not in line]
    own = f'    do-dbs: ["{family.name}_*"]'
    return "\n".join(lines).replace(
        own, f'{own}\n    do-tables: [{{db-name: "{family.name}_*", tbl-name: "{tables}"}}]'
    )


def _expected(family: Family, tables: tuple[str, ...]) -> list[tuple[object, ...]]:
    return [
        (source, table, *server.query(f"SELECT COUNT(*), SUM(id) FROM {family.name}_01.order_{table}")[0])
        for source, server in family.sources
        for table in tables
    ]


def test_tables_that_join_later_keep_apart_by_the_key(world: World) -> None:
    family, cluster, target = world.family("keyed", tables=2), world.cluster, world.target
    family.create(300)
    cluster.start_task(_without_mapping(family, "order_01"))
    cluster.wait_replicating("keyed")
    assert target.query(_BY_SHARD.format("keyed")) == _expected(family, ("01",))
    file = cluster.write("keyed.task.yaml", _without_mapping(family, "order_*", "extract-in-key: always\n"))
    answer = cluster.dmctl("update-task", file).json
    sources = cast("list[Json]", answer["sources"])
    settings = {one["key"] for source in sources for one in cast("list[Json]", source["settings"])}
    assert settings == {"extract-in-key"}
    cluster.wait_joined("keyed")
    cluster.wait_replicating("keyed")
    assert target.query(_BY_SHARD.format("keyed")) == _expected(family, ("01", "02"))
    listed = target.query(
        "SELECT GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX) FROM information_schema.STATISTICS "
        "WHERE TABLE_SCHEMA = 'keyed' AND INDEX_NAME = 'PRIMARY'"
    )
    assert listed == [("id,c_table,c_source",)]
    same = cluster.compare("keyed")
    assert {table["extraUnsought"] for table in cast("list[Json]", same.answer.json["tables"])} == {""}
    target.execute(
        "UPDATE keyed.orders SET c_table = '02', id = 0 WHERE c_table = '01' AND c_source = 'mysql-01' LIMIT 1"
    )
    other = cluster.compare("keyed", check=False)
    found = sorted((str(line["sourceTable"]), str(line["kind"])) for line in other.lines)
    assert found == [("keyed_01.order_01", "missing"), ("keyed_01.order_02", "extra")]
    cluster.dmctl("stop-task", "keyed")
