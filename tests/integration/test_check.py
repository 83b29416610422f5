"""Pre-checks against real servers: every failure names its way out, and the way out works."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proto import config_pb2 as config
from proto import worker_pb2 as pb
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.pair import KINDS
from tests.support.ports import free_port
from worker.check import check_source, check_subtask, locks
from worker.connection import Session

SOURCE_ITEMS = [
    "connection",
    "version",
    "server_id",
    "binlog_enable",
    "binlog_format",
    "binlog_row_image",
    "replication_privilege",
]
SUBTASK_ITEMS = [
    *SOURCE_ITEMS,
    "binlog_db",
    "dump_privilege",
    "online_ddl",
    "table_schema",
    "primary_key",
    "auto_increment_ID",
    "gtid_gaps",
    "binlog_retention",
    "target_connection",
    "downstream_version",
    "target_privilege",
    "schema_of_shard_tables",
    "downstream_table_empty",
    "collation",
    "sql_mode",
    "free_space",
    "conn_number",
    "clock_skew",
    "local_infile",
    "empty_region",
    "region_distribution",
    "downstream_mutex_features",
]


@pytest.fixture(scope="module", params=KINDS)
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = KINDS[request.param](tmp_path_factory.mktemp("check"), 21)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def fresh(server: Database) -> Database:
    """The server with empty schemas shard_1, shard_2 and users dm (source) and writer (target) without grants."""
    for schema in ("shard_1", "shard_2", "merged", "other"):
        server.execute(f"DROP DATABASE IF EXISTS {schema}")
    server.execute(
        "CREATE DATABASE shard_1",
        "CREATE DATABASE shard_2",
        "CREATE TABLE shard_1.t_1 (id bigint AUTO_INCREMENT PRIMARY KEY, v int)",
        "CREATE TABLE shard_2.t_2 (id bigint AUTO_INCREMENT PRIMARY KEY, v int)",
        "DROP USER IF EXISTS dm@'127.0.0.%'",
        "DROP USER IF EXISTS writer@'%'",
        "CREATE USER dm@'127.0.0.%' IDENTIFIED BY 'secret'",
        "CREATE USER writer@'%' IDENTIFIED BY 'secret'",
    )
    return server


def source_of(server: Database, user: str = "root", password: str = "", **more: object) -> config.SourceConfig:
    made = config.SourceConfig(source_id="mysql-01", flavor="auto", **more)  # pyright: ignore[reportArgumentType]
    getattr(made, "from").CopyFrom(endpoint(server, user, password))
    return made


def endpoint(server: Database, user: str = "root", password: str = "") -> config.Endpoint:
    return config.Endpoint(host="127.0.0.1", port=server.port, user=user, password=password)


def subtask_of(server: Database, user: str = "root", password: str = "", mapped: bool = True) -> config.SubTaskConfig:
    made = config.SubTaskConfig(
        task="merge",
        source_id="mysql-01",
        mode=config.TASK_MODE_ALL,
        meta_schema="dm_meta",
        target=endpoint(server, user, password),
        block_allow_list=config.BlockAllowList(name="shards", do_dbs=["shard_*"]),
        routes=[
            config.RouteRule(
                name="r", schema_pattern="shard_*", table_pattern="t_*", target_schema="merged", target_table="t"
            )
        ],
    )
    if mapped:
        made.column_mappings.add(
            name="m", schema_pattern="shard_*", table_pattern="t_*", source_column="id", target_column="id",
            expression="partition id", arguments=["1", "shard", "t", "_"],
        )  # fmt: skip
    return made


def found(results: list[pb.CheckResult], state: pb.CheckState) -> dict[str, pb.CheckResult]:
    return {result.name: result for result in results if result.state == state}


def failures(results: list[pb.CheckResult]) -> dict[str, pb.CheckResult]:
    return found(results, pb.CHECK_STATE_FAIL)


def warnings(results: list[pb.CheckResult]) -> dict[str, pb.CheckResult]:
    return found(results, pb.CHECK_STATE_WARN)


def test_all_is_well(fresh: Database) -> None:
    results = check_source(source_of(fresh))
    assert [result.name for result in results] == SOURCE_ITEMS
    assert {result.state for result in results} == {pb.CHECK_STATE_PASS}

    results = check_subtask(source_of(fresh), subtask_of(fresh))
    assert [(result.name, result.error_msg) for result in results] == [(item, "") for item in SUBTASK_ITEMS]
    assert {result.state for result in results} == {pb.CHECK_STATE_PASS}
    assert {result.source for result in results} == {"mysql-01"}
    assert all(result.desc for result in results)
    assert fresh.query("SHOW DATABASES LIKE 'merged'") == []


def test_wrong_password(fresh: Database) -> None:
    [result] = check_source(source_of(fresh, "dm", "wrong"))
    assert (result.name, result.state, result.code) == ("connection", pb.CHECK_STATE_FAIL, 12003)
    assert "20101 source-access-denied" in result.error_msg
    assert "errno 1045" in result.error_msg
    assert "wrong" not in result.error_msg
    assert "password" in result.instruction

    results = check_subtask(source_of(fresh, "dm", "wrong"), subtask_of(fresh, "writer", "wrong"))
    assert {name: result.code for name, result in failures(results).items()} == {
        "connection": 12003,
        "target_connection": 12030,
    }


def test_a_server_that_is_not_there(fresh: Database) -> None:
    source = source_of(fresh)
    getattr(source, "from").port = free_port()
    [result] = check_source(source)
    assert "20102 source-unreachable" in result.error_msg


def test_every_missing_privilege_has_its_grant_and_the_grants_suffice(fresh: Database) -> None:
    fresh.execute("GRANT INSERT ON shard_1.* TO dm@'127.0.0.%'", "GRANT INSERT ON shard_2.t_2 TO dm@'127.0.0.%'")
    source, subtask = source_of(fresh, "dm", "secret"), subtask_of(fresh, "writer", "secret")
    bad = failures(check_subtask(source, subtask))
    assert {name: result.code for name, result in bad.items()} == {
        "replication_privilege": 12017,
        "binlog_db": 12050,
        "dump_privilege": 12017,
        "auto_increment_ID": 12050,
        "target_privilege": 12017,
    }
    assert bad["replication_privilege"].instruction == (
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'dm'@'127.0.0.%';"
    )
    assert bad["dump_privilege"].instruction == (
        "GRANT SELECT ON `shard\\_1`.* TO 'dm'@'127.0.0.%';\nGRANT SELECT ON `shard\\_2`.* TO 'dm'@'127.0.0.%';"
    )
    assert "SELECT on shard_1.t_1, shard_2.t_2" in bad["dump_privilege"].error_msg
    # The statements are meant to be run as they stand.
    for result in bad.values():
        if result.code == 12017:
            fresh.execute(*(statement for statement in result.instruction.split(";") if statement.strip()))
    # Rows could be moved now; DDL needs more.
    [ddl] = [result for result in check_subtask(source, subtask) if result.error_msg]
    assert (ddl.name, ddl.code, ddl.state) == ("target_privilege", 12028, pb.CHECK_STATE_WARN)
    assert ddl.instruction == (
        "GRANT ALTER, DROP, INDEX ON `dm\\_meta`.* TO 'writer'@'%';\n"
        "GRANT ALTER, DROP, INDEX ON `merged`.* TO 'writer'@'%';"
    )
    fresh.execute(*ddl.instruction.split("\n"))
    results = check_subtask(source, subtask)
    assert [(result.name, result.error_msg) for result in results] == [(item, "") for item in SUBTASK_ITEMS]


def test_tables_that_the_user_cannot_see_are_warned_of(fresh: Database) -> None:
    fresh.execute(
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO dm@'127.0.0.%'",
        "GRANT SELECT ON shard_1.t_1 TO dm@'127.0.0.%'",
    )
    results = check_subtask(source_of(fresh, "dm", "secret"), subtask_of(fresh))
    assert failures(results) == {}
    result = warnings(results)["dump_privilege"]
    assert (result.code, result.instruction) == (12018, "GRANT SELECT ON `shard\\_1`.* TO 'dm'@'127.0.0.%';")


def test_lock_tables_is_asked_for_where_it_is_needed(fresh: Database) -> None:
    keyless = "CREATE TABLE shard_1.t_3 (id bigint, name text)"
    fresh.execute(
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO dm@'127.0.0.%'",
        "GRANT SELECT ON *.* TO dm@'127.0.0.%'",
        # Without a key, but MariaDB tells the position of a consistent read: no lock.
        *([keyless] if fresh.flavor == "mariadb" else []),
    )
    source, subtask = source_of(fresh, "dm", "secret"), subtask_of(fresh)
    assert failures(check_subtask(source, subtask)) == {}
    if fresh.flavor == "mysql":
        fresh.execute(keyless)
        assert "reading shard_1.t_3 at" in failures(check_subtask(source, subtask))["dump_privilege"].error_msg
        fresh.execute("DROP TABLE shard_1.t_3")
    fresh.execute(fresh.spelt("CREATE TABLE shard_2.t_4 (id bigint PRIMARY KEY, v int) ENGINE=Aria"))
    result = failures(check_subtask(source, subtask))["dump_privilege"]
    assert (result.code, result.instruction) == (12017, "GRANT LOCK TABLES ON `shard\\_2`.* TO 'dm'@'127.0.0.%';")
    assert "LOCK TABLES, which reading shard_2.t_4 at one position takes" in result.error_msg
    subtask.mode = config.TASK_MODE_INCREMENTAL  # reads no table
    assert "dump_privilege" not in failures(check_subtask(source, subtask))
    subtask.mode = config.TASK_MODE_ALL
    fresh.execute(result.instruction)
    assert "dump_privilege" not in failures(check_subtask(source, subtask))


def test_lock_tables_is_asked_for_by_the_targets_keys_where_positions_are_not_told(
    fresh: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on MySQL: there a consistent snapshot does not tell its position."""

    def untold(session: Session) -> None:
        return None

    monkeypatch.setattr(locks, "open_consistent", untold)
    fresh.execute(
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO dm@'127.0.0.%'",
        "GRANT SELECT ON *.* TO dm@'127.0.0.%'",
    )
    source, subtask = source_of(fresh, "dm", "secret"), subtask_of(fresh)
    assert failures(check_subtask(source, subtask)) == {}
    fresh.execute("CREATE TABLE shard_2.t_4 (id bigint, name text)")
    assert "reading shard_2.t_4 at" in failures(check_subtask(source, subtask))["dump_privilege"].error_msg
    fresh.execute(
        "DROP TABLE shard_2.t_4", "ALTER TABLE shard_1.t_1 ADD UNIQUE (v)", "ALTER TABLE shard_2.t_2 ADD UNIQUE (v)"
    )
    result = failures(check_subtask(source, subtask))["dump_privilege"]
    assert "reading shard_1.t_1, shard_2.t_2 at" in result.error_msg
    # A target that exists, with other unique keys, decides.
    fresh.execute("CREATE DATABASE merged", "CREATE TABLE merged.t (id bigint PRIMARY KEY, v int)")
    assert failures(check_subtask(source, subtask)) == {}
    fresh.execute("ALTER TABLE merged.t ADD UNIQUE (v)")
    assert failures(check_subtask(source, subtask))["dump_privilege"].instruction == result.instruction
    subtask.ignore_checking_items[:] = ["dump_privilege"]
    assert failures(check_subtask(source, subtask)) == {}
    subtask.ignore_checking_items[:] = []
    fresh.execute(*(statement for statement in result.instruction.split(";") if statement.strip()))
    assert failures(check_subtask(source, subtask)) == {}


