"""Tests the texts that a comparison makes of values: equal on all pairs of servers, and different for other values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardmerge.worker.core.mysql.connection import Side, dialect_of
from shardmerge.worker.core.mysql.information_schema import read_table
from shardmerge.worker.snapshot.chunks import WHOLE
from shardmerge.worker.snapshot.source.raw_query import raw_rows
from shardmerge.worker.unit.contract import Finished
from shardmerge.worker.verify.compare.compared_tables import ComparedTable, TableQueries, compared_table
from shardmerge.worker.verify.compare.judge import candidates, differing_columns
from shardmerge.worker.verify.compare.sides import read_rows
from tests.integration.snapshot_rig import Rig, subtask_config
from tests.support import all_types
from tests.support.database import Database
from tests.support.pair import KINDS, emptied, started_pair


@pytest.fixture(scope="module", params=[(source, target) for source in KINDS for target in KINDS])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Database, Database]]:
    source, target = request.param
    with started_pair(tmp_path_factory.mktemp("pair"), KINDS[source], KINDS[target]) as pair:
        yield pair


@pytest.fixture
def pair(servers: tuple[Database, Database], watch_logs: Callable[[Path], None]) -> tuple[Database, Database]:
    for server in servers:
        watch_logs(server.directory)
        emptied(server)
    return servers


class Copied:
    """A table of the source that a snapshot has copied, read as a comparison reads it."""

    def __init__(self, rig: Rig) -> None:
        assert isinstance(rig.run(), Finished)
        [plan] = rig.plans
        self._sessions = {at_source: rig.session(_side(at_source), raw=True) for at_source in (True, False)}
        session = rig.session(Side.TARGET)
        target = read_table(session, plan.target_schema, plan.target_table, source="target")
        signed_zero = dialect_of(session).has_negative_zero
        found = compared_table(plan, target, [plan], strays=True, signed_zero=signed_zero)
        assert isinstance(found, ComparedTable), found
        self.table, self.reads = found, TableQueries(found, found.keys())

    def one(self, statement: bytes, *, at_source: bool) -> list[bytes | None]:
        [row] = self.rows(statement, at_source=at_source)
        return row

    def rows(self, statement: bytes, *, at_source: bool) -> list[list[bytes | None]]:
        return [row for batch in raw_rows(self._sessions[at_source], statement) for row in batch]

    def sums(self) -> tuple[list[bytes | None], list[bytes | None]]:
        return (
            self.one(self.reads.source_sum(WHOLE), at_source=True),
            self.one(self.reads.target_sum(WHOLE), at_source=False),
        )

    def differences(self) -> dict[int, list[str]]:
        """Return the columns that differ, by the source's id."""
        keys = self.reads.keys
        hashes = {
            keys.at_source(row[:-1]): row[-1] for row in self.rows(self.reads.source_hashes(WHOLE), at_source=True)
        }
        there = {
            keys.at_target(row[:-1]): [row[-1]] for row in self.rows(self.reads.target_hashes(WHOLE), at_source=False)
        }
        doubtful = candidates(hashes, there)
        ours, theirs = (
            read_rows(
                [row for statement in statements for row in self.rows(statement, at_source=at_source)],
                self.table,
                self.reads,
                at_source=at_source,
            )
            for at_source, statements in (
                (True, self.reads.source_rows(doubtful)),
                (False, self.reads.target_rows(doubtful)),
            )
        )
        found: dict[int, list[str]] = {}
        for key in doubtful:
            [one], [other] = ours[key.target], theirs[key.target]
            differing = differing_columns(one, other, self.table.columns)
            found[int(key.source[0])] = [self.table.columns[at].name for at in differing]
        return found


def _side(at_source: bool) -> Side:
    return Side.SOURCE if at_source else Side.TARGET


