"""Tests that every statement that finds rows by their keys reads these rows only, and finds all of them.

The servers count what a session reads (Handler_read_…). The forms of statements are those of :data:`FORMS` and of the
tests after it. Statements for tables without a key are no part of it: such a table has no index to use. The grid runs
them on the other versions of docs/reference/versions.md, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import pytest

from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.mysql.connection import Session, Side, connect, rows, send, text_of
from shardmerge.worker.core.mysql.information_schema import read_table
from shardmerge.worker.core.row_change import JoinedLiterals
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import ColumnPlan, Constant, PartitionId, TablePlan, TargetTable
from shardmerge.worker.ddl.execute.remove_rows import parts_of
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.source.chunk_source import chunk_select
from shardmerge.worker.snapshot.source.raw_query import raw_rows
from shardmerge.worker.snapshot.table_planner import TablePlanner
from shardmerge.worker.target.apply.cascades import ChildRows, SqlRows
from shardmerge.worker.target.apply.dml import count_sql, counts_sql, delete_sql, keyed_statements, write_sql
from shardmerge.worker.target.apply.row_bisect import ConflictingId, conflicting_id
from shardmerge.worker.verify.compare.compared_tables import ComparedTable, TableQueries, compared_table
from shardmerge.worker.verify.compare.keys import RowKey
from tests.integration.snapshot_rig import SOURCE, endpoint
from tests.integration.snapshot_tables import plan_of
from tests.support.database import Database
from tests.support.pair import KINDS
from tests.versions.servers import NAMES
from tests.versions.servers import server as server_of

pytestmark = pytest.mark.turns

ROWS = 20_000
COUNTS = (1, 2, 3, 200)
"""Keys of one statement."""

_TEXT = "CONCAT(IF(n % 2, 'ä', ''), 'it''s, \\\\ ', n, IF(n % 3, 'é', 'x'))"
_MOMENT = "TIMESTAMP'2000-01-01 00:00:00' + INTERVAL n MINUTE"


def _text(charset: str, collation: str, letter: str = "é", kind: str = "VARCHAR(40)") -> tuple[str, str]:
    value = _TEXT if letter == "é" else _TEXT.replace("ä", "").replace("é", letter)
    return f"{kind} CHARACTER SET {charset} COLLATE {collation}", value


FAMILIES = {
    "numbers": {
        "bigint": ("BIGINT", "n * 7"),
        "unsigned": ("BIGINT UNSIGNED", "n + 18446744073709500000"),
        "int": ("INT", "n - 10000"),
        "decimal": ("DECIMAL(20,5)", "n / 7"),
        "whole": ("DECIMAL(30,0)", "n * 1000000000000"),
        "float": ("FLOAT", "n / 7"),
        "double": ("DOUBLE", "n / 7"),
        "bit": ("BIT(40)", "n"),
        "few": ("TINYINT", "n % 100"),
        "year": ("YEAR", "1950 + n % 100"),
    },
    "moments": {
        "date": ("DATE", "DATE'2000-01-01' + INTERVAL n DAY"),
        "datetime": ("DATETIME", _MOMENT),
        "fraction": ("DATETIME(6)", f"{_MOMENT} + INTERVAL n * 7 MICROSECOND"),
        "timestamp": ("TIMESTAMP", _MOMENT),
        "milliseconds": ("TIMESTAMP(3)", f"{_MOMENT} + INTERVAL n * 1000 MICROSECOND"),
        "time": ("TIME", "SEC_TO_TIME(n)"),
        "microseconds": ("TIME(6)", "SEC_TO_TIME(n + n / 100000)"),
    },
    "utf8": {
        "bin": _text("utf8mb4", "utf8mb4_bin"),
        "general": _text("utf8mb4", "utf8mb4_general_ci"),
        "unicode": _text("utf8mb4", "utf8mb4_unicode_ci"),
        "char": _text("utf8mb4", "utf8mb4_general_ci", kind="CHAR(40)"),
        "three bytes": _text("utf8mb3", "utf8mb3_general_ci"),
        "three bytes bin": _text("utf8mb3", "utf8mb3_bin"),
    },
    "other texts": {
        "latin1": _text("latin1", "latin1_swedish_ci"),
        "latin1 bin": _text("latin1", "latin1_bin", kind="CHAR(40)"),
        "gbk": _text("gbk", "gbk_chinese_ci", "中"),
        "cp1251": _text("cp1251", "cp1251_general_ci", "Ф"),
        "ucs2": _text("ucs2", "ucs2_general_ci"),
        "utf16": _text("utf16", "utf16_general_ci"),
        "ascii": ("CHAR(36) CHARACTER SET ascii", "CONCAT('k', n)"),
    },
    "bytes and labels": {
        "binary": ("BINARY(8)", "UNHEX(LPAD(HEX(n), 16, '0'))"),
        "varbinary": ("VARBINARY(20)", "CONCAT('k''', n)"),
        "enum": ("ENUM('a','bü','c,d') CHARACTER SET utf8mb4", "1 + n % 3"),
        "latin1 enum": ("ENUM('a','bü','c,d') CHARACTER SET latin1", "1 + n % 3"),
        "set": ("SET('x','y','ö') CHARACTER SET utf8mb4", "1 + n % 7"),
        "latin1 set": ("SET('x','y','ö') CHARACTER SET latin1", "1 + n % 7"),
    },
}
OWN = {
    "mysql": {
        "0900": _text("utf8mb4", "utf8mb4_0900_ai_ci"),
        "0900 bin": _text("utf8mb4", "utf8mb4_0900_bin"),
    },
    "mariadb": {
        "uca1400": _text("utf8mb4", "uca1400_ai_ci"),
        "nopad": _text("utf8mb4", "utf8mb4_unicode_520_nopad_ci"),
        "nopad bin": _text("utf8mb4", "utf8mb4_nopad_bin"),
        "uuid": ("UUID", "CONCAT('aaaaaaaa-bbbb-4ccc-9ddd-', LPAD(HEX(n), 12, '0'))"),
        "inet6": ("INET6", "CONCAT('fe80::', HEX(n))"),
    },
}
"""A column's definition, and its value in row n."""