def test_no_table_matches(fresh: Database) -> None:
    subtask = subtask_of(fresh)
    subtask.block_allow_list.do_dbs[:] = ["shart_*"]
    assert failures(check_subtask(source_of(fresh), subtask))["table_schema"].code == 12015


def test_items_can_be_left_out(fresh: Database) -> None:
    source, subtask = source_of(fresh, "dm", "secret"), subtask_of(fresh)
    subtask.ignore_checking_items[:] = ["replication_privilege", "binlog_db", "table_schema"]
    names = [result.name for result in check_subtask(source, subtask)]
    assert not {"replication_privilege", "binlog_db", "table_schema"} & set(names)
    subtask.ignore_checking_items[:] = ["all"]
    assert check_subtask(source, subtask) == []


def test_tables_that_cannot_be_merged(fresh: Database) -> None:
    if fresh.flavor != "mariadb":
        pytest.skip("MySQL has no system versioning")
    fresh.execute(
        "CREATE TABLE shard_1.t_2 (id bigint PRIMARY KEY, v varchar(20) COMPRESSED)",
        "CREATE TABLE shard_1.t_3 (id bigint, name text)",
        "CREATE TABLE shard_1.t_4 (id bigint PRIMARY KEY, p bigint, CONSTRAINT up FOREIGN KEY (p)"
        " REFERENCES t_1 (id) ON DELETE CASCADE)",
        "CREATE TABLE shard_1.t_5 (id bigint PRIMARY KEY) ENGINE=MyISAM",
        "CREATE TABLE shard_1.t_6 (id bigint PRIMARY KEY) WITH SYSTEM VERSIONING",
        "CREATE TABLE shard_1.t_x (id bigint PRIMARY KEY)",
    )
    checked = check_subtask(source_of(fresh), subtask_of(fresh))
    results = [r for r in checked if r.name == "table_schema"]
    assert [(result.code, result.state == pb.CHECK_STATE_FAIL) for result in results] == [
        (12010, True),
        (12011, True),
        (12016, True),
        (12013, True),
        (12014, True),
    ]
    [keyless] = [r for r in checked if r.name == "primary_key"]
    assert (keyless.code, keyless.state) == (12012, pb.CHECK_STATE_WARN)
    compressed, versioned, rules, cascade, engine = results
    assert "shard_1.t_2.v has type varchar(20)" in compressed.error_msg
    assert "shard_1.t_6" in versioned.error_msg
    assert "t_x" in rules.error_msg
    assert cascade.error_msg.endswith("shard_1.t_4 (up)")
    assert engine.error_msg.endswith("shard_1.t_5")
    assert keyless.error_msg.endswith("shard_1.t_3")