# MySQL's longest TIME has no fraction of a second: a target refuses MariaDB's.
def _spelt(statement: str) -> str:
    return (
        statement.replace("'838:59:59.", "'838:59:58.")
        .replace("'-838:59:59.", "'-838:59:58.")
        .replace("d.all_types", "shard_1.t")
    )


def _filled(source: Database, *statements: str) -> None:
    source.execute("CREATE DATABASE shard_1", "SET sql_mode = ''", *statements)


def test_every_type_has_the_same_checksum_on_both_sides(pair: tuple[Database, Database], tmp_path: Path) -> None:
    source, target = pair
    _filled(source, _spelt(all_types.CREATE), *map(_spelt, all_types.INSERTS))
    with Rig(source, target, tmp_path, subtask_config(target)) as rig:
        copied = Copied(rig)
        assert copied.differences() == {}
        ours, theirs = copied.sums()
        assert ours == theirs
        assert ours[0] == b"%d" % len(all_types.INSERTS)


def test_the_sign_of_zero_counts_where_both_servers_have_it(pair: tuple[Database, Database], tmp_path: Path) -> None:
    source, target = pair
    _filled(
        source,
        "CREATE TABLE shard_1.t (id INT PRIMARY KEY, d DOUBLE, f FLOAT)",
        "INSERT INTO shard_1.t VALUES (1, -0e0, -0e0), (2, 0e0, 0e0), (3, 0.1, -0.1)",
    )
    with Rig(source, target, tmp_path, subtask_config(target)) as rig:
        copied = Copied(rig)
        ours, theirs = copied.sums()
        assert ours == theirs and copied.differences() == {}
        target.execute("UPDATE shard_1.t SET d = 0e0 WHERE id = 1", "UPDATE shard_1.t SET f = 0.1 WHERE id = 3")
        signed = all(server.query("SELECT CONCAT(-0e0)") == [("-0",)] for server in pair)
        assert copied.differences() == {3: ["f"]} | ({1: ["d"]} if signed else {})


PLANTED = (
    ("v VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", "'Straße'", "'Strasse'"),
    ("v VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", "'a'", "'A'"),
    ("v VARCHAR(20) CHARACTER SET utf8mb4", "'a'", "'a '"),
    ("v VARCHAR(20) CHARACTER SET latin1", "'é'", "'e'"),
    ("v VARCHAR(20)", "''", "NULL"),
    ("v VARCHAR(20)", "NULL", "'NULL'"),
    ("v DOUBLE", "0.1", "0.10000000000000002"),
    ("v DOUBLE", "-1.1000000000000002e-19", "-1.1e-19"),
    ("v FLOAT", "0.1", "0.10000001"),
    ("v DECIMAL(30,10)", "1.0000000001", "1.0000000002"),
    ("v DATETIME(6)", "'2024-01-01 00:00:00.000001'", "'2024-01-01 00:00:00.000002'"),
    ("v DATE", "'0000-00-00'", "NULL"),
    ("v BIT(64)", "~0", "~0 - 1"),
    ("v VARBINARY(9)", "X'00'", "X'0000'"),
    ("v ENUM('a','c','b')", "'a'", "'b'"),
    ("v SET('a','b','c')", "'a,c'", "'a,b,c'"),
    ("v LONGTEXT CHARACTER SET utf8mb4", "REPEAT('x', 70000)", "CONCAT(REPEAT('x', 69999), 'y')"),
    ("v BIGINT UNSIGNED", "18446744073709551615", "18446744073709551614"),
    ("v TIME(3)", "'-00:00:00.001'", "'00:00:00.001'"),
    ("v POINT", "POINT(1, 2)", "POINT(1, 3)"),
    ("v JSON", "'{\"a\": 1}'", '\'{"a": "1"}\''),
)
"""A column, its value, and its replacement: the smallest differences."""