_SINCE = {"uca1400": 1010, "uuid": 1007, "inet6": 1005}
"""The MariaDB that has the type first: 1007 is 10.7."""

FEW = frozenset({"few", "year", "enum", "latin1 enum", "set", "latin1 set"})
"""Too few values for a key of this column alone."""

SHAPES = {
    "alone": "PRIMARY KEY (k)",
    "first": "PRIMARY KEY (k, id)",
    "last of three": "PRIMARY KEY (id, few, k)",
    "again in an index": "PRIMARY KEY (id, k), KEY again (k, id)",
    "again in a unique key": "PRIMARY KEY (few, id, k), UNIQUE again (k, few, id)",
}
"""Keys of a table with the columns k, of the tested type, id and few."""


_OTHERS = [
    pytest.param(name, marks=[pytest.mark.grid, pytest.mark.versions])
    for name in sorted({*NAMES} - {"mariadb-10.11", "mysql-9.7"})
]
"""Versions that :data:`KINDS` has not."""


@pytest.fixture(scope="module", params=[*KINDS, *_OTHERS])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    name, folder = str(request.param), tmp_path_factory.mktemp("keys") / "server"
    made = KINDS[name](folder, 1) if name in KINDS else server_of(name, folder, 1)
    try:
        made.start()
        made.execute("CREATE DATABASE d", "CREATE TABLE d.numbers (n BIGINT PRIMARY KEY)")
        for start in range(0, ROWS, 5000):
            made.execute("INSERT INTO d.numbers VALUES " + ",".join(f"({n})" for n in range(start, start + 5000)))
        yield made
    finally:
        made.stop()


