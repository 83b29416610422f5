"""Tests random DDLs under random session settings: the target must have the source's structures and values.

``SHARDMERGE_SESSION_BATCHES`` sets how many batches each pair of servers runs (default 1), ``SHARDMERGE_SESSION_SEED``
the first seed. A batch is one subtask of some 40 statements, which lags or not.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pymysql
import pytest

from shardmerge.worker.replicate.unit import ReplicateUnit
from shardmerge.worker.unit.contract import Failed
from tests.integration.lane_rig import LaneRig
from tests.integration.snapshot_rig import subtask_config
from tests.integration.test_statement_sessions import SCHEMA, shown
from tests.support.database import Database
from tests.support.pair import KINDS, emptied, started_pair
from tests.support.wait import until

pytestmark = pytest.mark.turns

BATCHES = int(os.environ.get("SHARDMERGE_SESSION_BATCHES", "1"))
FIRST = int(os.environ.get("SHARDMERGE_SESSION_SEED", "1"))
STATEMENTS = 40
TABLES = 4

_MODES = (
    "REAL_AS_FLOAT",
    "PIPES_AS_CONCAT",
    "ANSI_QUOTES",
    "NO_UNSIGNED_SUBTRACTION",
    "NO_BACKSLASH_ESCAPES",
    "STRICT_TRANS_TABLES",
    "STRICT_ALL_TABLES",
    "NO_ZERO_IN_DATE",
    "NO_ZERO_DATE",
    "ALLOW_INVALID_DATES",
    "PAD_CHAR_TO_FULL_LENGTH",
    "ANSI",
    "TRADITIONAL",
    "NO_AUTO_VALUE_ON_ZERO",
    "HIGH_NOT_PRECEDENCE",
)
_OWN_MODES = {
    "mariadb": (
        "EMPTY_STRING_IS_NULL",
        "ORACLE",
        "MAXDB",
        "MSSQL",
        "TIME_ROUND_FRACTIONAL",
        "SIMULTANEOUS_ASSIGNMENT",
        "DB2",
    ),
    "mysql": ("TIME_TRUNCATE_FRACTIONAL",),
}
_CHARSETS = ["utf8mb4", "latin1", "utf8mb3", "cp1251", "gbk", "ucs2", "ascii", "binary", "utf16"]
_COLLATIONS = ["utf8mb4_bin", "latin1_swedish_ci", "utf8mb4_unicode_ci", "cp1251_general_cs", "utf8mb3_general_ci"]
_TEXTS = (
    "VARCHAR(20)",
    "CHAR(7)",
    "TEXT",
    "TINYTEXT",
    "ENUM('a','é','')",
    "SET('a','b')",
    "NCHAR(5)",
    "NATIONAL VARCHAR(6)",
    "VARCHAR(9)",
)
_OTHERS = (
    *("INT", "BIGINT UNSIGNED", "FLOAT", "REAL", "DOUBLE", "DATE", "TIME", "TIME(3)", "DATETIME", "DATETIME(3)"),
    *("DATETIME(6)", "TIMESTAMP", "TIMESTAMP(3)", "YEAR", "BLOB", "VARBINARY(9)", "BINARY(3)", "BIT(5)", "JSON"),
    *("RAW(9)", "CLOB", "VARCHAR2(9)", "NUMBER", "DECIMAL(8,2)", "NUMBER(8,2)"),
)
_DEFAULTS = (
    "''",
    "'a'",
    "'é'",
    "0",
    "NULL",
    "'0000-00-00'",
    "'2026-02-30'",
    "'2026-01-02 03:04:05.678'",
    "'23:59:59.9'",
    "1.5",
    "(CONCAT('a', 'é'))",
    "(DATE_FORMAT('2026-01-02', '%M'))",
    "('a' || 'b')",
    '"x"',
    "'a\\'",
    "CURRENT_TIMESTAMP",
)
_EXPRESSIONS = (
    "CONCAT(id, 'é')",
    "CAST(id AS CHAR)",
    "id || 'x'",
    "id - 5",
    "'a' = 'A'",
)
_WORDS = ("", "a", "é", "ß", "Ω", "Ã©", "2026-01-02 03:04:05.678901", "12.75", "7", "A ", "3")


_PRINTED = re.compile(r" (?:CHARACTER SET|COLLATE) \w+")
"""MySQL prints the collation of a column also where it is the table's, if a statement has named it."""
State = dict[str, tuple[str, list[tuple[object, ...]]]]


