"""Tests pre-checks against real servers: every failure names its way out, and the way out works."""

from __future__ import annotations

import pytest

from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.verify.precheck import check_source, check_subtask
from tests.integration.check_rig import (
    SOURCE_ITEMS,
    SUBTASK_ITEMS,
    failures,
    fresh,
    server,
    source_of,
    subtask_of,
    warnings,
)
from tests.support.database import Database
from tests.support.pair import KINDS
from tests.support.ports import free_port

__all__ = ["fresh", "server"]


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


@pytest.mark.parametrize("setting", ["autocommit=0", "completion_type='CHAIN'", "completion_type='RELEASE'"])
def test_how_sessions_begin_and_end_by_default_does_not_matter(fresh: Database, setting: str) -> None:
    fresh.execute(f"SET GLOBAL {setting}")
    try:
        results = check_subtask(source_of(fresh), subtask_of(fresh))
        assert [(result.name, result.error_msg) for result in results] == [(item, "") for item in SUBTASK_ITEMS]
    finally:
        fresh.execute("SET GLOBAL autocommit = 1", "SET GLOBAL completion_type = 'NO_CHAIN'")


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


def test_no_table_matches(fresh: Database) -> None:
    subtask = subtask_of(fresh)
    subtask.block_allow_list.do_dbs[:] = ["shart_*"]
    failure = failures(check_subtask(source_of(fresh), subtask))["table_schema"]
    assert failure.code == 12015
    # The tables of a source may be created after the task has started.
    assert "ignore-checking-items: [table_schema]" in failure.instruction
    subtask.ignore_checking_items[:] = ["table_schema"]
    assert failures(check_subtask(source_of(fresh), subtask)) == {}


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


@pytest.mark.parametrize("action", ["DELETE CASCADE", "DELETE SET NULL", "UPDATE CASCADE"])
def test_cascades_are_found_with_the_documented_grants(fresh: Database, action: str) -> None:
    """MariaDB shows foreign keys in information_schema only to accounts that may do more than read."""
    fresh.execute(
        "CREATE TABLE shard_1.t_4 (id bigint PRIMARY KEY, p bigint, CONSTRAINT up FOREIGN KEY (p)"
        f" REFERENCES shard_1.t_1 (id) ON {action})",
        "CREATE TABLE shard_1.t_5 (id bigint PRIMARY KEY, p bigint, FOREIGN KEY (p) REFERENCES shard_1.t_1 (id))",
        "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO dm@'127.0.0.%'",
        "GRANT ALL ON merged.* TO writer@'%'",
        "GRANT ALL ON dm_meta.* TO writer@'%'",
    )
    bad = failures(check_subtask(source_of(fresh, "dm", "secret"), subtask_of(fresh, "writer", "secret")))
    assert {name: result.code for name, result in bad.items()} == {"table_schema": 12013, "references": 12085}
    assert bad["table_schema"].error_msg.endswith("cascade, which the binary log does not show: shard_1.t_4 (up)")


def test_cascades_that_are_derived(fresh: Database) -> None:
    fresh.execute(
        "CREATE TABLE shard_1.t_4 (id bigint PRIMARY KEY, p bigint, CONSTRAINT up FOREIGN KEY (p)"
        " REFERENCES shard_1.t_4 (id) ON DELETE CASCADE)",
    )
    subtask = subtask_of(fresh)
    subtask.derive_cascades = True
    subtask.references.add(table="t", column="p", to_table="t", to_column="id")
    assert failures(check_subtask(source_of(fresh), subtask)).keys() <= {"schema_of_shard_tables"}
    fresh.execute(
        "ALTER TABLE shard_1.t_4 DROP FOREIGN KEY up",
        "ALTER TABLE shard_1.t_4 ADD CONSTRAINT up FOREIGN KEY (p) REFERENCES shard_1.t_1 (id) ON DELETE CASCADE",
    )
    bad = failures(check_subtask(source_of(fresh), subtask))["table_schema"]
    assert bad.code == 12093
    assert "shard_1.t_4 (up): p has another mapping than id" in bad.error_msg


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
    # The same errors pause a running task; here nothing is to be resumed.
    assert "check-task again" in result.instruction and "resume-task" not in result.instruction
    fresh.execute(fresh.spelt("ALTER TABLE merged.t MODIFY id bigint NOT NULL, ENGINE=Aria"))
    result = failures(check_subtask(source_of(fresh), subtask_of(fresh)))["schema_of_shard_tables"]
    assert fresh.spelt("merged.t has ENGINE=Aria").replace("ENGINE=", "engine ") in result.error_msg
    assert "check-task again" in result.instruction and "resume-task" not in result.instruction
    fresh.execute("ALTER TABLE merged.t ENGINE=InnoDB")
    assert failures(check_subtask(source_of(fresh), subtask_of(fresh))) == {}


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


def test_sequences_that_the_rules_let_through(fresh: Database) -> None:
    """Their numbers are logged as rows; the way out is a line of the block-allow-list."""
    if fresh.flavor != "mariadb":
        pytest.skip("MySQL has no sequences")
    fresh.execute(
        "CREATE DATABASE other",
        "CREATE SEQUENCE shard_1.sq",
        "CREATE SEQUENCE shard_2.alone",
        "CREATE SEQUENCE other.far",
        "ALTER TABLE shard_1.t_1 ADD n int NOT NULL DEFAULT (NEXTVAL(shard_1.sq) + NEXTVAL(other.far))",
        "ALTER TABLE shard_2.t_2 ADD n int NOT NULL",
    )
    subtask = subtask_of(fresh)
    results = [one for one in check_subtask(source_of(fresh), subtask) if one.code == 12108]
    failure, warning = results
    assert (failure.state, warning.state) == (pb.CHECK_STATE_FAIL, pb.CHECK_STATE_WARN)
    assert "shard_1.sq (the default of shard_1.t_1.n)" in failure.error_msg
    assert 'ignore-tables: [{db-name: "shard_1", tbl-name: "sq"}]' in failure.instruction
    assert "shard_2.alone" in warning.error_msg and "far" not in failure.error_msg + warning.error_msg
    subtask.block_allow_list.ignore_tables.add(schema="shard_1", table="sq")
    subtask.block_allow_list.ignore_tables.add(schema="shard_2", table="alone")
    found = check_subtask(source_of(fresh), subtask)
    assert (failures(found), warnings(found)) == ({}, {})
