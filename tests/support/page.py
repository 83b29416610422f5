"""Runs the statements and commands of a page of the documentation, as they are on the page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.cluster import Answer, Cluster
from tests.support.daemon import ROOT
from tests.support.database import Database

DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```(sql|bash|yaml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"^\s*(?:--|#).*$", re.MULTILINE)

Rows = list[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code. ``place``: for SQL, where it runs: the comment in its first line."""

    language: str
    text: str

    @property
    def place(self) -> str:
        return self.text.partition("\n")[0].removeprefix("-- ") if self.language == "sql" else ""


def blocks(page: Path, section: str) -> list[Block]:
    """Return the blocks of the one section whose heading begins with ``section``."""
    parts = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    [part] = [part for part in parts if part.startswith(section)]
    return [Block(found.group(1), found.group(2)) for found in _BLOCK.finditer(part)]


def statements(text: str, folder: Path) -> Iterator[str]:
    """Return the statements of a block or file; those of the files that SOURCE names are included."""
    for statement in re.split(r";\s*(?:\n|\Z)", _COMMENT.sub("", text)):
        words = statement.split()
        if words[:1] == ["SOURCE"]:
            yield from statements((folder / words[1]).read_text(encoding="utf-8"), folder)
        elif words:
            yield statement.strip()


@dataclass(frozen=True, slots=True)
class Schema:
    """A place where a block of SQL runs. ``name`` "": in no schema."""

    server: Database
    name: str = ""

    def run(self, each: Sequence[str]) -> list[Rows]:
        """Run statements in one session; return the rows of each."""
        with closing(self.server.connect(self.name or None)) as connection, connection.cursor() as cursor:
            answers: list[Rows] = []
            for statement in each:
                cursor.execute(statement)
                answers.append(list(cursor.fetchall()))
            return answers


@dataclass(frozen=True, slots=True)
class Reader:
    """Does what a page instructs its reader to do.

    ``places``: by the comment in the first line of a block of SQL. ``programs``: the programs other than dmctl, each
    with what runs a line of it. ``words``: what a reader fills in: texts of the page, and what is inserted for them.
    Files ``*.yaml`` are in the cluster's directory, and the files of SOURCE in ``folder``.
    """

    cluster: Cluster
    places: Mapping[str, Sequence[Schema]]
    programs: Mapping[str, Callable[[str], object]] = field(default_factory=dict[str, Callable[[str], object]])
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    folder: Path = DOCS

    def follow(self, page: Path, *sections: str) -> None:
        for section in sections:
            for block in blocks(page, section):
                self.run(block)

    def run(self, block: Block) -> list[list[Rows]]:
        """Run a block; return, for SQL, the rows of each statement at each place. A block of YAML is not run."""
        if block.language == "bash":
            for line in block.text.splitlines():
                self.command(line)
        if block.language != "sql":
            return []
        each = list(statements(self._filled(block.text), self.folder))
        return [place.run(each) for place in self.places[block.place]]

    def command(self, line: str, *, check: bool = True) -> Answer | None:
        """Run a line of a shell; with ``check`` a dmctl that fails is an AssertionError."""
        words = shlex.split(self._filled(line), comments=True)
        if not words:
            return None
        if words[0] != "dmctl":
            self.programs[words[0]](self._filled(line))
            return None
        words = [self._path(word) if word.endswith((".yaml", ".jsonl")) else word for word in words[1:]]
        if words[0] == "compare":  # not in the current directory
            words += ["--report", self._path("compared.jsonl")]
            (self.cluster.directory / "compared.jsonl").unlink(missing_ok=True)
        answer = self.cluster.dmctl(*words, check=False)
        assert answer.code == 0 or not check, answer.text
        return answer

    def _path(self, word: str) -> str:
        return str(self.cluster.directory / word)

    def _filled(self, text: str) -> str:
        for word, value in self.words.items():
            text = text.replace(word, value)
        return text
