"""docs/reference/dmctl.md: every command and option of dmctl, generated from the click commands.

``python -m shardmerge.ctl.reference`` writes the page. A test fails when the page differs from the commands.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

import click

from shardmerge.ctl.main import dmctl
from shardmerge.ctl.shell.name_or_command import NameOrCommand

PAGE = "dmctl.md"
_HEAD = Path(__file__).with_suffix(".md")
_AREAS = {
    "task": "Tasks",
    "source": "Sources and relay logs",
    "cluster": "Cluster and stored configurations",
    "local": "Without a server",
}
"""The heading of each folder of ``ctl/commands``; commands of no folder belong to the last one."""

_PLACE_OF_OPTIONS = "<!-- options -->"
_CODE_SPAN = re.compile(r"(`[^`]*`)")


def page() -> str:
    """The whole page: the visible commands by area, then the hidden ones under DM's older names."""
    parts = [_HEAD.read_text(encoding="utf-8").replace(_PLACE_OF_OPTIONS, _options(dmctl).rstrip())]
    sections: dict[str, list[str]] = {title: [] for title in (*_AREAS.values(), "Older names")}
    for path, command, area in _commands():
        sections[area].append(_section(path, command))
    for title, section in sections.items():
        parts.append(f"## {title}\n")
        parts.extend(section)
    return "\n".join(parts)


def _commands() -> Iterator[tuple[str, click.Command, str]]:
    for path, command in walk(dmctl, "dmctl"):
        yield path, command, "Older names" if command.hidden else _area(command)


def walk(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command below a group with the words that call it; groups before their commands."""
    for name, command in sorted(group.commands.items()):
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from walk(command, f"{path} {name}")


def _area(command: click.Command) -> str:
    module = getattr(command.callback, "__module__", "")
    folder = module.partition(".commands.")[2].partition(".")[0]
    return _AREAS.get(folder, _AREAS["local"])


def _section(path: str, command: click.Command) -> str:
    text, example = _help(command)
    parts = [f"### {path}\n", f"    {_usage(path, command)}\n"]
    parts.extend(f"{' '.join(paragraph.split())}\n" for paragraph in text.split("\n\n") if paragraph.strip())
    if example:
        parts.append("    " + "\n    ".join(example) + "\n")
    shown = command.named if isinstance(command, NameOrCommand) else command
    if options := _options(shown):
        parts.append(options)
    return "\n".join(parts)


def _usage(path: str, command: click.Command) -> str:
    shown = command.named if isinstance(command, NameOrCommand) else command
    context = click.Context(shown, info_name=path)
    words = shown.collect_usage_pieces(context)
    return " ".join([path, *(word for word in words if word != "[OPTIONS]")])


def _help(command: click.Command) -> tuple[str, list[str]]:
    """The description of a command, and the lines of its example."""
    text, _, example = inspect.cleandoc(command.help or "").replace("\b\n", "").partition("Example:\n")
    return text, [line.strip() for line in example.splitlines() if line.strip()]


def _options(command: click.Command) -> str:
    """The table of a command's own options; the options of every command are in the table of ``dmctl``."""
    context = click.Context(command)
    rows: list[str] = []
    for option in command.params:
        if not isinstance(option, click.Option) or (option.name == "source" and command is not dmctl):
            continue
        record = option.get_help_record(context)
        if record is None:
            continue
        names, meaning = record
        rows.append(f"| {_code(names)} | {_cell(' '.join(meaning.split()))} |")
    return "\n".join(["| Option | Meaning |", "|---|---|", *rows, ""]) if rows else ""


def _code(text: str) -> str:
    """Code in one cell of a table; as HTML where it has a `|`, which not every reader accepts within backticks."""
    return f"<code>{escape(text, quote=False).replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def _cell(text: str) -> str:
    """Text in one cell of a table: a `|` would end the cell, a `<` outside of code would begin an HTML element."""
    parts = _CODE_SPAN.split(text)
    return "".join(
        _code(part[1:-1]) if part.startswith("`") else part.replace("<", "&lt;").replace("|", "\\|") for part in parts
    )


def write(folder: Path) -> None:
    """Write the page into a folder."""
    (folder / PAGE).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "docs/reference")
