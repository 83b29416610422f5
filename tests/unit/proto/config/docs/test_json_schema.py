"""The JSON Schemas say of a file's form what the loader says, both ways."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol, cast

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML

from shardmerge.proto.config.check import MODELS, FileKind
from shardmerge.proto.config.docs.json_schema import schema_of
from shardmerge.proto.config.docs.samples import sample_of
from shardmerge.proto.config.document.yaml_file import compose
from shardmerge.proto.config.key import fields_of, inner_model
from tests.support.examples import examples
from tests.unit.proto.config.samples import SOURCE, TASK

ROOT = Path(__file__).parents[5]
TRIALS = examples(1000)
MEANING = {"value_error"}
"""Errors of the loader that are none of form: patterns, regular expressions, names of events, zones, addresses, PEM
text, expressions, and keys that contradict each other within a block."""
RANGES = {"greater_than_equal", "less_than_equal"}
"""None of form where the number is written as a text."""
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 5, 70000, 2**32, 1.5, "", "x", "5", "-5", "true", "Yes", "off", "10m", "64MiB"),
    *("mysql", "MariaDB", "all", "X" * 70, [], ["a"], [1], [None], [True], [["a"]], [{}], {}, {"a": None}, {"a": {}}),
    *({"a": "b"}, {"a": 1}, {"a b": 1}, {"a": ["b"]}, {"r": {"threads": 1}}, "1e3", "5.0", " 5 "),
]


class Validator(Protocol):
    """What is used of the library's class, whose types say less."""

    def is_valid(self, instance: Any) -> bool: ...
    def iter_errors(self, instance: Any) -> Iterator[Any]: ...


def _validator(kind: FileKind) -> Validator:
    schema = schema_of(kind)
    Draft202012Validator.check_schema(schema)
    return cast("Validator", Draft202012Validator(schema))


def _texts(kind: FileKind) -> Iterator[str]:
    yield sample_of(MODELS[kind])
    yield (ROOT / "deploy" / "examples" / f"{kind.value}.yaml").read_text(encoding="utf-8")
    if kind is FileKind.TASK:
        yield TASK
    if kind is FileKind.SOURCE:
        yield SOURCE
    for path in sorted((Path(__file__).parents[1] / "dm").glob(f"*{kind.value}*.yaml")):
        yield path.read_text(encoding="utf-8")


def _loaded(text: str) -> Any:
    return json.loads(json.dumps(YAML(typ="safe", pure=True).load(text)))


def _errors(kind: FileKind, content: Any) -> list[ErrorDetails]:
    document, findings = compose(json.dumps(content), "f.yaml")
    assert document is not None, findings
    try:
        MODELS[kind].model_validate(document.root)
    except ValidationError as error:
        found = error.errors(include_url=False)
        # Of a list whose items are wrong it is also said that it holds none.
        return [one for one in found if one["type"] != "too_short" or len(found) == 1 or not _at(one["loc"], content)]
    return []


def _at(path: tuple[str | int, ...], content: Any) -> Any:
    for part in path:
        if isinstance(content, dict):
            content = cast("dict[str | int, Any]", content).get(part)
        elif isinstance(content, list) and isinstance(part, int):
            content = cast("list[Any]", content)[part]
        else:
            return None
    return content


def _is_of_form(item: ErrorDetails, content: Any) -> bool:
    if item["type"] in RANGES:
        return not isinstance(_at(item["loc"], content), str)
    return item["type"] not in MEANING


def _blocks(content: Any, model: type[BaseModel]) -> Iterator[tuple[dict[str, Any], type[BaseModel]]]:
    """Every mapping of a file that a model is for."""
    yield content, model
    for key, _, field in fields_of(model):
        inner, value = inner_model(field.annotation), content.get(key)
        if inner is None:
            continue
        known = {name for name, _, _ in fields_of(inner)}
        if isinstance(value, list):
            listed = cast("list[Any]", value)
        elif isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            listed = [named] if known & named.keys() else [*named.values()]
        else:
            continue
        for one in listed:
            if isinstance(one, dict):
                yield from _blocks(one, inner)


@pytest.mark.parametrize("kind", list(FileKind))
def test_every_sample_is_right_by_its_schema(kind: FileKind) -> None:
    validator = _validator(kind)
    for text in _texts(kind):
        found = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(_loaded(text))]
        assert not found, text


@pytest.mark.parametrize("kind", list(FileKind))
def test_schema_and_loader_agree_on_a_file_s_form(kind: FileKind) -> None:
    validator = _validator(kind)
    dice = random.Random(20261122)
    contents = [_loaded(text) for text in _texts(kind)]
    said = {True: 0, False: 0}
    for _ in range(TRIALS):
        content = deepcopy(dice.choice(contents))
        for _ in range(dice.choice((1, 1, 1, 2))):
            block, model = dice.choice([*_blocks(content, MODELS[kind])])
            key, _, field = dice.choice([*fields_of(model)])
            inner = inner_model(field.annotation)
            match dice.randrange(8):
                case 0:
                    block.pop(key, None)
                case 1:
                    block[key + dice.choice("sx")] = dice.choice(VALUES)
                case 2 if inner is not None:
                    name, _, _ = dice.choice([*fields_of(inner)])
                    made = {name: dice.choice(VALUES)}
                    block[key] = dice.choice([made, [made], {"a": made}])
                case _:
                    block[key] = dice.choice(VALUES)
        errors = _errors(kind, content)
        right = validator.is_valid(content)
        said[right] += 1
        if right:
            assert not [one for one in errors if _is_of_form(one, content)], content
        else:
            assert errors, (content, [f"{one.json_path}: {one.message}" for one in validator.iter_errors(content)])
    assert min(said.values()) > TRIALS * 0.15
