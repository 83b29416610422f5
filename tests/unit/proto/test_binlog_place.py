"""Positions as people and messages write them."""

from __future__ import annotations

import pytest

from shardmerge.proto.binlog_place import parse_binlog_place


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mysql-bin.000003:1234", ("mysql-bin.000003", 1234)),
        (" mysql-bin.000003|1234 ", ("mysql-bin.000003", 1234)),
        ("(mysql-bin.000003, 1234)", ("mysql-bin.000003", 1234)),
        ("mysql-bin|000001.000003:1234", ("mysql-bin.000003", 1234)),
        ("(mysql-bin|000001.000003, 1234)", ("mysql-bin.000003", 1234)),
        ("mysql-bin|000001.000003|1234", ("mysql-bin.000003", 1234)),
        ("a.b|000002.000003:4", ("a.b.000003", 4)),
        ("mysql-bin.000003", None),
        ("mysql-bin.000003:", None),
        ("mysql-bin.000003:-1", None),
        ("mysql-bin.000003:1 2", None),
        ("(mysql-bin.000003 1234)", None),
        ("", None),
    ],
)
def test_forms(text: str, expected: tuple[str, int] | None) -> None:
    assert parse_binlog_place(text) == expected
