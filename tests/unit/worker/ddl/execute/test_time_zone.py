"""What of a statement depends on the source's time zone."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.ddl.execute.time_zone import TimeLiterals, time_literals
from shardmerge.worker.ddl.sql.statement import parse_ddl
from shardmerge.worker.relay.model import Statement

KINDS = {"id": ValueKind.INTEGER, "d": ValueKind.DATETIME, "s": ValueKind.TIMESTAMP}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ALTER TABLE t ADD a INT DEFAULT 20240101", TimeLiterals()),
        ("ALTER TABLE t ADD a DATETIME DEFAULT '2024-01-02 03:04:05'", TimeLiterals()),
        ("ALTER TABLE t ADD a DATETIME DEFAULT NOW(), MODIFY s TIMESTAMP(3)", TimeLiterals((), True)),
        ("ALTER TABLE t ADD a TIMESTAMP DEFAULT '2024-01-02 03:04:05'", TimeLiterals(("'2024-01-02 03:04:05'",))),
        ("ALTER TABLE t ADD a TIMESTAMP DEFAULT 20240102030405", TimeLiterals(("20240102030405",))),
        ("ALTER TABLE t ADD a TIMESTAMP DEFAULT '24.1.2', ADD b INT DEFAULT 5", TimeLiterals(("'24.1.2'",))),
        ("ALTER TABLE t ADD (a INT, b TIMESTAMP DEFAULT current_timestamp)", TimeLiterals((), True)),
        ("ALTER TABLE t ALTER s SET DEFAULT '2024-07-01'", TimeLiterals(("'2024-07-01'",))),
        ("CREATE TABLE u (a TIMESTAMP DEFAULT '2024-07-01', b TIMESTAMP DEFAULT NOW())",
         TimeLiterals(("'2024-07-01'",), True)),
        ("ALTER TABLE t MODIFY d TIMESTAMP", TimeLiterals(converted="d")),
        ("ALTER TABLE t CHANGE s x DATETIME", TimeLiterals(converted="x")),
        ("ALTER TABLE t CHANGE s x TIMESTAMP(6)", TimeLiterals()),
        ("ALTER TABLE t MODIFY d DATE", TimeLiterals()),
        ("ALTER TABLE t MODIFY id BIGINT", TimeLiterals()),
        ("DROP TABLE t", TimeLiterals()),
    ],
)  # fmt: skip
def test_time_literals(text: str, expected: TimeLiterals) -> None:
    begin = RelayOffset(1, 4)
    statement = Statement(begin, begin, begin, SourcePosition("mysql-bin.000001", 4), "d", text, None)
    ddl = parse_ddl(text, "d", None)
    assert ddl is not None
    assert time_literals(statement, ddl, KINDS) == expected
