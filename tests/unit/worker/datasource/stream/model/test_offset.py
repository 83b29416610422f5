"""Offsets of mysql-cdc: written and read, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.datasource.stream.model.offset import SourceOffset, StreamTable, from_json, to_json

ID = Column("id", ValueKind.INTEGER, "bigint(20) unsigned", False, unsigned=True, auto_increment=True)
KIND = Column("kind", ValueKind.ENUM, "enum('a','b')", True, charset="utf8mb4", collation="c", labels=("a", "b"))
TABLE = Table("d", "t_1", (ID, KIND), (0,), "PRIMARY", (("id",), ("kind",)), False, "InnoDB")


def _offset() -> dict[str, SourceOffset]:
    place = SourcePosition("mysql-bin.000004", 5_000_000_000, server="server-id 7")
    return {
        "b": SourceOffset(
            place,
            1700000000,
            {
                ("d", "t_2"): StreamTable(replace(TABLE, name="t_2"), 3),
                ("d", "t_1"): StreamTable(TABLE),
                ("e", "t"): StreamTable(None, 2, "it is gone"),
            },
            cuts=(replace(place, pos=4),),
            prepared=("X'78',X'',1",),
        ),
        "a": SourceOffset(replace(place, file="x.000001"), 0, is_snapshot=True, is_statement=True),
    }


def test_what_is_written_is_read() -> None:
    made = to_json(_offset())
    assert from_json(json.loads(json.dumps(made))) == _offset()
    assert json.dumps(to_json(from_json(made))) == json.dumps(made)
    assert len(made["structures"]) == 1
    assert made["sources"]["b"]["tables"] == {
        "d": {"t_1": [0, 1, ""], "t_2": [0, 3, ""]},
        "e": {"t": [-1, 2, "it is gone"]},
    }


def test_the_offset_before_the_first_batch_is_always_the_same() -> None:
    assert to_json({}) == {"version": 1, "structures": [], "sources": {}}
    assert from_json(to_json({})) == {}


def test_the_text_depends_on_the_values_alone() -> None:
    offset = _offset()
    other = {
        name: replace(one, tables=dict(reversed(list(one.tables.items())))) for name, one in reversed(offset.items())
    }
    assert json.dumps(to_json(other)) == json.dumps(to_json(offset))


_GONE = object()


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("version",), 2, "version is 2"),
        (("version",), _GONE, "version is None"),
        (("structures",), _GONE, "structures"),
        (("sources", "b", "file"), _GONE, "file"),
        (("sources", "b", "phase"), "other", "other"),
        (("structures",), [], "IndexError"),
        (("structures", 0, "columns", 0, "kind"), "NONE", "NONE"),
    ],
)
def test_another_format_is_refused(path: tuple[Any, ...], value: object, reason: str) -> None:
    made = to_json(_offset())
    part: Any = made
    for key in path[:-1]:
        part = part[key]
    if value is _GONE:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    with pytest.raises(ShardmergeError, match="35020") as caught:
        from_json(made)
    assert reason in str(caught.value)
