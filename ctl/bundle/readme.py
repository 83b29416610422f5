"""The index of a bundle, for its readers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardmerge.ctl.bundle.contents import BundleFile, NotCollected
from shardmerge.proto.config.document.redacted import scrubbed
from shardmerge.proto.escaped_text import escaped

NAME = "README.md"
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
class About:
    """``made_at``: UTC; ``master``: the address that answered. ``errors`` and ``warnings``: a line each."""

    made_at: str
    version: str
    master: str
    errors: Sequence[str]
    warnings: Sequence[str]


def readme(about: About, files: Sequence[BundleFile], missing: Sequence[NotCollected]) -> BundleFile:
    """The index of ``files``, with what was left out and what could not be collected."""
    text = "\n".join(_lines(about, files, missing)) + "\n"
    return BundleFile(NAME, scrubbed(text), "this index")


def _lines(about: About, files: Sequence[BundleFile], missing: Sequence[NotCollected]) -> Iterator[str]:
    yield "# Support bundle of a shardmerge cluster"
    yield ""
    yield f"Made at {about.made_at} by dmctl {about.version} from master {about.master}."
    yield from _section("Errors now", [escaped(line) for line in about.errors], "query-status shows no error.")
    yield from _section("Warnings", [escaped(line) for line in about.warnings], "There is none.")
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
