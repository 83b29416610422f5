"""JSON that is stored at the target keeps its field names when classes are renamed: another version reads it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pydantic import TypeAdapter

from shardmerge.worker.target.records import (
    ddl_progress,
    joining_tables,
    parked_tables,
    partitioning,
    shadow_tables,
    subtask_record,
)
from shardmerge.worker.target.records.history import interrupted_copies

_FORMS: dict[str, set[str]] = {
    "ddl_progress": {"at", "file", "gtid_set", "pos", "position", "server"},
    "joining_tables": {
        "at",
        "away",
        "columns",
        "created",
        "dropped",
        "dealing",
        "entries",
        "file",
        "growing",
        "gtid_set",
        "kept",
        "lanes",
        "leaving",
        "loose",
        "number",
        "one_lane",
        "owner",
        "place",
        "pos",
        "position",
        "replays",
        "rules",
        "schema",
        "server",
        "shards",
        "skips",
        "start",
        "table",
        "version",
    },
    "interrupted_copies": {
        "at",
        "collation",
        "file",
        "gtid_set",
        "key",
        "number",
        "place",
        "pos",
        "position",
        "server",
        "type",
    },
    "parked_tables": {
        "after_run",
        "at",
        "behind",
        "contradicts",
        "explicit_timestamp",
        "file",
        "given",
        "gtid_set",
        "is_mariadb",
        "moment",
        "number",
        "place",
        "pos",
        "position",
        "released",
        "resumes_copy",
        "schema",
        "server",
        "since",
        "skips",
        "sql_mode",
        "text",
        "time_zone",
        "why",
    },
    "partitioning": {
        "at",
        "away",
        "columns",
        "created",
        "dropped",
        "file",
        "growing",
        "gtid_set",
        "lanes",
        "leaving",
        "loose",
        "number",
        "one_lane",
        "owner",
        "place",
        "pos",
        "position",
        "rules",
        "schema",
        "server",
        "shards",
        "table",
        "version",
    },
    "shadow_tables": {
        "auto_increment",
        "byte_estimate",
        "charset",
        "collation",
        "columns",
        "creation",
        "engine",
        "explicit_timestamp",
        "generated",
        "given",
        "has_foreign_keys",
        "kept",
        "key",
        "key_hidden",
        "key_name",
        "kind",
        "labels",
        "length",
        "moment",
        "name",
        "nullable",
        "number",
        "row_estimate",
        "schema",
        "sql_mode",
        "table",
        "text",
        "time_zone",
        "type_text",
        "unique_keys",
        "unsigned",
        "why",
        "written_as",
    },
    "subtask_record": {
        "auto_increment",
        "byte_estimate",
        "charset",
        "collation",
        "columns",
        "engine",
        "generated",
        "has_foreign_keys",
        "key",
        "key_hidden",
        "key_name",
        "kind",
        "labels",
        "length",
        "name",
        "nullable",
        "row_estimate",
        "schema",
        "type_text",
        "unique_keys",
        "unsigned",
        "written_as",
    },
}
"""Record -> every field name in its JSON, those of nested objects included."""

_ADAPTERS: dict[str, TypeAdapter[Any]] = {
    "ddl_progress": vars(ddl_progress)["_PLACE"],
    "interrupted_copies": vars(interrupted_copies)["_JSON"],
    "joining_tables": vars(joining_tables)["_JSON"],
    "parked_tables": vars(parked_tables)["_JSON"],
    "partitioning": vars(partitioning)["_JSON"],
    "shadow_tables": vars(shadow_tables)["_JSON"],
    "subtask_record": vars(subtask_record)["_TABLE_JSON"],
}


@pytest.mark.parametrize("mode", ["validation", "serialization"])
@pytest.mark.parametrize("record", sorted(_FORMS))
def test_stored_json_keeps_its_field_names(record: str, mode: Any) -> None:
    schema = _ADAPTERS[record].json_schema(mode=mode, by_alias=True)
    assert _names(schema) == _FORMS[record]


def _names(schema: object) -> set[str]:
    if isinstance(schema, dict):
        fields = cast(dict[str, object], schema)
        own = set(cast(dict[str, object], fields.get("properties", {})))
        return own.union(*map(_names, fields.values()))
    if isinstance(schema, list):
        return set[str]().union(*map(_names, cast(list[object], schema)))
    return set()
