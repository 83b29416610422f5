"""What of a statement depends on the source's time zone."""

from __future__ import annotations

import pytest

from worker.ddl.statement import parse_ddl
from worker.ddl.zone import Moments, moments_of
from worker.position import RelayOffset, SourcePosition
from worker.relay.model import Statement
from worker.table import ValueKind

KINDS = {"id": ValueKind.INTEGER, "d": ValueKind.DATETIME, "s": ValueKind.TIMESTAMP}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ALTER TABLE t ADD a INT DEFAULT 20240101", Moments()),
        ("ALTER TABLE t ADD a DATETIME DEFAULT '2024-01-02 03:04:05'", Moments()),
        ("ALTER TABLE t ADD a DATETIME DEFAULT NOW(), MODIFY s TIMESTAMP(3)", Moments((), True)),
        ("ALTER TABLE t ADD a TIMESTAMP DEFAULT '2024-01-02 03:04:05'", Moments(("'2024-01-02 03:04:05'",))),
        ("ALTER TABLE t ADD a TIMESTAMP DEFAULT 20240102030405", Moments(("20240102030405",))),
        ("ALTER TABLE t ADD a TIMESTAMP DEFAULT '24.1.2', ADD b INT DEFAULT 5", Moments(("'24.1.2'",))),
        ("ALTER TABLE t ADD (a INT, b TIMESTAMP DEFAULT current_timestamp)", Moments((), True)),
        ("ALTER TABLE t ALTER s SET DEFAULT '2024-07-01'", Moments(("'2024-07-01'",))),
        ("CREATE TABLE u (a TIMESTAMP DEFAULT '2024-07-01', b TIMESTAMP DEFAULT NOW())",
         Moments(("'2024-07-01'",), True)),
        ("ALTER TABLE t MODIFY d TIMESTAMP", Moments(converted="d")),
        ("ALTER TABLE t CHANGE s x DATETIME", Moments(converted="x")),
        ("ALTER TABLE t CHANGE s x TIMESTAMP(6)", Moments()),
        ("ALTER TABLE t MODIFY d DATE", Moments()),
        ("ALTER TABLE t MODIFY id BIGINT", Moments()),
        ("DROP TABLE t", Moments()),
    ],
)  # fmt: skip
def test_moments(text: str, expected: Moments) -> None:
    begin = RelayOffset(1, 4)
    statement = Statement(begin, begin, begin, SourcePosition("mysql-bin.000001", 4), "d", text, None)
    ddl = parse_ddl(text, "d", None)
    assert ddl is not None
    assert moments_of(statement, ddl, KINDS) == expected
