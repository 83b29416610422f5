"""docs/reference/checks.md lists every item of the pre-check."""

from __future__ import annotations

import re
from pathlib import Path

from shardmerge.proto.errors import CATALOGUE, check, check_data, check_room
from shardmerge.proto.errors.spec import ErrorSpec
from shardmerge.worker.verify.precheck.findings import DESCRIPTIONS, NOT_APPLICABLE

_NO_CHECKS = {
    check.BINLOG_UNREADABLE.code,
    check.TABLES_CHANGE.code,
    check_data.ROWS_HALF_REMOVED.code,
    check_data.TEXTS_NOT_KNOWN_YET.code,
}
"""Errors of the same class that are no findings: no longer raised, or reported when a task starts."""

_TEXT = (Path(__file__).resolve().parents[5] / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")
_ROWS = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", _TEXT, re.MULTILINE)


def test_every_item_is_there_in_its_words() -> None:
    assert [(item, words) for item, words, _ in _ROWS] == list(DESCRIPTIONS.items())


def test_every_code_is_there_and_no_other() -> None:
    specs = [spec for module in (check, check_data, check_room) for spec in vars(module).values()]
    known = {spec.code for spec in specs if isinstance(spec, ErrorSpec)}
    named = {int(code) for code in re.findall(r"\b1[0-9]{4}\b", _TEXT)}
    assert named == known - _NO_CHECKS
    assert named <= CATALOGUE.keys()


def test_what_does_not_apply_is_reported() -> None:
    assert {item for item, _, outcome in _ROWS if "does not apply here" in outcome} == NOT_APPLICABLE.keys()
