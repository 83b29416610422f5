"""Tests how long a source keeps its binlog."""

from __future__ import annotations

import pytest

from shardmerge.worker.relay.binlog_retention import left, retention


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"binlog_expire_logs_seconds": "2592000", "expire_logs_days": "0"}, 2_592_000.0),  # MySQL 8.0
        ({"binlog_expire_logs_seconds": "864000", "expire_logs_days": "10.000000"}, 864_000.0),  # MariaDB
        ({"expire_logs_days": "3"}, 259_200.0),  # MySQL 5.7
        ({"expire_logs_days": "0"}, None),
        ({"binlog_expire_logs_seconds": "600", "binlog_expire_logs_auto_purge": "OFF"}, None),
        ({}, None),
    ],
)
def test_retention(variables: dict[str, str], seconds: float | None) -> None:
    assert retention(variables) == seconds


def test_left() -> None:
    assert left(600, now=1_000, newest_fetched=1_000) == 600
    assert left(600, now=1_000, newest_fetched=700) == 300
    assert left(600, now=1_000, newest_fetched=100) == 0
    assert left(600, now=1_000, newest_fetched=1_005) == 600, "clocks differ"