def test_the_smallest_difference_is_seen(pair: tuple[Database, Database], tmp_path: Path) -> None:
    source, target = pair
    columns = [definition.replace("v ", f"c{at} ", 1) for at, (definition, _, _) in enumerate(PLANTED)]
    _filled(
        source,
        f"CREATE TABLE shard_1.t (id INT PRIMARY KEY, {', '.join(columns)})",
        *(f"INSERT INTO shard_1.t (id, c{at}) VALUES ({at}, {value})" for at, (_, value, _) in enumerate(PLANTED)),
    )
    with Rig(source, target, tmp_path, subtask_config(target)) as rig:
        copied = Copied(rig)
        ours, theirs = copied.sums()
        assert ours == theirs
        target.execute(
            "SET sql_mode = 'ALLOW_INVALID_DATES'",
            *(f"UPDATE shard_1.t SET c{at} = {value} WHERE id = {at}" for at, (_, _, value) in enumerate(PLANTED)),
        )
        ours, theirs = copied.sums()
        assert ours != theirs
        assert copied.differences() == {at: [f"c{at}"] for at in range(len(PLANTED))}


def test_a_target_with_wider_columns_holds_the_same_values(pair: tuple[Database, Database], tmp_path: Path) -> None:
    """The target was created by hand: other character sets, more digits, more labels in another order."""
    source, target = pair
    _filled(
        source,
        "CREATE TABLE shard_1.t (id INT PRIMARY KEY, l VARCHAR(20) CHARACTER SET latin1, n DECIMAL(9,2), "
        "z DECIMAL(9,0), at DATETIME, fine DATETIME(2), e ENUM('a','b','ü') CHARACTER SET latin1, "
        "s SET('x','y','z'), f FLOAT, i INT(6) ZEROFILL, t TIME, lb ENUM('one','two'))",
        "INSERT INTO shard_1.t VALUES (1, 'é€ü', 1.5, 7, '2024-01-02 03:04:05', '2024-01-02 03:04:05.06', 'ü', 'x,z', "
        "0.1, 42, '-01:02:03', 'two'), (2, '', -0.01, -1, '0000-00-00', '0000-00-00', 'a', '', -1e30, 0, "
        "'838:59:59', 'one'), (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    target.execute(
        "CREATE DATABASE shard_1",
        "CREATE TABLE shard_1.t (id BIGINT PRIMARY KEY, l TEXT CHARACTER SET utf8mb4, n DECIMAL(20,5), "
        "z DECIMAL(12,3), at DATETIME(6), fine DATETIME(4), e ENUM('ü','c','b','a') CHARACTER SET utf8mb4, "
        "s SET('z','w','y','x'), f DOUBLE, i BIGINT UNSIGNED, t TIME(3), lb VARCHAR(9))",
    )
    with Rig(source, target, tmp_path, subtask_config(target)) as rig:
        copied = Copied(rig)
        assert copied.differences() == {}
        ours, theirs = copied.sums()
        assert ours == theirs
        target.execute(
            "UPDATE shard_1.t SET l = '?€ü', n = 1.50001, fine = fine + INTERVAL 100 MICROSECOND, e = 'c', s = 'w,x,z' "
            "WHERE id = 1"
        )
        assert copied.differences() == {1: ["l", "n", "fine", "e", "s"]}


def test_reals_have_the_same_text_on_both_sides(pair: tuple[Database, Database], tmp_path: Path) -> None:
    source, target = pair
    reals = [1.1**at * (-1) ** at * 10.0 ** (at % 40 - 20) for at in range(400)]
    values = [f"({at}, {real!r}, {real % 1e30!r})" for at, real in enumerate(reals)]
    _filled(
        source,
        "CREATE TABLE shard_1.t (id INT PRIMARY KEY, d DOUBLE, f FLOAT)",
        f"INSERT INTO shard_1.t VALUES {', '.join(values)}",
    )
    with Rig(source, target, tmp_path, subtask_config(target)) as rig:
        copied = Copied(rig)
        assert copied.differences() == {}
        ours, theirs = copied.sums()
        assert ours == theirs
