"""Tests columns from names: `dmctl compare` checks and repairs them."""

from __future__ import annotations

from tests.support.world import World

_COLUMNS = (
    '    extract-table: {table-regexp: "order_(.*)", target-column: c_table}\n'
    '    extract-source: {source-regexp: "(.*)", target-column: c_source}\n'
)


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
