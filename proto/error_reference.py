"""docs/reference/errors.md: every error of the catalogue, generated from the catalogue.

``python -m shardmerge.proto.error_reference`` writes the page. A test fails when the page differs from the catalogue.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from shardmerge.proto.errors import CATALOGUE, ErrorSpec

PAGE = "errors.md"
_HEAD = Path(__file__).with_suffix(".md")
_CLASSES = {
    "check": "Pre-checks",
    "config": "Configuration",
    "ctl": "dmctl",
    "ddl": "DDL",
    "decode": "Binlog decoder",
    "master": "dm-master",
    "read": "Reading into Spark",
    "relay": "Source connection and relay log",
    "replicate": "Replication",
    "snapshot": "Snapshot",
    "compare": "Comparison",
    "tls": "TLS between the processes",
    "worker": "dm-worker",
}
"""The heading of each error class."""

_CODE_SPAN = re.compile(r"(`[^`]*`)")
_MARKUP = re.compile(r"([*_\[\]<>|\\])")


def page() -> str:
    """The whole page, classes in the order of their first code."""
    by_class: dict[str, list[ErrorSpec]] = {}
    for _, spec in sorted(CATALOGUE.items()):
        by_class.setdefault(spec.error_class, []).append(spec)
    parts = [_HEAD.read_text(encoding="utf-8")]
    for error_class, specs in by_class.items():
        parts.append(f"## {_CLASSES[error_class]}\n")
        parts.extend(_entry(spec) for spec in specs)
    return "\n".join(parts)


def _entry(spec: ErrorSpec) -> str:
    facts = f"Look at: {spec.scope.name.lower()}. Level: {spec.level.name.lower()}."
    if spec.retryable:
        facts += " Retried."
    return f"### {spec.code} {spec.name}\n\n{facts}\n\n> {_plain(spec.message)}\n\n{_plain(spec.workaround)}\n"


def _plain(text: str) -> str:
    """The text with Markdown's special characters escaped, except in code spans."""
    parts = _CODE_SPAN.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") else _MARKUP.sub(r"\\\1", part) for part in parts)


def write(folder: Path) -> None:
    """Write the page into a folder."""
    (folder / PAGE).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "docs/reference")
