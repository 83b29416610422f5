"""Tests extracted columns in the keys of target tables, on targets of both kinds: their pre-check, statements that add
keys, and the parts in which a shard table's rows are removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pymysql
import pytest

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect
from shardmerge.worker.core.mysql.information_schema import read_table
from shardmerge.worker.core.sql.table_text import read_index
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import ColumnPlan, Constant, ExtractInKey, TargetTable
from shardmerge.worker.ddl.execute.added_keys import TargetKeys, with_extracted_columns
from shardmerge.worker.ddl.execute.remove_rows import parts_of
from shardmerge.worker.ddl.sql.column_definition import parse_column
from shardmerge.worker.target.records.schema import ensure_meta
from shardmerge.worker.verify.precheck import CheckRequest, check_subtask
from shardmerge.worker.verify.precheck.target.key_length import MARIADB, OTHERS
from tests.support.database import Database
from tests.support.pair import KINDS, emptied
from tests.unit.worker.snapshot.shards import PLAN, VALUE

_ITEM = "extracted_columns"
_RECORDED = CheckRequest(as_recorded=True)


class Ends:
    """A source with shard_1.t_1 and shard_1.t_2, and a target of the other kind."""

    def __init__(self, source: Database, target: Database) -> None:
        self.source, self.target = source, target
        self.config = config.SourceConfig(source_id="s1", flavor="auto")
        getattr(self.config, "from").CopyFrom(_endpoint(source))
        self.route = config.RouteRule(
            name="r",
            schema_pattern="shard_*",
            table_pattern="t_*",
            target_schema="merged",
            target_table="t",
            extract_table=config.ExtractColumn(pattern="t_(.*)", target_column="c_table"),
        )
        self.subtask = config.SubTaskConfig(
            task="merge",
            source_id="s1",
            mode=config.TASK_MODE_ALL,
            meta_schema="dm_meta",
            target=_endpoint(target),
            block_allow_list=config.BlockAllowList(name="shards", do_dbs=["shard_*"]),
            routes=[self.route],
            extract_in_key=config.EXTRACT_IN_KEY_AUTO,
        )

    def tables(self, definition: str) -> None:
        self.source.execute(
            "CREATE DATABASE IF NOT EXISTS shard_1",
            "DROP TABLE IF EXISTS shard_1.t_1, shard_1.t_2",
            f"CREATE TABLE shard_1.t_1 ({definition})",
            f"CREATE TABLE shard_1.t_2 ({definition})",
        )

    def found(self, question: CheckRequest | None = None) -> pb.CheckResult:
        [result] = [one for one in check_subtask(self.config, self.subtask, question) if one.name == _ITEM]
        return result

    def passes(self, question: CheckRequest | None = None) -> str:
        """Check that the item passes; return its description."""
        result = self.found(question)
        assert (result.state, result.code) == (pb.CHECK_STATE_PASS, 0), result
        return result.desc.partition(": ")[2]


def _endpoint(server: Database) -> config.Endpoint:
    return config.Endpoint(host="127.0.0.1", port=server.port, user="root")


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Database]]:
    """Start the servers; the parameter is the target's kind."""
    folder = tmp_path_factory.mktemp("extracted")
    [other] = KINDS.keys() - {request.param}
    made = [KINDS[kind](folder / kind, 41 + number) for number, kind in enumerate((other, request.param))]
    try:
        yield [server.start() for server in made]
    finally:
        for server in made:
            server.stop()


@pytest.fixture
def ends(started: list[Database]) -> Ends:
    made = Ends(*(emptied(server) for server in started))
    made.tables("id bigint AUTO_INCREMENT PRIMARY KEY, v varchar(30), UNIQUE u (v(10))")
    return made


def _with(result: pb.CheckResult) -> tuple[int, bool]:
    return result.code, result.state == pb.CHECK_STATE_FAIL


def _run_printed(ends: Ends, result: pb.CheckResult) -> None:
    [statement] = [line for line in result.instruction.splitlines() if line.startswith("ALTER TABLE")]
    assert statement.endswith(";")
    ends.target.execute(statement)