def test_tables_of_an_online_schema_change(fresh: Database) -> None:
    fresh.execute(
        "CREATE TABLE shard_1._t_1_gho LIKE shard_1.t_1",
        "CREATE TABLE shard_1._t_1_old LIKE shard_1.t_1",
    )
    subtask = subtask_of(fresh)
    assert "online_ddl" not in warnings(check_subtask(source_of(fresh), subtask))
    subtask.online_ddl.shadow_tables.append("^_(.+)_gho$")
    subtask.online_ddl.trash_tables.append("^_(.+)_old$")
    warning = warnings(check_subtask(source_of(fresh), subtask))["online_ddl"]
    assert warning.code == 12019
    assert "shard_1._t_1_gho, shard_1._t_1_old are named" in warning.error_msg


def test_ids_that_do_not_fit_their_mapping(fresh: Database) -> None:
    highest = (1 << 44) - 1
    fresh.execute(f"INSERT INTO shard_1.t_1 (id) VALUES (1), ({highest})", "INSERT INTO shard_2.t_2 (id) VALUES (-1)")
    results = [r for r in check_subtask(source_of(fresh), subtask_of(fresh)) if r.name == "auto_increment_ID"]
    assert [result.code for result in results] == [12020, 12022]
    assert f"shard_2.t_2.id (0 to {highest}), which holds -1 to -1" in results[0].error_msg
    fresh.execute(f"INSERT INTO shard_1.t_1 (id) VALUES ({highest + 1})", "DELETE FROM shard_2.t_2")
    results = [r for r in check_subtask(source_of(fresh), subtask_of(fresh)) if r.name == "auto_increment_ID"]
    assert [result.code for result in results] == [12020, 12022]
    assert f"holds 1 to {highest + 1}" in results[0].error_msg


