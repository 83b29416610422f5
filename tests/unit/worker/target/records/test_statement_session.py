"""The session of a statement at the target."""

from __future__ import annotations

import pytest

from shardmerge.worker.binlog.events import QueryEvent
from shardmerge.worker.binlog.query_variables import QueryVariables
from shardmerge.worker.target.records.statement_session import StatementSession


def session(variables: QueryVariables, system_zone: str = "+02:00") -> StatementSession:
    return StatementSession.of(QueryEvent("d", b"x", variables, 0, 1_700_000_000), system_zone)


def test_its_moment_has_all_its_digits() -> None:
    assert session(QueryVariables(microseconds=42)).moment == "1700000000.000042"
    assert session(QueryVariables()).moment == "1700000000.000000"


@pytest.mark.parametrize(("told", "taken"), [("", ""), ("SYSTEM", "+02:00"), ("Europe/Rome", "Europe/Rome")])
def test_its_time_zone(told: str, taken: str) -> None:
    assert session(QueryVariables(time_zone=told)).time_zone == taken


@pytest.mark.parametrize(
    ("mode", "taken"),
    [
        (None, 0),
        (1 << 2 | 1 << 20, 1 << 2 | 1 << 20),  # ANSI_QUOTES, NO_BACKSLASH_ESCAPES
        (1 << 21 | 1 << 22 | 1 << 23 | 1 << 24, 1 << 21 | 1 << 22 | 1 << 23 | 1 << 24),  # strict, zero dates
        (1 << 9 | 1 << 28 | 1 << 32, 0),  # ORACLE, NO_AUTO_CREATE_USER, MariaDB's own
        (1 << 19, 1 << 19),  # NO_AUTO_VALUE_ON_ZERO
    ],
)
def test_modes_that_both_kinds_of_server_have(mode: int | None, taken: int) -> None:
    assert session(QueryVariables(sql_mode=mode)).sql_mode == taken


def test_an_old_default_of_timestamps() -> None:
    assert session(QueryVariables(explicit_timestamp=False)).explicit_timestamp is False
    assert session(QueryVariables()).explicit_timestamp is None