def test_a_created_table(ends: Ends) -> None:
    names = {one.name for one in check_subtask(ends.config, ends.subtask) if one.state != pb.CHECK_STATE_PASS}
    assert not names & {"auto_increment_ID", "collation", "filter_rules"}
    assert ends.passes() == "merged.t will have PRIMARY KEY (id, c_table), u (v, c_table)"
    ends.subtask.column_mappings.add(
        name="m", schema_pattern="shard_*", table_pattern="t_*", source_column="id", target_column="id",
        expression="partition id", arguments=["1", "shard", "t", "_"],
    )  # fmt: skip
    assert "merged.t will have PRIMARY KEY (id) without extracted columns (`partition id`" in ends.passes()
    ends.subtask.extract_in_key = config.EXTRACT_IN_KEY_ALWAYS
    assert ends.passes() == "merged.t will have PRIMARY KEY (id, c_table), u (v, c_table)"
    ends.subtask.routes[0].extract_in_key = config.EXTRACT_IN_KEY_NEVER
    assert "u (v) without extracted columns (extract-in-key: never)" in ends.passes()
    ends.subtask.routes[0].ClearField("extract_table")
    assert ends.passes() == ""


def test_an_existing_table_gets_the_printed_statement(ends: Ends) -> None:
    ends.target.execute(
        "CREATE DATABASE merged",
        "CREATE TABLE merged.t (id bigint NOT NULL AUTO_INCREMENT, v varchar(30), w int NOT NULL, "
        "c_table varchar(300) CHARACTER SET latin1, g int GENERATED ALWAYS AS (length(v)) STORED, PRIMARY KEY (id), "
        "UNIQUE u (v(10)) COMMENT 'x(', UNIQUE g (g), UNIQUE w (w), KEY k (v))",
        "INSERT INTO merged.t (v, w, c_table) VALUES ('a', 1, '1')",
    )
    refused = ends.found(_RECORDED)  # as check-task and start-task ask, whether there are records or not
    assert _with(refused) == (12101, True)
    assert "merged.t: PRIMARY KEY (id), g (g), u (v) lacks" in refused.error_msg
    _run_printed(ends, refused)
    repaired = ends.passes()
    for key in ("PRIMARY KEY (id, c_table)", "u (v, c_table)", "g (g, c_table)", "w (w) without extracted columns"):
        assert key in repaired
    ends.target.execute("INSERT INTO merged.t (id, v, w, c_table) VALUES (1, 'a', 2, '2')")
    ends.target.execute("DELETE FROM merged.t WHERE w = 2", "ALTER TABLE merged.t DROP KEY u, ADD UNIQUE u (v)")
    assert _with(ends.found()) == (12101, False)
    ends.subtask.extract_in_key = config.EXTRACT_IN_KEY_NEVER
    assert "u (v) without" in ends.passes()


@pytest.mark.parametrize("source", ["s1", "s2"])
def test_a_task_that_has_begun_keeps_its_keys(ends: Ends, source: str) -> None:
    ends.target.execute(
        "CREATE DATABASE merged",
        "CREATE TABLE merged.t (id bigint PRIMARY KEY, v varchar(30), c_table varchar(64) NOT NULL)",
    )
    with closing(connect(Endpoint("127.0.0.1", ends.target.port, "root"), Side.TARGET, name="target")) as session:
        ensure_meta(session, "dm_meta")
    record = f"INSERT INTO dm_meta.snapshot_table VALUES ('merge', '{source}', 0, 'shard_1', 't_1', 'merged', 't')"
    assert _with(ends.found(_RECORDED)) == (12101, True)
    ends.target.execute(record)
    assert _with(ends.found(_RECORDED)) == (12101, False)
    # start-task --remove-meta: the records of the sources that it starts do not count.
    assert _with(ends.found(CheckRequest(together=frozenset({"s1"})))) == (12101, source == "s1")


