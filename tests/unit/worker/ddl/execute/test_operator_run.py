"""Statements for which definitions do not show whether they have run."""

from __future__ import annotations

import pytest

from shardmerge.worker.ddl.execute.operator_run import may_keep_definitions
from shardmerge.worker.ddl.sql.statement import parse_ddl


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TRUNCATE TABLE d.t", True),
        ("CREATE OR REPLACE TABLE d.t (id INT)", True),
        ("ALTER TABLE d.t TRUNCATE PARTITION p", True),
        ("ALTER TABLE d.t /* now */ EXCHANGE PARTITION p WITH TABLE d.u", True),
        ("ALTER TABLE d.t DISCARD TABLESPACE", True),
        ("ALTER TABLE d.t ADD COLUMN x INT, IMPORT TABLESPACE", True),
        ("ALTER TABLE d.t DROP PARTITION p", False),
        ("ALTER TABLE d.t ADD COLUMN truncated INT", False),
        ("CREATE TABLE d.t (id INT)", False),
        ("DROP TABLE d.t", False),
        ("RENAME TABLE d.t TO d.u", False),
        ("CREATE DATABASE d", False),
        ("DROP INDEX i ON d.t", False),
    ],
)
def test_statements_that_may_keep_definitions(text: str, expected: bool) -> None:
    ddl = parse_ddl(text, "d", 0)
    assert ddl is not None
    assert may_keep_definitions(ddl, text) is expected
