"""Tests creating and checking merged tables on a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, connect, rows
from shardmerge.worker.core.mysql.information_schema import read_table
from shardmerge.worker.core.table_plan import AddPrefix, ColumnPlan, Mapping, PartitionId, TablePlan
from shardmerge.worker.target.tables.target_table import TargetFacts, check_existing_target, ensure_target
from tests.support.mariadb import MariaDB
from tests.support.unmerged import Unmerged


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    made = MariaDB(tmp_path_factory.mktemp("target"), 11).start()
    yield made
    made.stop()


class Bench:
    """Source and target sessions on one server, with newly created schemas s and m."""

    def __init__(self, server: MariaDB) -> None:
        self.server = server
        server.execute(
            "DROP DATABASE IF EXISTS s", "DROP DATABASE IF EXISTS m", "CREATE DATABASE s CHARACTER SET latin1"
        )
        self.source = self.session(Side.SOURCE)
        self.target = self.session(Side.TARGET)

    def session(self, side: Side) -> Session:
        return connect(Endpoint("127.0.0.1", self.server.port, "root"), side, name="src-1")

    def plan(self, table: str, *, key: tuple[str, ...] | None = None, **mappings: Mapping) -> TablePlan:
        found = read_table(self.source, "s", table, source="src-1")
        assert found is not None
        columns = tuple(
            ColumnPlan(index, column, column.name, mappings.get(column.name))
            for index, column in enumerate(found.columns)
            if not column.generated
        )
        names = key if key is not None else tuple(column.name for column in found.key_columns)
        places = {column.column.name: at for at, column in enumerate(columns)}
        return TablePlan(0, "src-1", found, "m", "merged", columns, tuple(places[name] for name in names))

    def ensure(self, *plans: TablePlan) -> TargetFacts:
        return ensure_target(self.source, self.target, plans, Unmerged(), meta_schema="dm_meta")

    def refused(self, *plans: TablePlan) -> ShardmergeError:
        with pytest.raises(ShardmergeError) as caught:
            self.ensure(*plans)
        return caught.value


@pytest.fixture
def bench(server: MariaDB) -> Iterator[Bench]:
    made = Bench(server)
    yield made
    made.source.close()
    made.target.close()


def test_a_missing_table_is_made_like_the_shard(bench: Bench) -> None:
    bench.server.execute(
        "CREATE TABLE s.parent (id INT PRIMARY KEY)",
        "CREATE TABLE s.t_1 ("
        "  `id` int(6) unsigned zerofill NOT NULL AUTO_INCREMENT COMMENT 'it''s AUTO_INCREMENT, (so) \\\\',"
        "  `parent` int, `name` varchar(10) CHARACTER SET utf8mb4 DEFAULT 'a,b(',"
        "  `label` varchar(20) COLLATE latin1_bin, `kind` enum('x','y)') NOT NULL,"
        "  `twice` int AS (`parent` * 2) STORED, `at` timestamp(3) NOT NULL DEFAULT current_timestamp(3),"
        "  PRIMARY KEY (`id`), UNIQUE KEY `by_name` (`name`), KEY `parent` (`parent`),"
        "  CONSTRAINT `to_parent` FOREIGN KEY (`parent`) REFERENCES `parent` (`id`) ON DELETE CASCADE,"
        "  CONSTRAINT `sane` CHECK (`parent` <> 7)"
        ") ENGINE=InnoDB AUTO_INCREMENT=77 COMMENT='shard''s'",
    )
    facts = bench.ensure(bench.plan("t_1", id=PartitionId(1 << 52, 44), label=AddPrefix("s1-")))

    assert facts == TargetFacts(True, ("id",), (("name",),), True)
    assert facts.one_lane
    made = read_table(bench.target, "m", "merged")
    assert made is not None
    types = {column.name: (column.type_text, column.collation) for column in made.columns}
    assert types == {
        "id": ("bigint(20) unsigned", ""),
        "parent": ("int(11)", ""),
        "name": ("varchar(10)", "utf8mb4_general_ci"),
        "label": ("varchar(23)", "latin1_bin"),
        "kind": ("enum('x','y)')", "latin1_swedish_ci"),
        "twice": ("int(11)", ""),
        "at": ("timestamp(3)", ""),
    }
    assert not made.has_foreign_keys
    text = str(rows(bench.target, "SHOW CREATE TABLE m.merged")[0][1])
    assert "AUTO_INCREMENT=" not in text
    assert "COMMENT='shard''s'" in text
    assert "COMMENT 'it''s AUTO_INCREMENT, (so) \\\\'" in text
    assert "CHECK (`parent` <> 7)" in text

    again = bench.ensure(bench.plan("t_1", id=PartitionId(1 << 52, 44), label=AddPrefix("s1-")))
    assert again == TargetFacts(False, ("id",), (("name",),), True)


def test_a_shard_that_is_not_transactional_and_partitioned_becomes_a_plain_innodb_table(bench: Bench) -> None:
    bench.server.execute(
        "CREATE TABLE s.t (id int PRIMARY KEY, v int) ENGINE=Aria PAGE_CHECKSUM=1 PARTITION BY HASH (id) PARTITIONS 2"
    )
    facts = bench.ensure(bench.plan("t"))
    assert facts.created
    assert not facts.one_lane
    assert rows(
        bench.target, "SELECT ENGINE, CREATE_OPTIONS FROM information_schema.TABLES WHERE TABLE_SCHEMA='m'"
    ) == [("InnoDB", "")]


def test_renamed_columns_are_renamed_in_keys_and_expressions(bench: Bench) -> None:
    bench.server.execute("CREATE TABLE s.t (a int PRIMARY KEY, b int, c int AS (a + 1) STORED, KEY k (b, a))")
    plan = bench.plan("t")
    renamed = TablePlan(
        0, "src-1", plan.table, "m", "merged",
        tuple(ColumnPlan(c.index, c.column, {"a": "new`id"}.get(c.target_name, c.target_name)) for c in plan.columns),
        plan.key,
    )  # fmt: skip
    assert bench.ensure(renamed).key == ("new`id",)
    bench.server.execute("INSERT INTO m.merged (`new``id`, b) VALUES (4, 1)")
    assert bench.server.query("SELECT c FROM m.merged") == [(5,)]


def test_two_workers_make_the_same_table_at_the_same_moment(bench: Bench) -> None:
    bench.server.execute("CREATE TABLE s.t (id int PRIMARY KEY, v varchar(10))")
    plan = bench.plan("t")
    count = 6
    for _ in range(5):
        bench.server.execute("DROP DATABASE IF EXISTS m")
        barrier = threading.Barrier(count)
        results: list[TargetFacts | ShardmergeError] = []

        def work(barrier: threading.Barrier = barrier, results: list[TargetFacts | ShardmergeError] = results) -> None:
            source, target = bench.session(Side.SOURCE), bench.session(Side.TARGET)
            try:
                barrier.wait()
                results.append(ensure_target(source, target, [plan], Unmerged(), meta_schema="dm_meta"))
            except ShardmergeError as error:
                results.append(error)
            finally:
                source.close()
                target.close()

        threads = [threading.Thread(target=work) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        facts = [each for each in results if isinstance(each, TargetFacts)]
        assert [each for each in results if isinstance(each, ShardmergeError)] == []
        assert len(facts) == count
        assert any(each.created for each in facts)


def test_every_difference_is_named_with_its_tables(bench: Bench) -> None:
    bench.server.execute(
        "CREATE TABLE s.t_1 (id bigint PRIMARY KEY, a int, b varchar(20), d decimal(10,3), g datetime(3), n int)",
        "CREATE TABLE s.t_2 LIKE s.t_1",
        "CREATE DATABASE m",
        "CREATE TABLE m.merged (id bigint, other bigint NOT NULL, b varchar(10), d decimal(10,2), g datetime,"
        " n int NOT NULL, PRIMARY KEY (id, other))",
    )
    error = bench.refused(bench.plan("t_1"), bench.plan("t_2"))
    assert error.spec is errors.replicate.TARGET_TABLE_DIFFERS
    tables = "(s.t_1, s.t_2)"
    assert error.values["differences"].split("; ") == [
        f"column a is missing at the target {tables}",
        f"column b: varchar(20) at the source, varchar(10) at the target {tables}",
        f"column d: decimal(10,3) at the source, decimal(10,2) at the target {tables}",
        f"column g: datetime(3) at the source, datetime at the target {tables}",
        f"column n: NULL is allowed at the source only {tables}",
        f"target column other has no default and is not written {tables}",
        f"the target has no unique key over exactly (id) {tables}",
    ]
    assert rows(bench.target, "SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA='m'") == [(6,)]


def test_a_target_made_by_hand_may_be_wider(bench: Bench) -> None:
    bench.server.execute(
        "CREATE TABLE s.t (id int PRIMARY KEY, a int, b varchar(20), d decimal(10,2), f float, e enum('x','y'))",
        "CREATE DATABASE m",
        "CREATE TABLE m.merged (ID bigint UNSIGNED NOT NULL PRIMARY KEY, a bigint, b text, d decimal(20,4), f double,"
        " e enum('y','z','x'), made timestamp DEFAULT current_timestamp, twice int AS (a * 2))",
    )
    facts = bench.ensure(bench.plan("t", id=PartitionId(0, 44)))
    assert facts == TargetFacts(False, ("id",), (), True)
    # Without the mapping the source's negative ids would not fit.
    assert "column id: int(11) at the source" in bench.refused(bench.plan("t")).values["differences"]


def test_text_keys_and_further_unique_keys_and_no_key_keep_to_one_lane(bench: Bench) -> None:
    bench.server.execute(
        "CREATE TABLE s.text_key (id varchar(10) PRIMARY KEY)",
        "CREATE TABLE s.no_key (a int)",
        "CREATE TABLE s.enough (id varbinary(10), k decimal(5,1), PRIMARY KEY (id, k))",
    )
    text_key = bench.ensure(bench.plan("text_key"))
    assert (text_key.exact_key, text_key.one_lane) == (False, True)
    bench.server.execute("DROP DATABASE m")
    no_key = bench.ensure(bench.plan("no_key"))
    assert (no_key.key, no_key.one_lane) == ((), True)
    bench.server.execute("DROP DATABASE m")
    enough = bench.ensure(bench.plan("enough"))
    assert (enough.key, enough.one_lane) == (("id", "k"), False)


def test_a_target_without_transactions_is_refused(bench: Bench) -> None:
    bench.server.execute(
        "CREATE TABLE s.t (id int PRIMARY KEY)",
        "CREATE DATABASE m",
        "CREATE TABLE m.merged (id int PRIMARY KEY) ENGINE=MyISAM",
    )
    error = bench.refused(bench.plan("t"))
    assert error.spec is errors.replicate.TARGET_NOT_TRANSACTIONAL
    bench.server.execute(error.workaround.split(" at the target")[0])
    assert not bench.ensure(bench.plan("t")).created


def test_a_target_without_privileges_is_reported_and_leaves_nothing(bench: Bench) -> None:
    bench.server.execute(
        "CREATE TABLE s.t (id int PRIMARY KEY)",
        "CREATE OR REPLACE USER poor@'%' IDENTIFIED BY 'x'",
    )
    plan = bench.plan("t")
    endpoint = Endpoint("127.0.0.1", bench.server.port, "poor", "x")
    with connect(endpoint, Side.TARGET, name="target") as poor, pytest.raises(ShardmergeError) as caught:
        ensure_target(bench.source, poor, [plan], Unmerged(), meta_schema="dm_meta")
    assert caught.value.spec is errors.replicate.TARGET_PRIVILEGE_MISSING
    assert caught.value.values["user"] == "poor"
    assert bench.server.query("SHOW DATABASES LIKE 'm'") == []


def test_the_server_refusing_the_statement_is_reported_with_it(bench: Bench) -> None:
    bench.server.execute("CREATE TABLE s.t (id int PRIMARY KEY, a varchar(760) COLLATE latin1_bin, KEY (a))")
    error = bench.refused(bench.plan("t", a=AddPrefix("x" * 66_000)))
    assert error.spec is errors.replicate.TARGET_CREATE_REFUSED
    assert "varchar(66760)" in error.values["statement"]


def test_routing_into_the_meta_schema_is_refused(bench: Bench) -> None:
    bench.server.execute("CREATE TABLE s.t (id int PRIMARY KEY)")
    with pytest.raises(ShardmergeError) as caught:
        ensure_target(bench.source, bench.target, [bench.plan("t")], Unmerged(), meta_schema="M")
    assert caught.value.spec is errors.replicate.TARGET_IS_META


def test_comparing_makes_nothing(bench: Bench) -> None:
    bench.server.execute("CREATE TABLE s.t (id int PRIMARY KEY)")
    plan = bench.plan("t")
    assert check_existing_target(bench.target, [plan]) is None
    assert bench.server.query("SHOW DATABASES LIKE 'm'") == []


def test_a_shard_table_that_is_gone(bench: Bench) -> None:
    bench.server.execute("CREATE TABLE s.t (id int PRIMARY KEY)")
    plan = bench.plan("t")
    bench.server.execute("DROP TABLE s.t")
    assert bench.refused(plan).spec is errors.replicate.SOURCE_TABLE_GONE