def test_a_table_that_was_made_for_tidb_dm_is_accepted(ends: Ends) -> None:
    ends.route = ends.subtask.routes[0]
    ends.route.extract_schema.pattern, ends.route.extract_schema.target_column = "shard_(.*)", "c_schema"
    ends.source.execute(
        "CREATE DATABASE shard_2", "CREATE TABLE shard_2.t_1 LIKE shard_1.t_1", "DROP TABLE shard_1.t_2"
    )
    ends.target.execute(
        "CREATE DATABASE merged",
        "CREATE TABLE merged.t (id bigint, v varchar(30), c_table varchar(64) NOT NULL, c_schema varchar(64) NOT NULL, "
        "PRIMARY KEY (id, c_schema))",
    )
    assert ends.passes() == "merged.t has PRIMARY KEY (id, c_schema)"
    # Two tables of one schema: c_schema no longer distinguishes them.
    ends.source.execute("CREATE TABLE shard_1.t_2 LIKE shard_1.t_1")
    refused = ends.found()
    assert _with(refused) == (12101, True)
    _run_printed(ends, refused)
    assert ends.passes() == "merged.t has PRIMARY KEY (id, c_schema, c_table)"


def test_one_shard_table_alone_needs_no_column(ends: Ends) -> None:
    ends.source.execute("DROP TABLE shard_1.t_2")
    ends.target.execute(
        "CREATE DATABASE merged",
        "CREATE TABLE merged.t (id bigint PRIMARY KEY, v varchar(30), c_table varchar(64) NOT NULL)",
    )
    ends.passes()
    assert _with(ends.found(CheckRequest(family=[ends.subtask, ends.subtask]))) == (12101, True)


def _accepts(server: Database, definition: str) -> bool:
    try:
        server.execute(
            "CREATE DATABASE IF NOT EXISTS x", "DROP TABLE IF EXISTS x.t", f"CREATE TABLE x.t ({definition})"
        )
    except pymysql.MySQLError as error:
        assert error.args[0] in (1070, 1071), error
        return False
    return True


_LONG, _SHORT = "varchar(704) CHARACTER SET utf8mb4", "varchar(64) CHARACTER SET utf8mb4"
_LONGER = "varchar(705) CHARACTER SET utf8mb4"
_TEXT = "varchar(760) CHARACTER SET utf8mb4"


@pytest.mark.parametrize("name", ["", "u"], ids=["primary", "unique"])
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([(_LONG, 0), (_SHORT, 0)], id="3072 bytes"),
        pytest.param([(_LONGER, 0), (_SHORT, 0)], id="3076 bytes"),
        pytest.param([(_LONGER, 704), (_SHORT, 0)], id="3072 bytes by a prefix"),
        pytest.param([(_TEXT, 758), ("decimal(65,30)", 0), ("datetime(6)", 0)], id="3070 bytes of several types"),
        pytest.param([(_TEXT, 758), ("decimal(65,30)", 0), ("bigint", 0), ("bit(9)", 0)], id="3072 bytes of others"),
        pytest.param([(_TEXT, 758), ("decimal(65,30)", 0), ("bigint", 0), ("date", 0)], id="3073 bytes"),
        *(pytest.param([("int", 0)] * count, id=f"{count} columns") for count in (16, 17, 32, 33)),
    ],
)
def test_the_limits_are_those_of_the_servers(started: list[Database], parts: list[tuple[str, int]], name: str) -> None:
    server = started[1]
    limits = MARIADB if server.query("SELECT VERSION() LIKE '%MariaDB%'")[0][0] else OTHERS
    names = tuple(f"c{at}" for at in range(len(parts)))
    of_columns = list(zip(names, parts, strict=True))
    columns = ", ".join(f"{column} {text} NOT NULL" for column, (text, _) in of_columns)
    listed = ", ".join(f"{column}({length})" if length else column for column, (_, length) in of_columns)
    types = {column: parse_column(column, f" {text}", "utf8mb4_bin").type for column, (text, _) in of_columns}
    printed = ",".join(f"`{column}`({length})" if length else f"`{column}`" for column, (_, length) in of_columns)
    key = read_index(f"{f'UNIQUE KEY `{name}`' if name else 'PRIMARY KEY'} ({printed})")
    accepted = _accepts(server, f"{columns}, {'UNIQUE KEY u' if name else 'PRIMARY KEY'} ({listed})")
    assert (limits.exceeded(key, types) is None) is accepted


