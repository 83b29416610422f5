"""docs/architecture.md and worker/target/RECORDS.md agree with the code, and the name of a class has one meaning.

The pages lead a new engineer through the code: each file that they name has to exist, and each record at the target has
to be documented with its columns.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shardmerge.worker.target.records import schema

ROOT = Path(__file__).resolve().parents[2]
_PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
_RECORDS = (ROOT / "worker" / "target" / "RECORDS.md").read_text(encoding="utf-8")

_LEAST_QUESTIONS = 30
_FILE = re.compile(r"`((?:worker|master|ctl|proto|tests|docs)/[\w./-]+)`")


def _section(text: str, title: str) -> str:
    """The text of a heading, up to the next heading of its level or a higher one."""
    level = len(title) - len(title.lstrip("#"))
    found = re.search(rf"^{re.escape(title)}$\n(.*?)(?=^#{{1,{level}}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found.group(1)


# --- docs/architecture.md


def test_every_file_and_folder_of_the_page_exists() -> None:
    named = set(_FILE.findall(_PAGE))
    assert len(named) > 100
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_every_question_is_answered_by_one_file() -> None:
    _, _, *rows = _section(_PAGE, "## Where is … done?").strip().splitlines()
    answers = {question: answer for row in rows for question, answer in [row.strip("| ").split(" | ")]}
    assert len(answers) == len(rows) >= _LEAST_QUESTIONS
    files = [found.group(1) if (found := _FILE.fullmatch(answer)) else answer for answer in answers.values()]
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_every_invariant_names_its_tests() -> None:
    rows = re.findall(r"^\| (I\d+) \| .+ \| (.+) \|$", _section(_PAGE, "## Invariants"), re.MULTILINE)
    assert [name for name, _ in rows] == [f"I{number}" for number in range(1, 10)]
    for name, tests in rows:
        files = _FILE.findall(tests)
        assert files, name
        assert [file for file in files if not (file.startswith("tests/") and (ROOT / file).is_file())] == [], name


def _worker_folders() -> list[str]:
    return re.findall(r"^\| `worker/(\w+)/` \|", _section(_PAGE, "### worker/"), re.MULTILINE)


def test_every_folder_of_the_four_parts_is_described() -> None:
    for part in ("worker", "master", "ctl", "proto"):
        described = re.findall(rf"^\| `{part}/(\w+)/` \|", _section(_PAGE, f"### {part}/"), re.MULTILINE)
        folders = [path.parent.name for path in (ROOT / part).glob("*/__init__.py")]
        assert sorted(described) == sorted(folders), part


def _layers() -> Iterator[list[str]]:
    """The layers of each contract about the worker's folders, the lowest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    for contract in contracts:
        layers = [str(layer).strip("() ").rpartition(".")[2] for layer in contract.get("layers", ())]
        if {"core", "daemon"} <= set(layers):
            yield layers[::-1]


def test_the_folders_are_in_the_order_of_the_import_contract() -> None:
    assert list(_layers()) == [_worker_folders()]


# --- names

_SHARED_NAMES = {
    "FollowingStatements": "of a stream, and of parked tables: both read the statements that follow one",
    "Load": "one is a block of a task file, whose name is part of the JSON Schema",
    "Tls": "one is for programs of users (docs/how-to/call-from-a-program.md), the other is of a server's endpoint",
}
"""Names of several public classes, each with the reason."""


def test_a_public_class_name_has_one_meaning() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for part in ("worker", "master", "proto", "ctl"):
        for path in sorted((ROOT / part).rglob("*.py")):
            if "_pb2" in path.name:
                continue
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules[node.name].append(str(path.relative_to(ROOT)))
    assert len(modules) > 1000
    shared = {name: places for name, places in modules.items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in _SHARED_NAMES} == {}
    assert shared.keys() == _SHARED_NAMES.keys()  # no reason without its names


# --- worker/target/RECORDS.md

_COLUMN = re.compile(r"`(\w+)` [A-Z]")
_KEY = re.compile(r"PRIMARY KEY \((.*?)\)")


def test_one_module_creates_the_tables_of_the_meta_schema() -> None:
    found = [
        path for path in (ROOT / "worker/target").rglob("*.py") if "CREATE TABLE IF NOT EXISTS {" in path.read_text()
    ]
    assert found == [Path(schema.__file__).resolve()]


def _meta_tables() -> dict[str, str]:
    """The CREATE TABLE of each table of the meta schema, by the table's name."""
    return schema.creations("dm_meta")


def _documented() -> dict[str, str]:
    """The section of each table, by its name."""
    names = re.findall(r"^### `(\w+)`$", _RECORDS, re.MULTILINE)
    assert len(names) == len(set(names))
    return {name: _section(_RECORDS, f"### `{name}`") for name in names}


def test_every_table_of_the_meta_schema_is_documented_and_no_other() -> None:
    tables = _meta_tables()
    assert len(tables) >= 20
    assert sorted(_documented()) == sorted(tables)
    listed = re.findall(r"^\| \[`(\w+)`\]\(#(\w+)\) \|", _RECORDS, re.MULTILINE)
    assert all(name == anchor for name, anchor in listed)
    assert [name for name, _ in listed] == list(_documented())


def test_every_column_is_documented_and_no_other() -> None:
    documented = _documented()
    for name, body in _meta_tables().items():
        assert re.findall(r"^\| `(\w+)` \|", documented[name], re.MULTILINE) == _COLUMN.findall(body), name


def test_every_key_is_documented() -> None:
    documented = _documented()
    for name, body in _meta_tables().items():
        key = _KEY.search(body)
        found = re.search(r"\bKey: (.+?)\.(?:\s|$)", documented[name], re.DOTALL)
        columns = re.findall(r"`(\w+)`", found.group(1)) if found is not None else []
        assert columns == (re.findall(r"`(\w+)`", key.group(1)) if key is not None else []), name


def test_every_table_has_its_writers_readers_and_end() -> None:
    for name, text in _documented().items():
        for part in ("- Written by:", "- Read by:", "- Deleted:"):
            assert text.count(part) == 1, (name, part)


def test_every_file_of_the_records_exists() -> None:
    named = set(_FILE.findall(_RECORDS))
    assert len(named) > 30
    assert {name for name in named if not (ROOT / name).exists()} == set()
