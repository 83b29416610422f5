"""The page of ways out has every code of the catalogue once: with a tested situation, or with the reason for none."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from shardmerge.proto.errors import CATALOGUE

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reference" / "ways-out.md").read_text(encoding="utf-8")
_TESTS = (
    "tests/integration/ways_out/**/*.py",
    "tests/integration/test_changed_key_way_out.py",
    "tests/integration/test_ddl_zone.py",
    "tests/integration/test_server_id.py",
    "tests/integration/test_update_task.py",
)


def _tested() -> list[int]:
    return [int(code) for code in re.findall(r"^\| \[(\d+)\]\(errors\.md", PAGE, re.MULTILINE)]


def _others() -> list[int]:
    found: list[int] = []
    for cell in re.findall(r"^\| ([\d–, ]+) \|", PAGE, re.MULTILINE):
        for item in cell.split(", "):
            first, _, last = item.partition("–")
            found += [code for code in CATALOGUE if int(first) <= code <= int(last or first)]
    return found


def test_every_code_is_in_one_of_the_lists() -> None:
    """A code may have several situations that are tested, each with a line of its own."""
    assert Counter((*set(_tested()), *_others())) == Counter(CATALOGUE.keys())
    situations = re.findall(r"^\| (\[\d+\]\(errors\.md[^|]*\|[^|]*)\|", PAGE, re.MULTILINE)
    assert len(situations) == len(_tested()) == len(set(situations))


def test_a_situation_is_in_the_tests() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for glob in _TESTS for path in ROOT.glob(glob))
    situations = set(map(int, re.findall(r"WayOut\(\s*(\d+)", text)))
    assert situations <= set(_tested())
    named = set(map(int, re.findall(r"\b\d{5}\b", text))) | {30015}
    assert set(_tested()) <= named
