"""The reference page and the JSON Schemas are those that the models generate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from shardmerge.master.commands.task import update
from shardmerge.proto.config.check import MODELS, FileKind
from shardmerge.proto.config.docs.json_schema import schema_of
from shardmerge.proto.config.docs.reference import PAGE, page, write
from shardmerge.proto.config.key import fields_of, inner_model, key_of
from shardmerge.proto.config.task.model import TaskModel

DOCS = Path(__file__).parents[5] / "docs" / "reference"


def test_the_files_of_docs_are_current(tmp_path: Path) -> None:
    write(tmp_path)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.*"))
    schemas = [f"schema/{kind}.json" for kind in ("master", "source", "task", "worker")]
    assert [str(path) for path in made] == [PAGE, *schemas]
    for path in made:
        same = (tmp_path / path).read_text() == (DOCS / path).read_text()
        assert same, f"docs/reference/{path} is outdated: run python -m shardmerge.proto.config.docs.reference"


def every_key(model: type[BaseModel], path: str) -> Iterator[tuple[str, str]]:
    for key, _, field in fields_of(model):
        yield f"{path}{key}", key_of(field).meaning
        inner = inner_model(field.annotation)
        if inner is not None:
            yield from every_key(inner, f"{path}{key}.")


@pytest.mark.parametrize("kind", list(FileKind))
def test_every_key_has_a_meaning_and_is_on_the_page(kind: FileKind) -> None:
    text = page()
    keys = list(every_key(MODELS[kind], ""))
    assert len(keys) > 20
    for path, meaning in keys:
        assert meaning.endswith("."), path
        assert f"| `{path.rpartition('.')[2]}` |" in text, path


def test_live_keys_are_those_of_update_task() -> None:
    live = {key for key, _, field in fields_of(TaskModel) if key_of(field).live}
    words = {
        "autoIncrement": "auto-increment",
        "extractInKey": "extract-in-key",
        "columnMappings": "column-mappings",
        "noReferences": "references",
        "caseSensitive": "case-sensitive",
        "blockAllowList": "block-allow-list",
        "ignoreCheckingItems": "ignore-checking-items",
        "shardMode": "shard-mode",
        "eventFilters": "filters",
        "expressionFilters": "expression-filter",
    }
    changeable = {words.get(name, name) for name in update._CHANGEABLE}  # pyright: ignore[reportPrivateUsage]
    assert changeable - live == {"sourceFilters"}  # of the source's file


def test_the_schema_is_strict_and_describes() -> None:
    schema = schema_of(FileKind.TASK)
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["name", "task-mode", "target-database", "mysql-instances"]
    assert schema["properties"]["timezone"]["deprecated"]
    assert schema["properties"]["task-mode"]["enum"][:3] == ["full", "incremental", "all"]
    assert "title" not in schema["properties"]["name"]
