"""Differences between servers that cannot all be started in a test."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.mysql.connection import ServerInfo, position_statement
from shardmerge.worker.core.mysql.server_errors import ErrorKind, kind_of
from shardmerge.worker.core.mysql.target_dialect import (
    ServerKind,
    TargetDialect,
    parse_dialect,
    parse_tidb_release,
    parse_version,
)


def info(flavor: str, text: str) -> ServerInfo:
    return ServerInfo(flavor, parse_version(text), text, 1, "", True, "db", 3306, parse_dialect(text, ""))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("5.5.5-10.11.6-MariaDB-log", (10, 11, 6)),
        ("10.11.19-MariaDB-0+deb12u1-log", (10, 11, 19)),
        ("5.7.44-log", (5, 7, 44)),
        ("8.4.0", (8, 4, 0)),
        ("9.1.0-commercial", (9, 1, 0)),
        ("8.0.11-TiDB-v7.5.0", (8, 0, 11)),
        ("12.0-x", (12, 0, 0)),
        ("nonsense", (0, 0, 0)),
    ],
)
def test_versions(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("flavor", "text", "statement"),
    [
        ("mysql", "5.7.44", "SHOW MASTER STATUS"),
        ("mysql", "8.0.36", "SHOW MASTER STATUS"),
        ("mysql", "8.2.0", "SHOW BINARY LOG STATUS"),
        ("mysql", "9.1.0", "SHOW BINARY LOG STATUS"),
        ("mariadb", "10.11.6-MariaDB", "SHOW MASTER STATUS"),
        ("mariadb", "11.8.2-MariaDB", "SHOW MASTER STATUS"),
    ],
)
def test_where_the_binlog_ends(flavor: str, text: str, statement: str) -> None:
    assert position_statement(info(flavor, text)) == statement


def test_tidb_is_known_by_its_version() -> None:
    assert parse_dialect("8.0.11-TiDB-v7.5.1", "") == TargetDialect(ServerKind.TIDB, (7, 5, 1))
    # `server-version` of its configuration file hides it.
    comment = "TiDB Server (Apache License 2.0) Community Edition, MySQL 8.0 compatible"
    assert parse_dialect("8.0.36", comment) == TargetDialect(ServerKind.TIDB, (0, 0, 0))
    assert parse_tidb_release("Release Version: v8.4.0\nEdition: Community") == (8, 4, 0)
    assert parse_dialect("8.0.36", "MySQL Community Server - GPL") == TargetDialect(ServerKind.MYSQL, (8, 0, 36))
    assert parse_dialect("5.5.5-10.11.6-MariaDB", "") == TargetDialect(ServerKind.MARIADB, (10, 11, 6))


def test_an_unknown_number_is_not_retried() -> None:
    assert kind_of(99_999) is ErrorKind.STATEMENT
    assert kind_of(1062) is ErrorKind.STATEMENT
    assert kind_of(1213) is ErrorKind.CONFLICT
