"""Looks up which keys have rows at the target. Each function raises ``pymysql.MySQLError``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.row_change import JoinedLiterals
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.target.apply.dml import count_sql, counts_sql

_KEYS_PER_QUERY = 64
"""Keys that one statement looks up one by one."""


def count_existing(session: Session, plan: TablePlan, keys: Sequence[JoinedLiterals]) -> int:
    """How many of ``keys`` exist."""
    return _numbers(session, count_sql(plan, keys))[0]


def find_existing(session: Session, plan: TablePlan, keys: Sequence[JoinedLiterals]) -> frozenset[JoinedLiterals]:
    """Those of ``keys`` that have a row at the target."""
    count = count_existing(session, plan, keys)
    if count == 0:
        return frozenset()
    if count == len(keys):
        return frozenset(keys)
    there: set[JoinedLiterals] = set()
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        part = keys[start : start + _KEYS_PER_QUERY]
        numbers = _numbers(session, counts_sql(plan, part))
        there.update(key for key, number in zip(part, numbers, strict=True) if number)
    return frozenset(there)


def find_one(
    session: Session, plan: TablePlan, keys: tuple[JoinedLiterals, ...], *, present: bool
) -> JoinedLiterals | None:
    """One of ``keys`` that exists (or does not exist), found by bisection; None if there is none."""

    def odd(part: tuple[JoinedLiterals, ...]) -> bool:
        count = count_existing(session, plan, part)
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
