"""The structure of a table as JSON, for offsets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

from shardmerge.worker.core.table import Column, Table, ValueKind

_DEFAULTS: dict[str, object] = {
    "unsigned": False,
    "charset": "",
    "collation": "",
    "labels": (),
    "generated": False,
    "auto_increment": False,
    "length": 0,
    "written_as": "",
}


def nameless(table: Table) -> Table:
    """The structure without its names, which equal shard tables share."""
    found = table.structure
    return Table(
        "", "", found.columns, found.key, found.key_name, found.unique_keys, False, found.engine,
        key_hidden=found.key_hidden,
    )  # fmt: skip


def structure_to_json(table: Table) -> dict[str, object]:
    return {
        "columns": [_column_to_json(column) for column in table.columns],
        "key": list(table.key),
        "key-name": table.key_name,
        "unique-keys": [list(key) for key in table.unique_keys],
        "engine": table.engine,
        "key-hidden": table.key_hidden,
    }


def structure_from_json(made: Mapping[str, Any], schema: str, name: str) -> Table:
    """Raises KeyError, TypeError or ValueError for what :func:`structure_to_json` does not write."""
    return Table(
        schema=schema,
        name=name,
        columns=tuple(_column_from_json(column) for column in made["columns"]),
        key=tuple(int(at) for at in made["key"]),
        key_name=str(made["key-name"]),
        unique_keys=tuple(tuple(str(column) for column in key) for key in made["unique-keys"]),
        has_foreign_keys=False,
        engine=str(made["engine"]),
        key_hidden=bool(made["key-hidden"]),
    )


def _column_to_json(column: Column) -> dict[str, object]:
    made: dict[str, object] = {}
    for field in fields(column):
        value: object = getattr(column, field.name)
        if field.name in _DEFAULTS and value == _DEFAULTS[field.name]:
            continue
        if isinstance(value, ValueKind):
            value = value.name
        elif isinstance(value, tuple):
            value = list(cast("tuple[object, ...]", value))
        made[field.name] = value
    return made


def _column_from_json(made: Mapping[str, Any]) -> Column:
    values = dict(made)
    values["kind"] = ValueKind[values["kind"]]
    if "labels" in values:
        values["labels"] = tuple(str(label) for label in values["labels"])
    return Column(**values)
