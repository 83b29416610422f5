"""Tests whether chunks that were cut by one key divide the rows by a changed key in the same way."""

from __future__ import annotations

import pytest

from shardmerge.worker.snapshot.chunk_key import orders_alike
from shardmerge.worker.target.records.history.interrupted_copies import KeyColumn


def _key(*columns: str) -> tuple[KeyColumn, ...]:
    parts = (column.partition("|") for column in columns)
    return tuple(KeyColumn(kind, collation) for kind, _, collation in parts)


@pytest.mark.parametrize(
    ("before", "after", "alike"),
    [
        (("int(11)",), ("int(11)",), True),
        (("int(11)",), ("bigint(20) unsigned",), True),
        (("varchar(10)|latin1_bin",), ("varchar(90)|latin1_bin",), True),
        (("varchar(10)|latin1_bin",), ("varchar(10)|latin1_swedish_ci",), False),
        (("varchar(10)|latin1_bin",), ("char(10)|latin1_bin",), False),
        (("binary(4)",), ("binary(8)",), False),
        (("enum('a','b')",), ("enum('b','a')",), False),
        (("datetime",), ("datetime(6)",), True),
        (("datetime",), ("timestamp",), False),
        (("int(11)",), ("decimal(10,0)",), False),
        (("int(11)", "int(11)"), ("int(11)",), False),
        (("int(11)",), (), False),
        ((), (), True),
    ],
)
def test_orders_alike(before: tuple[str, ...], after: tuple[str, ...], alike: bool) -> None:
    assert orders_alike(_key(*before), _key(*after)) is alike
