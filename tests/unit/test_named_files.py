"""Files that texts of the tree name are there: a map that points to nothing teaches nothing."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_NAMED = re.compile(
    r"(?<![\w/.-])(?:worker|master|proto|ctl|tests|docs|deploy)(?:/[\w-]+)+\.(?:py|pyi|pxd|h|md|txt|proto|sh)\b"
)
_MADE = re.compile(r"_pb2(_grpc)?\.pyi?$")
"""Built, not kept."""


def _texts() -> list[Path]:
    folders = ("worker", "master", "proto", "ctl", "tests", "docs", "deploy")
    below = [path for folder in folders for ending in ("py", "md") for path in (ROOT / folder).rglob(f"*.{ending}")]
    return [*ROOT.glob("*.md"), *(path for path in below if not _MADE.search(path.name))]


def test_every_file_that_a_text_names_is_there() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in _texts()
        for name in _NAMED.findall(path.read_text(encoding="utf-8"))
        if not _MADE.search(name) and not (ROOT / name).exists()
    }
    assert not missing
