"""The commands that errors name: dmctl understands each of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from shardmerge.ctl.main import dmctl, run
from shardmerge.proto.errors import CATALOGUE, ErrorSpec
from tests.integration.ways_out.situations.situation import WAYS_OUT

_COMMAND = re.compile(r"`dmctl ([^`]+)`")
_NAME = re.compile(r"(?<![\w-])[a-z]+-(?:task|relay|source|member|leader|schema|lock|ddl-lock)(?![\w-])")
_PLACEHOLDERS = {
    "<file>": "merge.yaml",
    "<source-file>": "mysql-01.yaml",
    "<task>": "merge",
    "<position>": "mysql-bin.000007:4711",
    "<id>": "4711",
    "<lock>": "merge-`a`.`b`",
    "{id}": "4711",
    "<statement>": "ALTER TABLE a.b ADD COLUMN c INT",
    "skip|revert": "skip",
    "replace|inject": "replace",
    "{task}": "merge",
    "{source}": "mysql-01",
    "{position}": "(mysql-bin.000007, 4711)",
    "{lock}": "'merge-`a`.`b`'",
}
_SPECS = sorted(CATALOGUE.values(), key=lambda spec: spec.code)
_KEYS = {"extract-schema", "extract-source", "meta-schema", "shard-schema"}
"""Configuration keys that look like commands."""


def _filled(command: str) -> list[str]:
    for name, value in _PLACEHOLDERS.items():
        command = command.replace(name, value)
    return shlex.split(re.sub(r"\{\w+\}|<[^>]+>", "x", command))


@pytest.mark.parametrize("spec", [one for one in _SPECS if _COMMAND.search(one.workaround)], ids=lambda one: one.name)
def test_each_command_is_understood(spec: ErrorSpec, understood: list[str]) -> None:
    for command in _COMMAND.findall(spec.workaround):
        understood.clear()
        assert run(_filled(command)) == 0, command
        assert understood, command


@pytest.mark.parametrize("spec", _SPECS, ids=lambda spec: spec.name)
def test_each_named_command_exists(spec: ErrorSpec) -> None:
    text = f"{spec.message} {spec.workaround}"
    unknown = {name for name in _NAME.findall(text) if name not in dmctl.commands} - _KEYS
    assert not unknown


def test_the_page_lists_the_ways_out_that_are_tested() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/ways-out.md").read_text(encoding="utf-8")
    for way in WAYS_OUT:
        assert f"| [{way.code}](errors.md#{way.code}-{CATALOGUE[way.code].name}) | {way.situation} |" in page
