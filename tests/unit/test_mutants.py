"""Checks that every mutant is complete, applies to the working tree, and names tests that exist."""

from __future__ import annotations

import re
import subprocess
from collections import Counter

import pytest

from tests.mutants.mutant import Mutant, all_mutants, parse
from tests.mutants.tree import ROOT

AREAS = ("apply", "compare", "ddl", "decoder", "lanes", "locks", "master", "relay", "rules", "snapshot")
_MUTANTS = all_mutants()
_every_mutant = pytest.mark.parametrize("mutant", _MUTANTS, ids=[mutant.name for mutant in _MUTANTS])


def test_every_area_has_at_least_eight() -> None:
    found = Counter(mutant.area for mutant in _MUTANTS)
    assert set(found) == set(AREAS)
    assert {area: number for area, number in found.items() if number < 8} == {}


@_every_mutant
def test_it_applies_to_the_working_tree(mutant: Mutant) -> None:
    applied = subprocess.run(
        ["git", "apply", "--check", str(mutant.path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert applied.returncode == 0, applied.stderr


@_every_mutant
def test_it_changes_few_lines_of_the_product(mutant: Mutant) -> None:
    assert mutant.files
    assert all(name.startswith(("worker/", "master/", "proto/", "ctl/")) for name in mutant.files)
    lines = mutant.path.read_text(encoding="utf-8").splitlines()
    assert max(sum(bool(re.match(rf"\{sign}(?!\{sign})", line)) for line in lines) for sign in "+-") <= 5


@_every_mutant
def test_its_tests_exist(mutant: Mutant) -> None:
    for test in mutant.tests:
        path, *names = test.partition("[")[0].split("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert all(re.search(rf"^\s*(?:async )?(?:def|class) {name}\b", text, re.MULTILINE) for name in names), test


@pytest.mark.parametrize("text", ["", "What: a\n\n--- a/x\n", "Tests: a\n\n--- a/x\n", "What: a\nTests: b\n--- a/x\n"])
def test_an_incomplete_one_is_refused(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("area") / "name.patch"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"name\.patch"):
        parse(path)
