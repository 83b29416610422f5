"""JSON Schemas of the files, for editors: generated from the models (https://json-schema.org/draft/2020-12).

A schema accepts the same form of a file as the loader: a scalar may be written as text, number or truth value wherever
the key accepts its text, and a key without a value counts as absent. `dmctl check-config` checks the meaning of values
(patterns, expressions, whether rules fit together).
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from shardmerge.proto.config.check import MODELS, FileKind
from shardmerge.proto.config.document.file_model import empty_if_null, lowered

_ANNOTATIONS = ("description", "default", "deprecated")
_TRUTHS = ("true", "false", "yes", "no", "on", "off", "y", "n", "t", "f", "1", "0")
_WHOLE = r"^\s*[+-]?\d+(_\d+)*(\.0+)?\s*$"
_NUMBER = r"^\s*[+-]?(\d+(_\d+)*\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"


class _Written(GenerateJsonSchema):
    """Generates the schema of a file's content, not that of the models' values."""

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        made = super().str_schema(schema)
        # A validator compares only texts with the pattern, but a number is read as a text.
        numbers = ["number"] if re.search(made.get("pattern", ""), "1") else []
        return {**made, "type": ["string", *numbers, "boolean"]}

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return _or(super().int_schema(schema), {"type": "string", "pattern": _WHOLE})

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return _or(super().float_schema(schema), {"type": "string", "pattern": _NUMBER})

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        return _or(super().bool_schema(schema), {"enum": [0, 1]}, {"type": "string", "pattern": _any_case(_TRUTHS)})

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        made = super().dict_schema(schema)
        return {**made, "additionalProperties": False} if "patternProperties" in made else made

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        made = super().function_before_schema(schema)
        function = schema["function"]["function"]
        if function is empty_if_null:
            return _or(made, {"type": "null"})
        if function is lowered and "enum" in made:
            return _or(made, {"type": "string", "pattern": _any_case(made["enum"])})
        return made

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        required = made.get("required", [])
        properties = cast("dict[str, dict[str, Any]]", made.get("properties", {}))
        for key, form in properties.items():
            if key not in required and {"type": "null"} not in form.get("anyOf", []):
                properties[key] = _or(form, {"type": "null"})
        return made


def _or(schema: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    """``schema`` or one of ``others``; the annotations of ``schema`` apply to all."""
    annotations = {key: schema[key] for key in _ANNOTATIONS if key in schema}
    form = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
    forms = form["anyOf"] if [*form] == ["anyOf"] else [form]
    return {"anyOf": [*forms, *others], **annotations}


def _any_case(words: Any) -> str:
    """A pattern without flags: JSON Schema has none."""
    letters = ("".join(f"[{one.lower()}{one.upper()}]" if one.isalpha() else one for one in word) for word in words)
    return f"^({'|'.join(letters)})$"


def schema_of(kind: FileKind) -> dict[str, Any]:
    """The schema of one kind of file."""
    schema = MODELS[kind].model_json_schema(by_alias=True, schema_generator=_Written)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"shardmerge {kind.value} file",
        **_untitled(schema),
    }


def _untitled(part: dict[str, Any]) -> dict[str, Any]:
    """The schema without the titles that pydantic makes from the attributes' names."""
    return {
        key: _untitled(cast("dict[str, Any]", value)) if isinstance(value, dict) else value
        for key, value in part.items()
        if key != "title" or not isinstance(value, str)
    }


def schema_text(kind: FileKind) -> str:
    """The schema as the text of a file."""
    return json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"
