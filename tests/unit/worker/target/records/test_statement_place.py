"""Tests the marks in the record of a stream's last statement, which an earlier version of the program cannot read."""

from __future__ import annotations

import json

import pytest
from pydantic import TypeAdapter, ValidationError

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


@pytest.mark.parametrize("mark", ["+timed", "+partial", "+renamed", "+growing", "+other"])
def test_a_number_with_a_mark_is_no_number_to_another_version(mark: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(int).validate_python(f"17{mark}")
    if mark == "+other":
        with pytest.raises(ValidationError):
            StatementPlace.from_json(json.dumps(json.loads(PLACE.to_json()) | {"at": f"17{mark}"}))
