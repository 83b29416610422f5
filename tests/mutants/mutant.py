"""A mutant: one patch that makes the product wrong, and what has to find it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Mutant:
    """One patch: its place, what it breaks, what has to find it, and the files that it changes."""

    path: Path
    what: str
    tests: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def area(self) -> str:
        return self.path.parent.name

    @property
    def name(self) -> str:
        return f"{self.area}/{self.path.stem}"


def parse(path: Path) -> Mutant:
    text = path.read_text(encoding="utf-8")
    head = re.match(r"What: (\S.*)\nTests: (\S.*)\n\n(?=--- a/)", text)
    if head is None:
        raise ValueError(f"{path}: it has to begin with 'What: …', 'Tests: …' and an empty line")
    return Mutant(path, head[1], tuple(head[2].split()), tuple(re.findall(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE)))


def all_mutants() -> list[Mutant]:
    return [parse(path) for path in sorted(FOLDER.glob("*/*.patch"))]
