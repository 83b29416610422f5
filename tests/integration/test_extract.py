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


def test_rows_refer_to_rows_of_the_same_shard_table(world: World) -> None:
    cluster, target = world.cluster, world.target
    for _, server in world.sources:
        server.execute("CREATE DATABASE referring_1")
        for shard in (1, 2):
            server.execute(
                f"CREATE TABLE referring_1.users_{shard} (id INT PRIMARY KEY)",
                f"CREATE TABLE referring_1.orders_{shard} (id INT PRIMARY KEY, user_id INT, "
                f"FOREIGN KEY (user_id) REFERENCES users_{shard} (id))",
                f"INSERT INTO referring_1.users_{shard} VALUES (1), (2), (3)",
                f"INSERT INTO referring_1.orders_{shard} VALUES (10, 1), (20, 2), (30, 2), (40, NULL)",
            )
    lines = ["name: referring", "task-mode: all", f"target-database: {target.login}", "mysql-instances:"]
    lines += [f"  - {{source-id: {source}, route-rules: [users, orders]}}" for source, _ in world.sources]
    lines += ["references: none", "routes:"]
    for table in ("users", "orders"):
        lines += [
            f"  {table}:",
            "    schema-pattern: referring_1",
            f'    table-pattern: "{table}_*"',
            "    target-schema: referring",
            f"    target-table: {table}",
            '    extract-table: {table-regexp: "_(.*)", target-column: c_table}',
            '    extract-source: {source-regexp: "(.*)", target-column: c_source}',
        ]
    lines = [line.replace("}", ", block-allow-list: own}") if "source-id" in line else line for line in lines]
    lines += ["block-allow-list:", "  own: {do-dbs: [referring_1]}"]
    cluster.start_task("\n".join(lines) + "\n")
    cluster.wait_replicating("referring")
    same = cluster.compare("referring", "--references", check=False)
    assert (same.total("orphans"), same.lines) == (0, []), same.answer.text
    target.execute("DELETE FROM referring.users WHERE id = 2 AND c_table = '1' AND c_source = 'mysql-02'")
    lost = cluster.compare("referring", "--references", check=False)
    assert {(line["kind"], line["sourceTable"], line["source"], line["key"]["id"]) for line in lost.lines} == {
        ("orphan", "referring_1.orders_1", "mysql-02", order) for order in ("20", "30")
    }, lost.answer.text
    target.execute("INSERT INTO referring.users VALUES (2, '1', 'mysql-02')")
    file = cluster.write("referring.task.yaml", "\n".join(lines) + "\n")
    added: set[str] = set()
    for source in cast("list[Json]", cluster.dmctl("schema", file, "--foreign-keys").json["sources"]):
        targets = cast("list[Json]", source["targets"])
        [key] = [key for each in targets for key in cast("list[Json]", each["foreignKeys"])]
        assert target.query(str(key["orphans"])) == [(0,)]
        assert "(`user_id`, `c_table`, `c_source`) REFERENCES" in str(key["add"])
        added.add(str(key["add"]))
    cluster.dmctl("stop-task", "referring")
    [statement] = added
    target.execute("SET SESSION foreign_key_checks = 1", statement)