@pytest.mark.parametrize(
    ("statement", "keys"),
    [
        ("ADD UNIQUE (a)", {"PRIMARY": "id,c_table", "u": "b,c_table", "a": "a,c_table"}),
        ("ADD x INT UNIQUE", {"PRIMARY": "id,c_table", "u": "b,c_table", "x": "x,c_table"}),
        ("MODIFY a BIGINT UNIQUE KEY FIRST", {"PRIMARY": "id,c_table", "u": "b,c_table", "a": "a,c_table"}),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)", {"PRIMARY": "id,a,c_table", "u": "b,c_table"}),
        (
            "DROP PRIMARY KEY, MODIFY a BIGINT PRIMARY KEY, ADD KEY (id)",
            {"PRIMARY": "a,c_table", "u": "b,c_table", "id": "id"},
        ),
        ("DROP COLUMN b", {"PRIMARY": "id,c_table"}),
        ("DROP COLUMN id, ADD n INT NOT NULL, ADD PRIMARY KEY (n)", {"PRIMARY": "n,c_table", "u": "b,c_table"}),
        ("DROP COLUMN id, ADD n INT PRIMARY KEY", {"PRIMARY": "n,c_table", "u": "b,c_table"}),
    ],
)
def test_statements_that_add_and_empty_keys(started: list[Database], statement: str, keys: dict[str, str]) -> None:
    server = started[1]
    server.execute(
        "CREATE DATABASE IF NOT EXISTS x",
        "DROP TABLE IF EXISTS x.t",
        "CREATE TABLE x.t (id bigint NOT NULL AUTO_INCREMENT, a int NOT NULL, b int, c_table varchar(64) NOT NULL, "
        "PRIMARY KEY (id, c_table), UNIQUE u (b, c_table))",
    )
    plan = replace(
        PLAN,
        columns=(*PLAN.columns, ColumnPlan(-1, VALUE, "c_table", Constant("1"))),
        extract_in_key=ExtractInKey.AUTO,
    )
    creation = str(server.query("SHOW CREATE TABLE x.t")[0][1])
    server.execute(with_extracted_columns(f"ALTER TABLE x.t {statement}", 0, TargetKeys.of(plan, creation)))
    found = server.query(
        "SELECT INDEX_NAME, GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX) FROM information_schema.STATISTICS "
        "WHERE TABLE_SCHEMA = 'x' GROUP BY 1"
    )
    assert {str(name): str(columns) for name, columns in found} == keys


@pytest.mark.parametrize("key", ["id, c", "c, id", "t, c"])
def test_parts_of_a_target_cover_each_row_once(started: list[Database], key: str) -> None:
    server, place = started[1], TargetTable("x", "t")
    ids = [*range(-3, 5), *([7] * 12), 9, *([11] * 4), 20]
    values = ", ".join(f"({number}, {at}, {number})" for at, number in enumerate(ids))
    server.execute(
        "CREATE DATABASE IF NOT EXISTS x",
        "DROP TABLE IF EXISTS x.t",
        f"CREATE TABLE x.t (id int, c int, t varchar(9), PRIMARY KEY ({key}))",
        f"INSERT INTO x.t VALUES {values}",
    )
    with closing(connect(Endpoint("127.0.0.1", server.port, "root"), Side.TARGET, name="target")) as session:
        table = read_table(session, "x", "t", source="target")
        assert table is not None
        for most in (1, 2, 5, 100):
            parts = list(parts_of(session, place, table, StopSignal(), most))
            found = [
                int(str(c))
                for part in parts
                for (c,) in server.query(f"SELECT c FROM x.t WHERE 1 = 1{part} ORDER BY c")
            ]
            assert sorted(found) == list(range(len(ids)))
            assert len(parts) > 1 or most == 100 or key.startswith("t")