@dataclass
class Writer:
    """Draws statements, and runs those that the source takes."""

    source: Database
    draw: random.Random
    ran: list[str] = field(default_factory=list[str])

    def run(self, count: int) -> None:
        for _ in range(count):
            statements = [*self._settings(), self._statement()]
            connection = self.source.connect(SCHEMA)
            try:
                with connection.cursor() as cursor:
                    for at, statement in enumerate(statements):
                        try:
                            cursor.execute(statement)
                        except pymysql.MySQLError:
                            if at == len(statements) - 1:
                                break
                    else:
                        self.ran.append("; ".join(statements))
                    cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
                    if self.source.flavor == "mariadb":
                        # Rows that violate a check are refused by the target, which checks them.
                        cursor.execute("SET check_constraint_checks = 1")
                    self._insert(cursor)
            finally:
                connection.close()

    def _pick(self, *options: str) -> str:
        return self.draw.choice(options)

    def _settings(self) -> Iterator[str]:
        draw, flavor = self.draw, self.source.flavor
        modes = draw.sample(_MODES, draw.randint(0, 3)) + draw.sample(_OWN_MODES[flavor], draw.randint(0, 1))
        yield f"SET sql_mode = '{','.join(modes)}'"
        settings = [
            f"collation_connection = {self._pick(*_COLLATIONS)}",
            f"time_zone = '{self._pick('+05:30', '-03:00', 'SYSTEM')}'",
            f"explicit_defaults_for_timestamp = {draw.randint(0, 1)}",
            f"lc_time_names = '{self._pick('de_DE', 'ja_JP', 'fr_FR')}'",
            "auto_increment_increment = 7, auto_increment_offset = 3",
            "foreign_key_checks = 0",
            "unique_checks = 0",
            "sql_auto_is_null = 1",
            f"timestamp = {1_600_000_000 + draw.randint(0, 10**8)}.25",
            f"collation_server = {self._pick(*_COLLATIONS)}",
            f"collation_database = {self._pick(*_COLLATIONS)}",
            "check_constraint_checks = 0" if flavor == "mariadb" else "sql_require_primary_key = 1",
            "system_versioning_insert_history = 1"
            if flavor == "mariadb"
            else "default_collation_for_utf8mb4 = utf8mb4_general_ci",
        ]
        for each in draw.sample(settings, draw.randint(0, 5)):
            yield f"SET {each}"

    def _statement(self) -> str:
        table, draw = f"t{self.draw.randrange(TABLES)}", self.draw
        match draw.randrange(12):
            case 0:
                return f"ALTER DATABASE {SCHEMA} {self._charset()}"
            case 1:
                return f"DROP TABLE IF EXISTS {table}"
            case 2:
                return f"ALTER TABLE {table} CONVERT TO {self._pick('CHARACTER SET DEFAULT', self._charset())}"
            case 3:
                return f"ALTER TABLE {table} {self._charset()}"
            case 4 | 5:
                columns = ", ".join(self._column(f"c{at}") for at in range(draw.randint(1, 3)))
                return f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns}) {self._pick('', self._charset())}"
            case 6 | 7:
                return f"ALTER TABLE {table} MODIFY {self._column(self._name())}"
            case 8:
                name = self._name()
                kind = self._pick("VIRTUAL", "STORED")
                column = f"{name}g VARCHAR(40) CHARACTER SET utf8mb4"
                return f"ALTER TABLE {table} ADD {column} AS ({self._pick(*_EXPRESSIONS)}) {kind}"
            case 9:
                return f"ALTER TABLE {table} ALTER {self._name()} SET DEFAULT {self._pick(*_DEFAULTS)}"
            case _:
                return f"ALTER TABLE {table} ADD {self._column(self._name())}"

    def _name(self) -> str:
        return f"c{self.draw.randrange(5)}"

    def _charset(self) -> str:
        charset = self._pick(*_CHARSETS)
        return self._pick(
            f"CHARACTER SET {charset}", f"CHARACTER SET {charset}", f"CHARACTER SET {charset} COLLATE {charset}_bin"
        ).replace("binary COLLATE binary_bin", "binary")

    def _column(self, name: str) -> str:
        draw = self.draw
        if draw.random() < 0.6:
            kind = f"{self._pick(*_TEXTS)} {self._pick('', '', self._charset(), self._charset(), 'BINARY', 'ASCII')}"
        else:
            kind = self._pick(*_OTHERS)
        null = self._pick("", "", "NOT NULL", "NULL")
        default = f"DEFAULT {self._pick(*_DEFAULTS)}" if draw.random() < 0.6 else ""
        return f"{name} {kind} {null} {default}"

    def _insert(self, cursor: pymysql.cursors.Cursor) -> None:
        """Insert a row into a table; a value that a column refuses becomes its default."""
        table = f"t{self.draw.randrange(TABLES)}"
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() "
            f"AND table_name = '{table}' AND extra NOT LIKE '%GENERATED%' AND column_name <> 'id'"
        )
        names = [str(name) for (name,) in cursor.fetchall()]
        number = self.draw.randrange(10**6)
        for count in (len(names), 1, 0):
            some = self.draw.sample(names, min(count, len(names)))
            words = ["".join(("'", self._pick(*_WORDS), "'")) for _ in some]
            try:
                cursor.execute(
                    f"INSERT INTO {table} ({', '.join(('id', *some))}) VALUES ({', '.join((str(number), *words))})"
                )
            except pymysql.MySQLError:
                continue
            return


