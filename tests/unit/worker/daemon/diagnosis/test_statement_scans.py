"""Which statements read many more rows than they need."""

from __future__ import annotations

import pytest

from shardmerge.worker.daemon.diagnosis.statement_scans import StatementScan, is_scan


@pytest.mark.parametrize(
    ("read", "keys", "changed", "statement", "expected"),
    [
        (1_000_000, 2, None, "UPDATE t SET v = 1 WHERE id IN (1, 2)", True),
        (1_000_000, 20_000, None, "UPDATE t SET v = 1 WHERE id IN (1, 2)", False),
        (19_999, 1, None, "UPDATE t SET v = 1", False),
        (1_000_000, 0, None, "UPDATE t SET v = 1", False),
        (1_000_000, 0, 2, " DELETE FROM t WHERE id = 1", True),
        (1_000_000, 0, 0, "DELETE FROM t WHERE id = 1", True),
        (10_000, 0, 10_000, "DELETE FROM t WHERE id BETWEEN 1 AND 2 LIMIT 10000", False),
        (50_000, 0, 50_000, "INSERT INTO t VALUES (1)", False),
        (1_000_000, 1, None, "SELECT id FROM t", False),
        (1_000_000, 1, None, "ALTER TABLE t ADD x INT", False),
    ],
)
def test_a_scan_reads_many_more_rows_than_it_has_keys_or_changes(
    read: int, keys: int, changed: int | None, statement: str, expected: bool
) -> None:
    assert is_scan(StatementScan(7, "`d`.`t`", read, keys, changed, statement)) is expected
