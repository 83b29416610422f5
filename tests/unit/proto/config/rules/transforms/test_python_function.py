"""The texts of a transform in Python."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from shardmerge.proto.config.rules.transforms.model import Transform
from shardmerge.proto.config.rules.transforms.python_function import (
    OutputType,
    function_name,
    module_name,
    output_type,
)

PYTHON = {"schema-pattern": "s", "python": "own.functions:score", "columns": ["a"], "output": {"b": "BIGINT"}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BIGINT", OutputType("bigint", True)),
        ("bigint not null", OutputType("bigint", False)),
        ("Decimal(12, 2)", OutputType("decimal(12,2)", True)),
        ("DECIMAL(5)", OutputType("decimal(5,0)", True)),
        ("VARCHAR(30) NULL", OutputType("varchar(30)", True)),
        ("DATETIME NOT  NULL", OutputType("timestamp_ntz", False)),
    ],
)
def test_types(text: str, expected: OutputType) -> None:
    assert output_type(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "text", "bigint(20)", "decimal", "decimal(39)", "decimal(5,6)", "varchar", "varchar(0)", "varchar(20000)"],
)
def test_types_that_no_column_has(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        output_type(text)


def test_names_of_functions() -> None:
    assert function_name("own.functions:score") == ("own.functions", "score")


@pytest.mark.parametrize(
    "text",
    ["own.functions", "own.functions:", ":score", "own:a.b", "own:_private", "own:__import__", "own:a()", "../own:a"],
)
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"package\.module:function"):
        function_name(text)


@pytest.mark.parametrize(
    "text", ["os", "subprocess", "importlib.util", "shardmerge.proto.secret", "own-module", "own."]
)
def test_modules_that_no_file_may_allow(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        module_name(text)
    assert module_name("own.functions") == "own.functions"


def test_a_rule_in_python() -> None:
    made = Transform.model_validate({**PYTHON, "output": {"b": "BIGINT NOT NULL"}, "row-filter": True}).to_proto("t")
    assert (made.python, list(made.columns), made.row_filter) == ("own.functions:score", ["a"], True)
    [output] = made.outputs
    assert (output.name, output.type, output.nullable) == ("b", "bigint", False)


@pytest.mark.parametrize(
    "changed",
    [
        {"projection": "*"},
        {"filter": "a = 1"},
        {"columns": []},
        {"columns": ["a", "A"]},
        {"output": {}},
        {"output": {"b": "blob"}},
        {"python": ""},
        {"python": "os.system"},
    ],
)
def test_rules_that_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Transform.model_validate({**PYTHON, **changed})
