"""Tests the marks that the version before has written in the record of a stream's last statement."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.target.records.ddl_progress import StatementPlace

PLACE = StatementPlace(SourcePosition("bin.000001", 400), 17)


@pytest.mark.parametrize(
    "mark",
    ["", "+timed", "+partial", "+renamed", "+growing", "+timed+partial", "+timed+partial+renamed+growing"],
)
def test_marks_are_read_past(mark: str) -> None:
    record = json.loads(PLACE.to_json()) | {"at": f"17{mark}"}
    assert StatementPlace.from_json(json.dumps(record)) == PLACE


def test_an_unknown_mark_is_refused() -> None:
    with pytest.raises(ValidationError):
        StatementPlace.from_json(json.dumps(json.loads(PLACE.to_json()) | {"at": "17+other"}))
