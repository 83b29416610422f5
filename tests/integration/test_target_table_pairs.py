"""Tests merged tables between servers of two kinds: created, accepted by the check, with replacements for missing
types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, connect, rows
from shardmerge.worker.core.mysql.information_schema import read_table
from shardmerge.worker.core.table_plan import ColumnPlan, TablePlan
from shardmerge.worker.target.tables.target_table import ensure_target
from shardmerge.worker.verify.precheck import check_subtask
from tests.integration.snapshot_rig import endpoint
from tests.support import all_types
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.pair import emptied
from tests.support.unmerged import Unmerged


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Database]]:
    folder = tmp_path_factory.mktemp("kinds")
    servers: dict[str, Database] = {
        "mysql": MySQL(folder / "mysql", 41, ("--sync-binlog=0",)),
        "mariadb": MariaDB(folder / "mariadb", 42),
    }
    try:
        for server in servers.values():
            server.start()
        yield servers
    finally:
        for server in servers.values():
            server.stop()


class Crossing:
    """A pair from one kind of server to the other."""

    def __init__(self, source: Database, target: Database) -> None:
        self.source, self.target = emptied(source), emptied(target)
        self.source.execute("CREATE DATABASE s")
        self.reads = connect(endpoint(source), Side.SOURCE, name="src-1")
        self.writes = connect(endpoint(target), Side.TARGET, name="target")

    def close(self) -> None:
        self.reads.close()
        self.writes.close()

    def plan(self) -> TablePlan:
        """Return the plan of the table s.t, merged into m.t."""
        found = read_table(self.reads, "s", "t", source="src-1")
        assert found is not None
        columns = tuple(
            ColumnPlan(index, column, column.name) for index, column in enumerate(found.columns) if not column.generated
        )
        places = {column.index: at for at, column in enumerate(columns)}
        return TablePlan(0, "src-1", found, "m", "t", columns, tuple(places[index] for index in found.key))

    def make(self, definition: str) -> dict[str, tuple[str, str]]:
        """Create s.t with this definition at the source, and m.t from it; return type and collation of m.t's
        columns."""
        self.source.execute(f"CREATE TABLE s.t ({definition})")
        assert ensure_target(self.reads, self.writes, [self.plan()], Unmerged(), meta_schema="dm_meta").created
        # The created table passes the check.
        assert not ensure_target(self.reads, self.writes, [self.plan()], Unmerged(), meta_schema="dm_meta").created
        return collations(self.writes)

    def checked(
        self, *, strict: bool = False, item: str = "schema_of_shard_tables", table: str = ""
    ) -> list[pb.CheckResult]:
        """Return the results of the pre-check of the target table. ``table``: into which all shard tables are
        merged."""
        route = config.RouteRule(name="r", schema_pattern="s", target_schema="m", target_table=table)
        route.table_pattern = "*" if table else ""
        source = config.SourceConfig(source_id="src-1", flavor="auto")
        getattr(source, "from").CopyFrom(config.Endpoint(host="127.0.0.1", port=self.source.port, user="root"))
        subtask = config.SubTaskConfig(
            task="t",
            source_id="src-1",
            mode=config.TASK_MODE_ALL,
            meta_schema="dm_meta",
            target=config.Endpoint(host="127.0.0.1", port=self.target.port, user="root", strict_collations=strict),
            block_allow_list=config.BlockAllowList(name="s", do_dbs=["s"]),
            routes=[route],
        )
        found = check_subtask(source, subtask)
        assert [result.error_msg for result in found if result.name == "version"] == [""]
        return [result for result in found if result.name == item]


def collations(session: Session) -> dict[str, tuple[str, str]]:
    found = read_table(session, "m", "t")
    assert found is not None
    return {column.name: (column.type_text, column.collation) for column in found.columns}


@pytest.fixture
def to_mariadb(both: dict[str, Database]) -> Iterator[Crossing]:
    made = Crossing(both["mysql"], both["mariadb"])
    yield made
    made.close()


@pytest.fixture
def to_mysql(both: dict[str, Database]) -> Iterator[Crossing]:
    made = Crossing(both["mariadb"], both["mysql"])
    yield made
    made.close()


def test_from_mysql_to_mariadb(to_mariadb: Crossing) -> None:
    made = to_mariadb.make(
        "id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, a VARCHAR(20), b VARCHAR(20) COLLATE utf8mb4_de_pb_0900_ai_ci, "
        "c VARCHAR(20) COLLATE utf8mb4_0900_bin, d VARCHAR(20) CHARACTER SET utf8mb3, e ENUM('x','ü') COLLATE "
        "utf8mb4_0900_as_cs, j JSON, g POINT NOT NULL SRID 4326, i INT, n INT AS (i + 1) STORED INVISIBLE, UNIQUE (a), "
        "w VARCHAR(9) DEFAULT (CONCAT('x', 'y')), SPATIAL KEY (g), KEY k (b DESC), CHECK (i <> 7)"
    )
    assert made == {
        "id": ("int(10) unsigned", ""),
        "a": ("varchar(20)", "utf8mb4_uca1400_nopad_ai_ci"),
        "b": ("varchar(20)", "utf8mb4_nopad_bin"),
        "c": ("varchar(20)", "utf8mb4_nopad_bin"),
        "d": ("varchar(20)", "utf8mb3_general_ci"),
        "e": ("enum('x','ü')", "utf8mb4_uca1400_nopad_as_cs"),
        "j": ("longtext", "utf8mb4_bin"),
        "g": ("point", ""),
        "i": ("int(11)", ""),
        "n": ("int(11)", ""),
        "w": ("varchar(9)", "utf8mb4_uca1400_nopad_ai_ci"),
    }
    # Values that differ at the source differ at the target.
    to_mariadb.target.execute(
        "INSERT INTO m.t (id, a, g) VALUES (1, 'a', ST_GeomFromText('POINT(0 0)')), "
        "(2, 'a ', ST_GeomFromText('POINT(0 0)'))"
    )


def test_from_mariadb_to_mysql(to_mysql: Crossing) -> None:
    made = to_mysql.make(
        "id INT(9) UNSIGNED AUTO_INCREMENT PRIMARY KEY, a VARCHAR(20) COLLATE utf8mb4_uca1400_as_cs, "
        "b VARCHAR(20) COLLATE utf8mb4_general_nopad_ci, c VARCHAR(20) COLLATE utf8mb4_nopad_bin, "
        "d VARCHAR(20) CHARACTER SET utf8mb3, e ENUM('x','ü') COLLATE utf8mb4_uca1400_ai_ci, j JSON, g POINT, "
        "t TIMESTAMP NOT NULL DEFAULT current_timestamp() ON UPDATE current_timestamp(), "
        "l LONGTEXT COLLATE latin1_bin, i INT, n INT AS (i + 1) PERSISTENT, UNIQUE (c), KEY k (b DESC)"
    )
    assert made == {
        "id": ("int unsigned", ""),
        "a": ("varchar(20)", "utf8mb4_0900_as_cs"),
        "b": ("varchar(20)", "utf8mb4_0900_bin"),
        "c": ("varchar(20)", "utf8mb4_0900_bin"),
        "d": ("varchar(20)", "utf8mb3_general_ci"),
        "e": ("enum('x','ü')", "utf8mb4_0900_ai_ci"),
        "j": ("longtext", "utf8mb4_bin"),
        "g": ("point", ""),
        "t": ("timestamp", ""),
        "l": ("longtext", "latin1_bin"),
        "i": ("int", ""),
        "n": ("int", ""),
    }
    to_mysql.target.execute("INSERT INTO m.t (id, c) VALUES (1, 'a'), (2, 'a ')")


def test_every_type_between_the_kinds(to_mariadb: Crossing) -> None:
    definition = all_types.CREATE[all_types.CREATE.index("(") + 1 : all_types.CREATE.rindex(")")]
    made = to_mariadb.make(definition)
    assert made.keys() == {column.name for column in all_types.TABLE.columns}
    assert {made["iz"][0], made["y"][0], made["b11"][0]} == {"int(8) unsigned zerofill", "year(4)", "bit(11)"}


def test_every_type_between_the_kinds_the_other_way(to_mysql: Crossing) -> None:
    definition = all_types.CREATE[all_types.CREATE.index("(") + 1 : all_types.CREATE.rindex(")")]
    made = to_mysql.make(definition)
    assert made.keys() == {column.name for column in all_types.TABLE.columns}
    assert {made["iz"][0], made["y"][0], made["b11"][0]} == {"int(8) unsigned zerofill", "year", "bit(11)"}


def test_the_pre_check_reports_which_collations_are_replaced(to_mariadb: Crossing) -> None:
    to_mariadb.source.execute(
        "CREATE TABLE s.t (id INT PRIMARY KEY, a VARCHAR(20), b TEXT CHARACTER SET latin1)",
        "CREATE TABLE s.u (id INT PRIMARY KEY, b TEXT CHARACTER SET latin1)",
    )
    [result] = to_mariadb.checked()
    assert (result.code, result.state) == (errors.check.TARGET_COLLATION.code, pb.CHECK_STATE_WARN)
    assert "utf8mb4_uca1400_nopad_ai_ci for utf8mb4_0900_ai_ci" in result.error_msg
    assert "m.t" in result.error_msg
    assert "latin1" not in result.error_msg
    to_mariadb.target.execute(
        "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, a VARCHAR(20), b TEXT CHARACTER SET latin1)"
    )
    assert [result.state for result in to_mariadb.checked()] == [pb.CHECK_STATE_PASS]


def test_the_pre_check_names_the_collations_that_the_created_table_gets(to_mariadb: Crossing) -> None:
    """It is created like the first shard table, whatever the others have."""
    to_mariadb.source.execute(
        "CREATE TABLE s.t_2 (id INT, a VARCHAR(20) COLLATE utf8mb4_0900_bin, UNIQUE (a))",
    )
    other = "id INT PRIMARY KEY, a VARCHAR(20) COLLATE utf8mb4_0900_as_ci NOT NULL UNIQUE"
    to_mariadb.source.execute(f"CREATE TABLE s.t ({other})")
    [replaced] = to_mariadb.checked(table="t")
    [coarser] = to_mariadb.checked(item="collation", table="t")
    to_mariadb.source.execute("DROP TABLE s.t")
    gets = to_mariadb.make(other)["a"][1]
    assert (replaced.code, coarser.code) == (12032, 12061)
    assert "lacks collations of s.t: if source src-1 creates m.t" in replaced.error_msg
    assert replaced.error_msg.endswith(f"it gets {gets} for utf8mb4_0900_as_ci")
    assert f"s.t_2.a has utf8mb4_0900_bin, the target's a {gets}" in coarser.error_msg


def test_a_strict_task_gets_no_other_collation(to_mariadb: Crossing) -> None:
    to_mariadb.source.execute("CREATE TABLE s.t (id INT PRIMARY KEY, a VARCHAR(20), b TEXT CHARACTER SET latin1)")
    [result] = to_mariadb.checked(strict=True)
    assert (result.code, result.state) == (errors.check.TARGET_COLLATION_STRICT.code, pb.CHECK_STATE_FAIL)
    assert "utf8mb4_uca1400_nopad_ai_ci for utf8mb4_0900_ai_ci" in result.error_msg
    strict = connect(
        Endpoint("127.0.0.1", to_mariadb.target.port, "root", strict_collations=True), Side.TARGET, name="strict"
    )
    with closing(strict), pytest.raises(ShardmergeError) as caught:
        ensure_target(to_mariadb.reads, strict, [to_mariadb.plan()], Unmerged(), meta_schema="dm_meta")
    assert caught.value.spec is errors.replicate.TARGET_CREATE_REFUSED
    assert "utf8mb4_0900_ai_ci" in str(caught.value)
    # The printed way out: a table that is created by hand.
    to_mariadb.target.execute(
        "CREATE DATABASE IF NOT EXISTS m",
        "CREATE TABLE m.t (id INT PRIMARY KEY, a VARCHAR(20) COLLATE utf8mb4_bin, b TEXT CHARACTER SET latin1)",
    )
    assert [result.state for result in to_mariadb.checked(strict=True)] == [pb.CHECK_STATE_PASS]


def test_a_charset_that_the_target_does_not_know_is_found_by_the_pre_check(to_mariadb: Crossing) -> None:
    to_mariadb.source.execute("CREATE TABLE s.t (id INT PRIMARY KEY, a VARCHAR(20) CHARACTER SET gb18030)")
    [result] = to_mariadb.checked()
    assert (result.code, result.state) == (errors.check.TARGET_CHARSET.code, pb.CHECK_STATE_FAIL)
    assert "gb18030" in result.error_msg
    with pytest.raises(ShardmergeError) as caught:
        ensure_target(to_mariadb.reads, to_mariadb.writes, [to_mariadb.plan()], Unmerged(), meta_schema="dm_meta")
    assert caught.value.spec is errors.replicate.TARGET_CREATE_REFUSED
    assert rows(to_mariadb.writes, "SHOW DATABASES LIKE 'm'") in ([], [("m",)])