@dataclass(frozen=True, slots=True)
class Keyed:
    """A table of the server, which is a shard table and its own target, and a session that is a lane's."""

    plan: TablePlan
    reads: TableQueries
    session: Session

    def keys(self, count: int) -> list[RowKey]:
        """Return keys of rows that are far from each other."""
        statement = f"SELECT {self.reads.keys.source_list} FROM {_name(self.plan)} WHERE v % 97 = 3 LIMIT {count}"
        return [self.reads.keys.at_source(row) for row in self._selected(statement.encode())]

    def found(self, statement: bytes) -> tuple[int, int]:
        """Execute; return the number of rows that it returns, counts or changes, and how many it reads."""
        before = self._read()
        if statement.startswith(b"SELECT"):
            answer = self._selected(statement)
            counts = statement.startswith((b"SELECT COUNT(", b"SELECT ("))
            number = sum(int(value or b"0") for row in answer for value in row) if counts else len(answer)
        else:
            number = send(self.session, statement)
        return number, self._read() - before

    def read_by(self, action: Callable[[], object]) -> int:
        before = self._read()
        action()
        return self._read() - before

    def _selected(self, statement: bytes) -> list[list[bytes | None]]:
        return [row for batch in raw_rows(self.session, statement) for row in batch]

    def _read(self) -> int:
        counters = rows(self.session, "SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(text_of(number)) for _, number in counters)


def _name(plan: TablePlan) -> str:
    return f"`{plan.table.schema}`.`{plan.table.name}`"


def _joined(keys: Iterable[RowKey]) -> list[JoinedLiterals]:
    return [b",".join(key.target) for key in keys]


def _ones_by_one(one: Keyed, keys: list[RowKey]) -> Iterator[bytes]:
    for start in range(0, len(keys), 64):
        yield counts_sql(one.plan, _joined(keys[start : start + 64]))


def _batch(one: Keyed, keys: list[RowKey], *, overwrite: bool, gone: bool) -> Iterator[bytes]:
    """A lane's statements for these rows: deleted, or updated."""
    batch = Batch(0, 1, "mysql-bin.000001")
    for key in keys:
        joined = b",".join(key.target)
        if gone:
            batch.remove(one.plan, joined, 100)
        else:
            order = [one.plan.key.index(at) if at in one.plan.key else -1 for at in range(len(one.plan.columns))]
            image = b",".join(key.target[at] if at >= 0 else b"1" for at in order)
            batch.replace(one.plan, joined, image, 100)
    for _, found in batch.targets():
        for statement in keyed_statements(found, 1 << 20, overwrite=overwrite):
            if not statement.sql.startswith(b"INSERT"):
                yield statement.sql


FORMS: dict[str, Callable[[Keyed, list[RowKey]], Iterable[bytes]]] = {
    # worker/target/apply: lanes, the bisection of refused rows, quarantine and repair delete by keys
    "delete": lambda one, keys: [delete_sql(one.plan, _joined(keys))],
    "batch of deletes": lambda one, keys: _batch(one, keys, overwrite=True, gone=True),
    "batch of updates that deletes first": lambda one, keys: _batch(one, keys, overwrite=False, gone=False),
    # the lookup of rows (upserts, collisions, bisection)
    "count": lambda one, keys: [count_sql(one.plan, _joined(keys))],
    "counts": _ones_by_one,
    # worker/verify/compare: both sides of a comparison, its repair, and the search for orphans
    "hashes at the target": lambda one, keys: one.reads.target_hashes_of(keys),
    "rows at the target": lambda one, keys: one.reads.target_rows(keys),
    "keys at the target": lambda one, keys: one.reads.target_keys_of(keys, b"(v >= 0 OR v IS NULL)"),
    "rows at the source": lambda one, keys: one.reads.source_rows(keys),
    "images at the source": lambda one, keys: one.reads.source_images(keys, "v"),
    "keys at the source": lambda one, keys: one.reads.source_keys_of(keys),
}


def filled_table(server: Database, name: str, columns: str, values: str) -> None:
    server.execute(
        "SET sql_mode = 'NO_ENGINE_SUBSTITUTION'",
        f"DROP TABLE IF EXISTS d.{name}",
        f"CREATE TABLE d.{name} ({columns})",
        f"INSERT INTO d.{name} SELECT {values} FROM d.numbers",
    )
    server.query(f"ANALYZE TABLE d.{name}")


def made_table(server: Database, definition: str, value: str, key: str) -> TablePlan:
    columns = f"k {definition} NOT NULL, id BIGINT NOT NULL, few INT NOT NULL, v INT, {key}"
    filled_table(server, "t", columns, f"{value}, n, n % 7, n")
    return plan_of(server, "d", "t")


def keyed(plan: TablePlan, session: Session) -> Keyed:
    target = read_table(session, plan.target_schema, plan.target_table)
    table = compared_table(plan, target, [plan], strays=False)
    assert isinstance(table, ComparedTable), table
    return Keyed(plan, TableQueries(table, table.keys()), session)


@pytest.fixture
def session(server: Database) -> Iterator[Session]:
    made = connect(endpoint(server), Side.TARGET, name="target", raw=True)
    yield made
    made.close()


def wrong_forms(one: Keyed, what: str, forms: Iterable[str] = FORMS) -> Iterator[str]:
    """What is wrong with the statements of each of ``forms`` and count."""
    every = one.keys(max(COUNTS))
    assert len(every) == max(COUNTS)
    for count in COUNTS:
        for form in forms:
            found = read = 0
            send(one.session, b"START TRANSACTION")
            for statement in FORMS[form](one, every[:count]):
                number, by_it = one.found(statement)
                found, read = found + number, read + by_it
            send(one.session, b"ROLLBACK")
            # A REPLACE counts a row that it overwrites twice.
            if found not in (count, 2 * count if form.startswith("batch") else count):
                yield f"{what}, {form} of {count}: found {found}"
            if read > 3 * count + 3:
                yield f"{what}, {form} of {count}: read {read}"


def _own(server: Database) -> dict[str, tuple[str, str]]:
    """The types of this version alone."""
    [[version]] = server.query("SELECT VERSION()")
    major, minor, *_ = str(version).split(".")
    return {
        name: column
        for name, column in OWN[server.flavor].items()
        if _SINCE.get(name, 0) <= 100 * int(major) + int(minor)
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", [*FAMILIES, "own"])
def test_no_statement_reads_more_rows_than_it_has_keys(
    server: Database, session: Session, family: str, shape: str
) -> None:
    found: list[str] = []
    for name, (definition, value) in (_own(server) if family == "own" else FAMILIES[family]).items():
        if shape != "alone" or name not in FEW:
            found += wrong_forms(
                keyed(made_table(server, definition, value, SHAPES[shape]), session), f"{name} {shape}"
            )
    assert not found, "\n".join(found)


OTHERS = {
    "latin1 as utf8mb4": (_text("latin1", "latin1_swedish_ci"), "VARCHAR(40) CHARACTER SET utf8mb4"),
    "utf8mb4 as latin1": (_text("utf8mb4", "utf8mb4_bin"), "VARCHAR(40) CHARACTER SET latin1"),
    "gbk as utf8mb4": (_text("gbk", "gbk_chinese_ci", "中"), "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
    "ascii as utf16": (("VARCHAR(40) CHARACTER SET ascii", "CONCAT('k', n)"), "VARCHAR(40) CHARACTER SET utf16"),
    "utf8mb3 as utf8mb4": (_text("utf8mb3", "utf8mb3_general_ci"), "VARCHAR(40) CHARACTER SET utf8mb4"),
    "wider number": (("INT", "n"), "BIGINT UNSIGNED"),
    "wider decimal": (("DECIMAL(20,5)", "n / 7"), "DECIMAL(30,9)"),
    "wider moment": (("DATETIME", _MOMENT), "DATETIME(6)"),
    "wider real": (("FLOAT", "n / 7"), "DOUBLE"),
    "wider bytes": (("BINARY(8)", "UNHEX(LPAD(HEX(n), 16, '0'))"), "VARBINARY(20)"),
}
"""A column of the shard table, and another definition at the target."""


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("key", ["PRIMARY KEY (k, id)", "PRIMARY KEY (id, few, k)"], ids=["first", "last of three"])
def test_a_target_with_another_type_has_the_rows_of_the_keys(
    server: Database, session: Session, name: str, key: str
) -> None:
    (definition, value), other = OTHERS[name]
    plan = made_table(server, definition, value, key)
    columns = f"k {other} NOT NULL, id BIGINT NOT NULL, few INT NOT NULL, v INT, {key}"
    server.execute("DROP TABLE IF EXISTS d.other", f"CREATE TABLE d.other ({columns})")
    server.execute("INSERT INTO d.other SELECT * FROM d.t")
    server.query("ANALYZE TABLE d.other")
    found = list(wrong_forms(keyed(replace(plan, target_table="other"), session), name))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("charset", ["utf8mb4", "latin1"])
def test_extracted_texts_are_found(server: Database, session: Session, charset: str) -> None:
    """The key of the target ends with a column that a route extracts from a name."""
    filled_table(server, "t", "id BIGINT PRIMARY KEY, v INT", "n, n")
    columns = f"id BIGINT, v INT, city VARCHAR(64) CHARACTER SET {charset}, PRIMARY KEY (id, city), KEY (city)"
    filled_table(server, "other", columns, "n, n, 'münchen'")
    server.execute("INSERT INTO d.other SELECT n, n, 'köln' FROM d.numbers")
    plan = plan_of(server, "d", "t")
    table = read_table(session, "d", "other")
    assert table is not None
    city = table.columns[2]
    columns_of = (*plan.columns, ColumnPlan(-1, replace(city, charset="utf8mb4"), "city", Constant("münchen")))
    made = replace(plan, target_table="other", columns=columns_of, key=(0, 2))
    found = list(wrong_forms(keyed(made, session), "extracted"))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("value", ["n", _TEXT], ids=["numbers", "texts"])
def test_two_thousand_keys_of_one_column(server: Database, session: Session, value: str) -> None:
    """MariaDB makes a subquery of a list of 1,000 values: it must read the table by its key too. Its own table of the
    values counts as rows read."""
    definition = "BIGINT" if value == "n" else "VARCHAR(40) CHARACTER SET latin1"
    filled_table(server, "t", f"k {definition} PRIMARY KEY, v INT", f"{value}, n")
    one = keyed(plan_of(server, "d", "t"), session)
    statement = f"SELECT {one.reads.keys.source_list} FROM d.t WHERE v % 10 = 3"
    keys = _joined(one.reads.keys.at_source(row) for batch in raw_rows(session, statement.encode()) for row in batch)
    assert len(keys) == 2000
    for made in (count_sql, delete_sql):
        number, read = one.found(made(one.plan, keys))
        assert number == 2000
        assert read <= 4 * 2000


def test_derived_changes_read_only_the_rows_of_their_parents(server: Database, session: Session) -> None:
    """Foreign keys of two columns. The statements of SqlRows: SELECT … FOR UPDATE, DELETE, UPDATE."""
    filled_table(
        server,
        "t",
        "id BIGINT PRIMARY KEY, a INT, b INT, v INT, KEY parent (a, b), KEY again (b, a)",
        f"n + {1 << 44}, n DIV 7, n % 7, n",
    )
    made = plan_of(server, "d", "t")
    mapped = replace(made.columns[0], mapping=PartitionId(1 << 44, 44))
    one = keyed(replace(made, columns=(mapped, *made.columns[1:])), session)
    plain = connect(endpoint(server), Side.TARGET, name="target")
    read_at = replace(one, session=plain).read_by
    target = SqlRows(plain)
    wrong: list[str] = []
    for count in COUNTS:
        of = ChildRows(one.plan, ("a", "b"), tuple((b"%d" % n, b"%d" % (n % 7)) for n in range(count)))
        send(plain, b"START TRANSACTION")
        reads = {
            "values": read_at(partial(target.values, of, ("id",))),
            "update": read_at(partial(target.update, of, (b"7", b"7"))),
        }
        send(plain, b"ROLLBACK")
        send(plain, b"START TRANSACTION")
        reads["delete"] = read_at(partial(target.delete, of))
        send(plain, b"ROLLBACK")
        wrong += [f"{what} of {count}: read {read}" for what, read in reads.items() if read > 4 * count + 4]
    plain.close()
    assert not wrong, "\n".join(wrong)


def test_the_search_for_a_conflicting_row_reads_that_row(server: Database, session: Session) -> None:
    filled_table(server, "t", "id BIGINT, a INT, v INT, PRIMARY KEY (id, a), UNIQUE (v, a)", f"n + {1 << 44}, n % 7, n")
    made = plan_of(server, "d", "t")
    mapped = replace(made.columns[0], mapping=PartitionId(1 << 44, 44))
    one = keyed(replace(made, columns=(mapped, *made.columns[1:])), session)
    insert = write_sql(b"INSERT", one.plan, [b"%d,5,5" % ((1 << 44) + 90_000)])
    send(session, b"START TRANSACTION")
    found: list[ConflictingId | None] = []
    read = one.read_by(lambda: found.append(conflicting_id(session, one.plan, insert)))
    send(session, b"ROLLBACK")
    assert found[0] is not None and found[0].text == str((1 << 44) + 5)
    assert read <= 5


@pytest.mark.parametrize("key", ["(k, id)", "(few, id, k)"])
@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_read_their_own_rows(server: Database, family: str, key: str) -> None:
    """The plan reads each row of the key once, a chunk its own rows."""
    session = connect(endpoint(server), Side.SOURCE, name=SOURCE, raw=True)
    wrong: list[str] = []
    for name, (definition, value) in FAMILIES[family].items():
        one = keyed(made_table(server, definition, value, f"PRIMARY KEY {key}"), session)
        chunks: list[Chunk] = []
        planned = TablePlanner(session, one.plan, 1000).chunks()
        read = one.read_by(partial(chunks.extend, planned))
        # MySQL reads a key that begins with an ENUM from its start as long as most rows follow.
        if read > (3 if "ENUM" in definition else 1.1) * ROWS + 100:
            wrong.append(f"{name}: the plan reads {read}")
        if len(chunks) == 1:
            continue
        for chunk in (chunks[0], chunks[len(chunks) // 2], chunks[-1]):
            for form, statement in (
                ("chunk", chunk_select(one.plan, chunk)),
                ("hashes", one.reads.source_hashes(chunk)),
                ("target's keys", one.reads.target_keys(chunk)),
            ):
                number, read = one.found(statement)
                if number > 1001 or read > number + 5:
                    wrong.append(f"{name}, {form} of {chunk}: {number} rows, read {read}")
    session.close()
    assert not wrong, "\n".join(wrong)


def test_rows_of_extracted_texts_are_removed_in_parts(server: Database, session: Session) -> None:
    """A shard table's rows are everywhere in the target: each row is read a few times in all, not once in each part."""
    filled_table(
        server,
        "t",
        "id BIGINT, city VARCHAR(20) CHARACTER SET utf8mb4, v INT, PRIMARY KEY (id, city)",
        "n, IF(n % 2, 'a', 'b'), n",
    )
    table = read_table(session, "d", "t")
    plan = plan_of(server, "d", "t")
    one = keyed(plan, session)
    removed: list[int] = []

    def remove() -> None:
        for part in parts_of(session, TargetTable("d", "t"), table, StopSignal(), 2000):
            statement = f"DELETE FROM d.t WHERE city = 'a'{part} ORDER BY id, city LIMIT 10000"
            removed.append(send(session, statement.encode()))

    read = one.read_by(remove)
    assert sum(removed) == ROWS // 2
    assert read < 3 * ROWS
