"""`dmctl decode-id`: a merged id taken apart by the task file alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardmerge.ctl.main import run
from shardmerge.ctl.merged_id import decode
from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError

TASK = """\
name: merge
task-mode: all
target-database: {host: t, port: 4000, user: root, password: ""}
mysql-instances:
  - {source-id: one, block-allow-list: all, route-rules: [orders, logs], column-mapping-rules: [ids-1, logs-1]}
  - {source-id: two, block-allow-list: all, route-rules: [orders], column-mapping-rules: [ids-2]}
block-allow-list: {all: {do-dbs: ["shop_*"]}}
routes:
  orders: {schema-pattern: "shop_*", table-pattern: "order*", target-schema: shop, target-table: orders}
  logs: {schema-pattern: "shop_*", table-pattern: "log*", target-schema: shop, target-table: logs}
column-mappings:
  ids-1: {schema-pattern: "shop_*", table-pattern: "order*", expression: partition id, source-column: id,
          target-column: id, arguments: ["1", "shop", "order", "_"]}
  ids-2: {schema-pattern: "shop_*", table-pattern: "order*", expression: partition id, source-column: id,
          target-column: id, arguments: ["2", "shop", "order", "_"]}
  logs-1: {schema-pattern: "shop_*", table-pattern: "log*", expression: partition id, source-column: no,
           target-column: no, arguments: ["1", "shop", "log", "_"]}
"""
ID = 1 << 59 | 2 << 52 | 3 << 44 | 4711


def test_each_mapping_that_makes_the_id_is_reported() -> None:
    first, second = decode(TASK, "merge.yaml", ID)
    assert (first.mapping, first.sources, first.column) == ("ids-1", ("one",), "id")
    assert (first.instance, first.schemas, first.tables, first.original) == (1, ("shop_2",), ("order_3",), 4711)
    assert second.tables == ("log_3",)
    assert first.where == f"`id` BETWEEN {ID - 4711} AND {ID - 4711 + (1 << 44) - 1}"
    assert first.select == (
        "(`id` >> 59 & 15) AS instance, (`id` >> 52 & 127) AS schema_number, (`id` >> 44 & 255) AS table_number, "
        "(`id` & 17592186044415) AS original_id"
    )


def test_the_target_table_separates_mappings() -> None:
    assert [each.mapping for each in decode(TASK, "merge.yaml", ID, "shop.logs")] == ["logs-1"]
    assert [each.mapping for each in decode(TASK, "merge.yaml", ID, "shop.orders")] == ["ids-1"]


def test_number_zero_is_that_of_the_bare_name() -> None:
    # shop_ is what the patterns want: shop alone is not meant.
    [found] = decode(TASK, "merge.yaml", 2 << 59)
    assert (found.sources, found.schemas, found.tables) == (("two",), ("shop_0",), ("order", "order_0"))


@pytest.mark.parametrize("number", [3 << 59, -1, 1 << 63])
def test_an_id_of_no_mapping_is_refused(number: int) -> None:
    with pytest.raises(ShardmergeError) as caught:
        decode(TASK, "merge.yaml", number)
    assert caught.value.spec is errors.config.ID_OF_NOBODY


def test_the_command_asks_no_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "merge.yaml"
    file.write_text(TASK)
    assert run(["decode-id", str(file), str(ID), "--table", "shop.orders"]) == 0
    [answer] = json.loads(capsys.readouterr().out)["ids"]
    assert answer["tables"] == ["order_3"]
    assert run(["--output", "table", "decode-id", str(file), str(ID)]) == 0
    assert "table     order_3\nid        4711" in capsys.readouterr().out
    assert run(["decode-id", str(file), "5"]) == 1
    assert "[11012 " in capsys.readouterr().err
