"""docs/reference/metrics.md: every metric, generated from the catalogue.

``python -m shardmerge.proto.metrics.reference`` writes the page. A test fails when the page differs from the catalogue.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from shardmerge.proto.metrics import own_both, own_master, own_worker
from shardmerge.proto.metrics.catalogue import DM, DM_LIBRARIES
from shardmerge.proto.metrics.family import Exporter, Family

PAGE = "metrics.md"
_HEAD = Path(__file__).with_suffix(".md")
_DM_TEXT = """\
Names, labels, types and buckets are those of DM, so that its dashboards and alerts work. A counter of DM without
`_total` in its name is exported under both names.
"""
_WORKER_TEXT = (
    _DM_TEXT
    + """
DM's relay metrics (`dm_relay_binlog_pos`, `dm_relay_space` and others) have no label for the source: a worker has one
source at a time. `dm_source_connected` of the same worker adds it:

    dm_relay_space * on (job, instance) group_left (source_id) group by (job, instance, source_id) (dm_source_connected)
"""
)
_LIBRARY_TEXT = """\
DM's dashboards also show metrics of the libraries that it dumps and loads with.
"""
_ABSENT_TEXT = """\
A dashboard or an alert with one of these names shows nothing.
"""


def page() -> str:
    """The whole page."""
    exported = [family for family in DM if not family.absent]
    parts = [
        _HEAD.read_text(encoding="utf-8"),
        _section("Ours: dm-worker", "", own_worker.FAMILIES),
        _section("Ours: dm-master", "", own_master.FAMILIES),
        _section("Ours: both daemons", "", own_both.FAMILIES),
        _section("DM: dm-worker", _WORKER_TEXT, (each for each in exported if each.exporter is Exporter.WORKER)),
        _section("DM: dm-master", "", (each for each in exported if each.exporter is Exporter.MASTER)),
        _section("DM: dump and load", _LIBRARY_TEXT, (each for each in DM_LIBRARIES if not each.absent)),
        _absent(each for each in (*DM, *DM_LIBRARIES) if each.absent),
    ]
    return "\n".join(parts)


def _section(title: str, text: str, families: Iterable[Family]) -> str:
    lines = [f"## {title}", "", *([text] if text else []), "| metric | type | labels | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{each.name}` | {each.kind.value}{f', {each.unit}' if each.unit else ''} "
        f"| {', '.join(f'`{label}`' for label in each.labels)} | {_plain(each.help)} |"
        for each in families
    ]
    return "\n".join(lines) + "\n"


def _absent(families: Iterable[Family]) -> str:
    lines = ["## DM: not exported", "", _ABSENT_TEXT, "| metric | why |", "|---|---|"]
    lines += [f"| `{each.name}` | {_plain(each.absent)} |" for each in families]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """The text in a cell; names with an underscore are code."""
    words = (f"`{word}`" if "_" in word and "`" not in word else word for word in text.split())
    return " ".join(words).replace("|", "\\|")


def write(folder: Path) -> None:
    """Write the page into a folder."""
    (folder / PAGE).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "docs/reference")
