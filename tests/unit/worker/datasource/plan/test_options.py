"""Options of mysql-shards: sources, rules, and what is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.datasource.plan.options import parse_options

ONE = {"host": "h", "user": "u", "tables": "shop_*.orders_*"}


def test_one_source_and_its_tables() -> None:
    found = parse_options(
        ONE
        | {"Port": "3307", "password": "secret", "columns": "a, b", "max-undo-mib": "3", "max-inflated-event-mib": "9"}
    )
    [source] = found.sources
    assert (source.source, source.endpoint.host, source.endpoint.port) == ("mysql-01", "h", 3307)
    assert source.endpoint.password == ""
    assert source.connection().password == "secret"
    assert found.most_inflated == 9 << 20
    assert (found.columns, found.most_undo, found.zero_is_null) == (("a", "b"), 3 << 20, False)
    assert source.sends_to(found.target, "shop_1", "orders_9")
    assert not source.sends_to(found.target, "shop_1", "other")
    assert "secret" not in repr(found)


def test_password_of_a_file_and_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_text("secret\r\nother line", encoding="utf-8")
    [source] = parse_options(ONE | {"password-file": str(file)}).sources
    assert source.connection().password == "secret"
    assert b"secret" not in pickle.dumps(source)
    monkeypatch.setenv("OF_THE_ENVIRONMENT", "hidden")
    [source] = parse_options(ONE | {"password-env": "OF_THE_ENVIRONMENT"}).sources
    assert source.connection().password == "hidden"
    assert b"hidden" not in pickle.dumps(source)


def test_task_file_and_its_target(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(
        "name: orders\ntask-mode: all\ntarget-database: {host: t, port: 1, user: u, password: '${NOT_SET}'}\n"
        "mysql-instances:\n- {source-id: a, route-rules: [r]}\n- {source-id: b, route-rules: [r]}\n"
        "routes:\n  r: {schema-pattern: shop_*, table-pattern: orders_*, target-schema: shop, target-table: orders}\n",
        encoding="utf-8",
    )
    sources = json.dumps({name: {"host": name, "user": "u"} for name in "ab"})
    found = parse_options({"sources": sources, "task-file": str(file), "target-table": "shop.orders"})
    assert found.target == TargetTable("shop", "orders")
    assert all(source.sends_to(found.target, "shop_1", "orders_1") for source in found.sources)
    with pytest.raises(ShardmergeError, match="those of the task are a, b"):
        parse_options({"sources": '{"a": {"host": "a", "user": "u"}}', "task-file": str(file), "target-table": "s.t"})


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"host": "h"}, "user"),
        (ONE | {"tabels": "x"}, "tabels"),
        (ONE | {"tables": "orders"}, "schema.table"),
        (ONE | {"tables": ","}, "no pattern"),
        (ONE | {"routes": "{}"}, "give one of"),
        (ONE | {"password": "a", "password-env": "b"}, "only one"),
        (ONE | {"sources": "{}"}, "within it"),
        (ONE | {"chunk-rows": "-1"}, "chunk-rows"),
        (ONE | {"zero-dates": "no"}, "zero-dates"),
        (ONE | {"port": "x"}, "from.port"),
        (ONE | {"column-mappings": "{a: {expression: x}}"}, "column-mappings"),
        ({"sources": "{a: 1}", "tables": "a.b"}, "source a"),
        ({"sources": "{}", "tables": "a.b"}, "no source"),
        ({"host": "h", "user": "u", "task-file": "f", "tables": "a.b"}, "only one of both"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(ShardmergeError) as caught:
        parse_options(options)
    assert named in str(caught.value)
