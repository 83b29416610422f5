"""Tests how long a source keeps its binlog."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.binlog_retention import BinlogFile, BinlogLimits, bytes_from, limits


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"binlog_expire_logs_seconds": "2592000", "expire_logs_days": "0"}, BinlogLimits(2_592_000.0)),  # MySQL 8.0
        ({"binlog_expire_logs_seconds": "864000", "expire_logs_days": "10.000000"}, BinlogLimits(864_000.0)),  # MariaDB
        ({"expire_logs_days": "3"}, BinlogLimits(259_200.0)),  # MySQL 5.7
        ({"expire_logs_days": "0"}, BinlogLimits()),
        ({"binlog_expire_logs_seconds": "600", "binlog_expire_logs_auto_purge": "OFF"}, BinlogLimits()),
        ({"binlog_expire_logs_seconds": "600", "max_binlog_total_size": "1000"}, BinlogLimits(600.0, 1_000)),
        ({"binlog_expire_logs_seconds": "0", "binlog_space_limit": "1000"}, BinlogLimits(None, 1_000)),  # Percona
        ({}, BinlogLimits()),
    ],
)
def test_limits(variables: dict[str, str], expected: BinlogLimits) -> None:
    assert limits(variables) == expected


def test_bytes_from_the_file_of_a_position_on() -> None:
    files = (BinlogFile("b.000001", 100), BinlogFile("b.000002", 50), BinlogFile("b.000003", 7))
    assert bytes_from(files, SourcePosition("b.000002", 40)) == 57, "the whole file has to stay"
    assert bytes_from(files, SourcePosition("b.000003", 4)) == 7
    assert bytes_from(files, SourcePosition("b.000009", 4)) is None
