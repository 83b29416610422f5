"""What statements of the binlog mean for a stream."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.datasource.stream.model.ddl import (
    ChangesRows,
    ChangesTables,
    Meaning,
    keeps_structure,
    meaning_of,
    shown,
)
from shardmerge.worker.relay.model import Statement

KNOWN = (("d", "t_1"), ("d", "t_2"), ("e", "t_1"))


def _statement(text: str) -> Statement:
    offset = RelayOffset(0, 0)
    return Statement(offset, offset, offset, SourcePosition("b.000001", 4), "d", text, 0)


def _wanted(schema: str, table: str) -> bool:
    return schema in ("d", "e") and table.startswith("t_")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("ALTER TABLE t_1 ADD c INT", ChangesTables((("d", "t_1"),))),
        ("ALTER TABLE T_1 ADD c INT", ChangesTables((("d", "T_1"),))),
        ("CREATE TABLE t_9 LIKE t_1", ChangesTables((("d", "t_9"),))),
        ("TRUNCATE e.t_1", ChangesTables((("e", "t_1"),))),
        ("DROP TABLE IF EXISTS t_1, other, e.t_1", ChangesTables((("d", "t_1"), ("e", "t_1")))),
        ("RENAME TABLE t_1 TO other", ChangesTables((("d", "t_1"),))),
        ("CREATE UNIQUE INDEX i ON t_2 (v)", ChangesTables((("d", "t_2"),))),
        ("DROP DATABASE d", ChangesTables((("d", "t_1"), ("d", "t_2")))),
        ("CREATE DATABASE x", None),
        ("ALTER TABLE other ADD c INT", None),
        ("CREATE TABLE x.t_1 (id INT)", None),
        ("CREATE VIEW t_3 AS SELECT 1", None),
        ("GRANT SELECT ON d.* TO u", None),
        ("INSERT INTO t_1 VALUES (1)", ChangesRows()),
        ("INSERT INTO other VALUES (1)", None),
        ("UPDATE t_1, other SET t_1.v = 1", ChangesRows()),
        ("NOBODY KNOWS THIS", ChangesRows()),
    ],
)
def test_meaning(text: str, meaning: Meaning) -> None:
    assert meaning_of(_statement(text), _wanted, KNOWN) == meaning


def test_a_statement_is_shown_shortly() -> None:
    assert shown(_statement("ALTER  TABLE\n t_1 ADD c INT")) == "ALTER TABLE t_1 ADD c INT"
    assert len(shown(_statement("ALTER TABLE t_1 COMMENT '" + "x" * 1000 + "'"))) == 400


def test_only_truncate_keeps_the_structure() -> None:
    assert keeps_structure(_statement(" truncate TABLE t_1"))
    assert not keeps_structure(_statement("ALTER TABLE t_1 TRUNCATE PARTITION p"))
    assert not keeps_structure(_statement("DROP TABLE t_1"))