@pytest.fixture(scope="module", params=KINDS)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Database, Database]]:
    kind = KINDS[request.param]
    with started_pair(tmp_path_factory.mktemp("random_sessions"), kind, kind) as pair:
        yield pair


@pytest.mark.parametrize("seed", range(FIRST, FIRST + BATCHES))
def test_random_statements_in_random_sessions(seed: int, servers: tuple[Database, Database], tmp_path: Path) -> None:
    source, target = map(emptied, servers)
    draw = random.Random(seed)
    source.execute(f"CREATE DATABASE {SCHEMA}")
    lags = draw.random() < 0.7
    with LaneRig(source, target, tmp_path, subtask_config(target)) as rig:
        source.execute(f"ALTER DATABASE {SCHEMA} CHARACTER SET {draw.choice(_CHARSETS)}")
        writer = Writer(source, draw)
        if lags:
            writer.run(STATEMENTS)
        run = rig.replicate(1)
        try:
            if not lags:
                writer.run(STATEMENTS)
            until(lambda: run.ended or (isinstance(run.unit, ReplicateUnit) and run.unit.status().synced), "the end")
            if run.ended:
                outcome = run.join()
                assert isinstance(outcome, Failed)
                raise AssertionError(f"{outcome.error}\n{_shown_last(writer)}")
            differences = _differences(_state(source), _state(target))
            assert not differences, f"{differences}\n{_shown_last(writer)}"
        finally:
            if not run.ended:
                run.stop()
    print(f"{len(writer.ran)} statements in {source.flavor}, seed {seed}, lags: {lags}")


def _shown_last(writer: Writer) -> str:
    return "\n".join(writer.ran)


def _differences(source: State, target: State) -> str:
    """Each line of a definition and each row that only one of both has."""
    lines: list[str] = []
    for table in sorted({*source, *target}):
        texts = [
            [*text.splitlines(), *map(str, rows)]
            for text, rows in (source.get(table, ("", [])), target.get(table, ("", [])))
        ]
        lines += (f"{table}, source: {line}" for line in texts[0] if line not in texts[1])
        lines += (f"{table}, target: {line}" for line in texts[1] if line not in texts[0])
    return "\n".join(lines)


def _state(server: Database) -> State:
    """Each table's definition and the bytes of its rows."""
    found: State = {}
    for (table,) in server.query(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{SCHEMA}'"):
        columns = server.query(
            "SELECT column_name, data_type FROM information_schema.columns "
            f"WHERE table_schema = '{SCHEMA}' AND table_name = '{table}' ORDER BY ordinal_position"
        )
        listed = ", ".join(f"HEX({name})" if kind != "json" else str(name) for name, kind in columns)
        rows = server.query(f"SELECT {listed} FROM {SCHEMA}.{table} ORDER BY id")
        collations = server.query(
            "SELECT column_name, collation_name FROM information_schema.columns "
            f"WHERE table_schema = '{SCHEMA}' AND table_name = '{table}' ORDER BY ordinal_position"
        )
        text = _PRINTED.sub("", shown(server, str(table)))
        found[str(table)] = "\n".join((text, *(f"{name} {collation}" for name, collation in collations))), rows
    return found
