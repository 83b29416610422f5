"""JSON Schemas of the files, for editors: made from the models (https://json-schema.org/draft/2020-12)."""

from __future__ import annotations

import json
from typing import Any, cast

from proto.config.check import MODELS, Kind


def schema_of(kind: Kind) -> dict[str, Any]:
    """The schema of one kind of file."""
    schema = MODELS[kind].model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"shardmerge {kind.value} file",
        **_untitled(schema),
    }


def _untitled(part: dict[str, Any]) -> dict[str, Any]:
    """Without the titles that pydantic makes of attributes' names."""
    return {
        key: _untitled(cast("dict[str, Any]", value)) if isinstance(value, dict) else value
        for key, value in part.items()
        if key != "title" or not isinstance(value, str)
    }


def schema_text(kind: Kind) -> str:
    """As it is written to a file."""
    return json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"