def test_counters_that_are_merged_without_a_mapping(fresh: Database) -> None:
    results = check_subtask(source_of(fresh), subtask_of(fresh, mapped=False))
    assert failures(results) == {}
    assert warnings(results)["auto_increment_ID"].code == 12021


def test_a_target_table_that_differs_or_has_no_transactions(fresh: Database) -> None:
    fresh.execute("CREATE DATABASE merged", "CREATE TABLE merged.t (id int PRIMARY KEY, v int)")
    result = failures(check_subtask(source_of(fresh), subtask_of(fresh)))["schema_of_shard_tables"]
    assert result.code == 12031
    assert "column id: bigint is needed for `partition id` (shard_1.t_1, shard_2.t_2)" in result.error_msg
    fresh.execute(fresh.spelt("ALTER TABLE merged.t MODIFY id bigint NOT NULL, ENGINE=Aria"))
    result = failures(check_subtask(source_of(fresh), subtask_of(fresh)))["schema_of_shard_tables"]
    assert fresh.spelt("merged.t has ENGINE=Aria").replace("ENGINE=", "engine ") in result.error_msg
    fresh.execute("ALTER TABLE merged.t ENGINE=InnoDB")
    assert failures(check_subtask(source_of(fresh), subtask_of(fresh))) == {}


