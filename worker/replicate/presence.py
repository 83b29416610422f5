"""Which of some keys have rows at the target. Each raises ``pymysql.MySQLError``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from worker.connection import Session
from worker.plan import TablePlan
from worker.replicate.statements import count_sql, counts_sql
from worker.rows import Joined

_AT_ONCE = 64
"""Keys asked for one by one in a statement."""


def count_of(session: Session, plan: TablePlan, keys: Sequence[Joined]) -> int:
    """How many of ``keys`` exist."""
    return _numbers(session, count_sql(plan, keys))[0]


def rows_at(session: Session, plan: TablePlan, keys: Sequence[Joined]) -> frozenset[Joined]:
    """Those of ``keys`` under which the target has a row."""
    count = count_of(session, plan, keys)
    if count == 0:
        return frozenset()
    if count == len(keys):
        return frozenset(keys)
    there: set[Joined] = set()
    for start in range(0, len(keys), _AT_ONCE):
        part = keys[start : start + _AT_ONCE]
        numbers = _numbers(session, counts_sql(plan, part))
        there.update(key for key, number in zip(part, numbers, strict=True) if number)
    return frozenset(there)


def one_of(session: Session, plan: TablePlan, keys: tuple[Joined, ...], *, present: bool) -> Joined | None:
    """One of ``keys`` that exists (or does not), by halving; None if there is none."""

    def odd(part: tuple[Joined, ...]) -> bool:
        count = count_of(session, plan, part)
        return count > 0 if present else count < len(part)

    while keys and odd(keys):
        if len(keys) == 1:
            return keys[0]
        half = len(keys) // 2
        keys = keys[:half] if odd(keys[:half]) else keys[half:]
    return None


def _numbers(session: Session, statement: bytes) -> tuple[int, ...]:
    with session.cursor() as cursor:
        cast("Any", cursor).execute(statement)
        return tuple(int(str(value)) for value in cursor.fetchone() or ())
