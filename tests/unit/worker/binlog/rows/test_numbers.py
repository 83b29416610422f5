"""Decimals and doubles keep every digit and every bit."""

from __future__ import annotations

import re
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.rows.row_literals import literal
from shardmerge.worker.core.table import Column, ValueKind

DECIMAL = Column("c", ValueKind.DECIMAL, "decimal(65,5)", True)
DOUBLE = Column("c", ValueKind.DOUBLE, "double", True)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=5))
def test_decimals_stay_as_the_server_prints_them(value: Decimal) -> None:
    text = f"{value:f}".encode()
    assert literal(DECIMAL, text) == text
    padded = re.sub(rb"^(-?)", rb"\g<1>000", text)
    assert literal(DECIMAL, padded) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_keep_every_bit(value: float) -> None:
    text = literal(DOUBLE, repr(value).encode())
    assert repr(float(text)) == repr(value)