def test_a_start_position(fresh: Database) -> None:
    file, size = fresh.binlog_end()
    subtask = subtask_of(fresh)
    subtask.mode = config.TASK_MODE_INCREMENTAL
    for name, position, good in (
        (file, size, True),
        (file, 4, True),
        (file, 5, False),
        (file, size + 1, False),
        ("mysql-bin.000099", 4, False),
    ):
        subtask.start.file, subtask.start.pos = name, position
        results = check_subtask(source_of(fresh), subtask)
        assert {name: result.code for name, result in failures(results).items()} == (
            {} if good else {"meta_position": 12040}
        ), (name, position)
        assert "meta_position" in [result.name for result in results]


def test_flavor_and_server_id(fresh: Database) -> None:
    source = source_of(fresh, server_id=21)
    [source.flavor] = KINDS.keys() - {fresh.flavor}
    bad = failures(check_source(source))
    assert {name: result.code for name, result in bad.items()} == {"version": 12004, "server_id": 12005}
    assert f"flavor: {fresh.flavor}" in bad["version"].instruction


def test_what_mysql_cannot_merge(fresh: Database) -> None:
    if fresh.flavor != "mysql":
        pytest.skip("of MySQL")
    fresh.execute(
        "CREATE TABLE shard_1.t_2 (id bigint PRIMARY KEY, c enum('a','😀') CHARACTER SET utf8mb4)",
        "CREATE TABLE shard_1.t_3 (id bigint, name text)",
        "CREATE TABLE shard_1.t_4 (id bigint PRIMARY KEY, p bigint, CONSTRAINT up FOREIGN KEY (p)"
        " REFERENCES shard_1.t_1 (id) ON DELETE CASCADE)",
        "CREATE TABLE shard_1.t_5 (id bigint PRIMARY KEY) ENGINE=MyISAM",
    )
    checked = check_subtask(source_of(fresh), subtask_of(fresh))
    results = [r for r in checked if r.name == "table_schema"]
    assert warnings(checked)["primary_key"].error_msg.endswith(": shard_1.t_3")
    assert [(result.code, result.state == pb.CHECK_STATE_FAIL) for result in results] == [
        (12010, True),
        (12013, True),
        (12014, True),
    ]


