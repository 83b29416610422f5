"""The commands that pages print for an operator in need: dmctl understands each of them as it is printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from shardmerge.ctl.main import dmctl, run

DOCS = Path(__file__).parents[3] / "docs"
GUIDES = sorted(path for folder in ("how-to", "tutorial", "explanation") for path in (DOCS / folder).rglob("*.md"))
PAGES = [*sorted((DOCS / "runbooks").glob("*.md")), DOCS / "reference" / "ways-out.md"]
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_NEAR = 400  # characters: the sentences before and after a command
_PLACEHOLDERS = {"<file>": "orders.yaml", "<source-file>": "mysql-01.yaml", "<task>": "orders", "<statement>": "X"}


def _commands(page: str) -> Iterator[str]:
    """Yield each command of a page: lines of code blocks, then code spans, which may be broken over lines."""
    for block in _FENCE.findall(page):
        yield from re.findall(r"^ *(dmctl .*)$", block, re.MULTILINE)
    rest = _FENCE.sub("", page)
    yield from re.findall(r"^(?: {4,}|\t)(dmctl .*)$", rest, re.MULTILINE)
    for _, span in _SPAN.findall(re.sub(r"^(?: {4,}|\t)dmctl .*$", "", rest, flags=re.MULTILINE)):
        text = " ".join(span.split())
        if text.startswith("dmctl "):
            yield text


def _block_commands(page: str) -> Iterator[str]:
    """Yield those of code blocks, without what the shell does with their answers."""
    fenced = [line for block in _FENCE.findall(page) for line in re.findall(r"^ *(dmctl .*)$", block, re.MULTILINE)]
    for command in [*fenced, *re.findall(r"^(?: {4,}|\t)(dmctl .*)$", _FENCE.sub("", page), re.MULTILINE)]:
        yield re.split(r" (?:\||&&|>|\|\|) ", command)[0]


def _words(command: str) -> list[str]:
    for name, value in _PLACEHOLDERS.items():
        command = command.replace(name, value)
    return shlex.split(command, comments=True)[1:]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_each_command_is_understood(path: Path, understood: list[str]) -> None:
    commands = list(_commands(path.read_text(encoding="utf-8")))
    assert commands or path.stem == "index"
    for command in commands:
        understood.clear()
        assert run(_words(command)) == 0, command
        assert understood, command


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_the_commands_of_guides_are_understood(path: Path, understood: list[str]) -> None:
    for command in _block_commands(path.read_text(encoding="utf-8")):
        understood.clear()
        assert run(_words(command)) == 0, command
        assert understood, command


def test_guides_have_commands() -> None:
    assert sum(len([*_block_commands(path.read_text(encoding="utf-8"))]) for path in GUIDES) > 200


def _command_of(words: list[str]) -> tuple[click.Command, list[str]] | None:
    command: click.Command = dmctl
    rest = list(words)
    while isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
    return None if command is dmctl else (command, rest)


def test_short_forms_of_the_ways_out_have_known_options() -> None:
    """The tables of the page leave out `dmctl` and the names."""
    found = 0
    for _, span in _SPAN.findall((DOCS / "reference" / "ways-out.md").read_text(encoding="utf-8")):
        known = _command_of(span.split())
        if known is None:
            continue
        command, rest = known
        options = {name for parameter in command.params for name in parameter.opts}
        for word in rest:
            if word.startswith("-"):
                assert word in options, span
                found += 1
    assert found > 10


@pytest.mark.parametrize("path", [*PAGES, *GUIDES], ids=lambda path: path.stem)
def test_held_changes_are_dropped_with_the_consequence(path: Path) -> None:
    for section in re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        for found in re.finditer(r"dmctl\s+quarantine\s+drop", section):
            near = " ".join(section[max(0, found.start() - _NEAR) : found.end() + _NEAR].split())
            assert re.search(r"until `?dmctl compare \w+ --repair`?", near), near


@pytest.mark.parametrize("path", [*PAGES, *GUIDES], ids=lambda path: path.stem)
def test_no_page_shortens_the_life_of_a_binlog(path: Path) -> None:
    """A fixed number may be less than the present one: MySQL 8 has 30 days, and 0 is no limit."""
    text = " ".join(path.read_text(encoding="utf-8").split())
    assert not re.search(r"expire_logs_(seconds|days) = \d", text)


@pytest.mark.parametrize("path", sorted((DOCS / "how-to").glob("*.md")), ids=lambda path: path.stem)
def test_a_guide_that_stops_a_task_says_what_it_costs(path: Path) -> None:
    """Nothing keeps the relay log between stop-task and start-task: the source must still have the binlog."""
    text = path.read_text(encoding="utf-8")
    if any(command.startswith("dmctl stop-task") for command in _block_commands(text)):
        assert re.search(r"[Nn]othing\s+keeps\s+the\s+relay\s+log", text)


def test_what_counts_as_a_command() -> None:
    page = "    dmctl a\n\ntext `dmctl\n b 'c'` and ``dmctl d 'e-`f`'``, `x dmctl g`\n\n```bash\ndmctl h  # why\n```\n"
    assert list(_commands(page)) == ["dmctl h  # why", "dmctl a", "dmctl b 'c'", "dmctl d 'e-`f`'"]
