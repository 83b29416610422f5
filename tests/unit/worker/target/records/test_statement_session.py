"""The session of a statement at the target."""

from __future__ import annotations

import pytest

from shardmerge.worker.binlog.query_text import QueryEvent
from shardmerge.worker.binlog.query_variables import QueryVariables
from shardmerge.worker.target.records.statement_session import StatementSession, known_modes


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


def test_fractions_are_rounded_as_at_the_source() -> None:
    """MySQL rounds unless TIME_TRUNCATE_FRACTIONAL is set, MariaDB truncates unless TIME_ROUND_FRACTIONAL is."""
    event = QueryEvent("d", b"x", QueryVariables(sql_mode=1 << 32), 0, 1)
    assert StatementSession.of(event, "").rounds is False
    assert StatementSession.of(event, "", is_mariadb=True).rounds is False
    event = QueryEvent("d", b"x", QueryVariables(sql_mode=1 << 34), 0, 1)
    assert StatementSession.of(event, "", is_mariadb=True).rounds is True
    assert session(QueryVariables()).rounds is True


def test_modes_of_mariadb() -> None:
    event = QueryEvent("d", b"x", QueryVariables(sql_mode=1 << 9 | 1 << 12 | 1 << 28 | 1 << 32), 0, 1)
    found = StatementSession.of(event, "", is_mariadb=True)
    assert found.mariadb_modes == "ORACLE,MAXDB,EMPTY_STRING_IS_NULL"
    # MySQL 5.7 has ORACLE without an effect on types, and MAXDB with one.
    assert StatementSession.of(event, "").mariadb_modes == "MAXDB"
    assert all(known_modes(is_mariadb=True) >> bit & 1 for bit in range(35))
    assert known_modes(is_mariadb=False).bit_length() == 33