def test_privileges_that_a_role_gives(fresh: Database) -> None:
    """A role that is active counts; one that is only granted does not."""
    fresh.execute(
        "DROP ROLE IF EXISTS copier",
        "CREATE ROLE copier",
        "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO copier",
        "GRANT copier TO dm@'127.0.0.%'",
    )
    source, subtask = source_of(fresh, "dm", "secret"), subtask_of(fresh)
    assert "replication_privilege" in failures(check_subtask(source, subtask))
    fresh.execute(
        "SET DEFAULT ROLE copier TO dm@'127.0.0.%'"
        if fresh.flavor == "mysql"
        else "SET DEFAULT ROLE copier FOR dm@'127.0.0.%'"
    )
    assert failures(check_subtask(source, subtask)) == {}


def test_a_start_by_gtid(fresh: Database) -> None:
    if fresh.flavor != "mysql":
        pytest.skip("MariaDB's GTIDs are of another form")
    [(executed, uuid)] = fresh.query("SELECT @@GLOBAL.gtid_executed, @@GLOBAL.server_uuid")
    subtask = subtask_of(fresh)
    subtask.mode = config.TASK_MODE_INCREMENTAL
    subtask.start.gtid_set = str(executed)
    assert failures(check_subtask(source_of(fresh), subtask)) == {}
    fresh.execute("FLUSH BINARY LOGS")
    file, _ = fresh.binlog_end()
    fresh.execute(f"PURGE BINARY LOGS TO '{file}'")
    assert failures(check_subtask(source_of(fresh), subtask)) == {}, "what is purged was applied before the start"
    subtask.start.gtid_set = f"{uuid}:1"
    result = failures(check_subtask(source_of(fresh), subtask))["meta_position"]
    assert result.code == 12040
    assert f"{uuid}:2" in result.error_msg


@pytest.mark.parametrize(
    ("options", "item", "code"),
    [
        (("--skip-log-bin",), "binlog_enable", 12006),
        (("--binlog-format=STATEMENT",), "binlog_format", 12007),
        (("--binlog-format=MIXED",), "binlog_format", 12007),
        (("--binlog-row-image=MINIMAL",), "binlog_row_image", 12008),
        (("--binlog-ignore-db=shard_2",), "binlog_db", 12042),
        (("--binlog-do-db=shard_1",), "binlog_db", 12042),
    ],
)
def test_binlog_options(
    tmp_path_factory: pytest.TempPathFactory, options: tuple[str, ...], item: str, code: int
) -> None:
    _check_options(MariaDB(tmp_path_factory.mktemp("options"), 22, options), item, code)


@pytest.mark.parametrize(
    ("options", "item", "code"),
    [
        (("--skip-log-bin", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"), "binlog_enable", 12006),
        (("--binlog-format=MIXED", "--binlog-row-image=MINIMAL"), "binlog_format binlog_row_image", 12008),
        (("--binlog-ignore-db=shard_2",), "binlog_db", 12042),
    ],
)
def test_binlog_options_of_mysql(
    tmp_path_factory: pytest.TempPathFactory, options: tuple[str, ...], item: str, code: int
) -> None:
    _check_options(MySQL(tmp_path_factory.mktemp("options"), 22, options), item, code)


def _check_options(server: Database, items: str, code: int) -> None:
    """What fails are the ``items``, the last with ``code``; the instructions mend what can be mended while it runs."""
    server.start()
    try:
        for schema in ("shard_1", "shard_2"):
            server.execute(
                f"CREATE DATABASE {schema}", f"CREATE TABLE {schema}.t_{schema[-1]} (id bigint PRIMARY KEY, v int)"
            )
        results = check_subtask(source_of(server), subtask_of(server))
        found = failures(results)
        assert list(found) == items.split()
        assert found[items.rsplit(maxsplit=1)[-1]].code == code
        if found.keys() <= {"binlog_format", "binlog_row_image"}:
            server.execute(*(result.instruction.split(";")[0] for result in found.values()))
            assert failures(check_subtask(source_of(server), subtask_of(server))) == {}
    finally:
        server.stop()
