"""What a bundle consists of: files with a description each, what could not be collected, and the index. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from shardmerge.ctl.as_json import Json
from shardmerge.proto.config.document.redacted import scrubbed
from shardmerge.proto.diagnostics.row_values import without_values
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.escaped_text import escaped

_MOST_NAME_CHARS = 150
_REDACTED = """\
- Passwords, keys and certificates in files (`ssl-…-bytes`, `ssl-…-base64`), and settings whose names indicate a secret
  are `******`. A reference to a variable of the environment (`${NAME}`) is shown, its value is not.
- Comments of configurations are not written.
- A log line has no fields with statements. Of an exception that is not in the error catalogue it has the type and the
  frames, not the text. Of a library's message it has the place, not the text.
- Stacks have names and frames, no values.
- The records in etcd are counted. Their values are not in the bundle.
- There are no log files, no relay logs, and no rows. In the message of an error, `(left out)` is where `query-status`
  and the log show the key or a value of a row, a statement, or the text of a server about a row. Statements of locks
  have no texts (`'…'`).
- The bundle names hosts, accounts, sources, tasks, schemas and tables."""


@dataclass(frozen=True, slots=True)
class BundleFile:
    """``name``: its path within the bundle; ``about``: what it is, for the index."""

    name: str
    text: str
    about: str


@dataclass(frozen=True, slots=True)
class NotCollected:
    """``what``: a phrase; ``error``: why, with its code; ``workaround``: what to do."""

    what: str
    error: str
    workaround: str

    @classmethod
    def of(cls, what: str, error: ShardmergeError) -> NotCollected:
        shown = without_values(error)
        return cls(what, str(shown), shown.workaround)


Item = BundleFile | NotCollected


def json_file(name: str, value: Json, about: str) -> BundleFile:
    """A file of indented JSON."""
    return BundleFile(name, scrubbed(json.dumps(value, ensure_ascii=False, indent=2)) + "\n", about)


def safe_name(name: str) -> str:
    """A name of the cluster as the name of one file: percent-encoded, never hidden, never too long."""
    plain = quote(name, safe=" ").replace("~", "%7E")
    if plain.startswith("."):
        plain = f"%2E{plain[1:]}"
    if len(plain) <= _MOST_NAME_CHARS:
        return plain or "%"
    return f"{plain[: _MOST_NAME_CHARS - 17]}.{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def readme(
    origin: str,
    errors: Sequence[str],
    warnings: Sequence[str],
    files: Sequence[BundleFile],
    missing: Sequence[NotCollected],
) -> BundleFile:
    """The index of ``files``, with what was left out and what could not be collected. ``origin``: when and by whom the
    bundle was made, a sentence; ``errors`` and ``warnings``: a line each."""
    text = "\n".join(_lines(origin, errors, warnings, files, missing)) + "\n"
    return BundleFile("README.md", scrubbed(text), "this index")


def _lines(
    origin: str,
    errors: Sequence[str],
    warnings: Sequence[str],
    files: Sequence[BundleFile],
    missing: Sequence[NotCollected],
) -> Iterator[str]:
    yield from ("# Support bundle of a shardmerge cluster", "", origin)
    yield from _section("Errors now", [escaped(line) for line in errors], "query-status shows no error.")
    yield from _section("Warnings", [escaped(line) for line in warnings], "There is none.")
    yield from _section(
        "Not collected",
        [f"{escaped(one.what)}: {escaped(one.error)}\n  What to do: {escaped(one.workaround)}" for one in missing],
        "Everything was collected.",
    )
    yield from ("", "## Left out", "", _REDACTED, "", "## Files", "", "| File | What it is |", "|---|---|")
    for file in files:
        yield f"| {_cell(f'`{file.name}`')} | {_cell(file.about)} |"
    yield ""
    yield "Prometheus can load `metrics.om`: `promtool tsdb create-blocks-from openmetrics metrics.om DIRECTORY`."


def _section(title: str, lines: Sequence[str], none: str) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    yield from (f"- {line}" for line in lines) if lines else [none]


def _cell(text: str) -> str:
    return escaped(text.replace("\n", " ")).replace("|", "\\|")
