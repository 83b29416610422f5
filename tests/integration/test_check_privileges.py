"""Tests pre-checks of privileges on real servers: the check names the GRANT for each missing one, and it suffices."""

from __future__ import annotations

from contextlib import closing

import pytest

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import ServerInfo, Session
from shardmerge.worker.verify.precheck import check_subtask
from shardmerge.worker.verify.precheck.source import table_locks
from tests.integration.check_rig import SUBTASK_ITEMS, failures, fresh, server, source_of, subtask_of, warnings
from tests.support.database import Database

__all__ = ["fresh", "server"]


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
    # The instruction's statements must run unchanged.
    for result in bad.values():
        if result.code == 12017:
            fresh.execute(*(statement for statement in result.instruction.split(";") if statement.strip()))
    # The privileges for rows are complete now; DDL needs more.
    [ddl] = [result for result in check_subtask(source, subtask) if result.error_msg]
    assert (ddl.name, ddl.code, ddl.state) == ("target_privilege", 12028, pb.CHECK_STATE_WARN)
    assert ddl.instruction == (
        "GRANT ALTER, DROP, INDEX ON `dm\\_meta`.* TO 'writer'@'%';\n"
        "GRANT ALTER, DROP, INDEX ON `merged`.* TO 'writer'@'%';"
    )
    fresh.execute(*ddl.instruction.split("\n"))
    results = check_subtask(source, subtask)
    assert [(result.name, result.error_msg) for result in results] == [(item, "") for item in SUBTASK_ITEMS]


def test_a_task_for_sharding_ddl_is_refused_without_their_privileges(fresh: Database) -> None:
    """The GRANT that is printed suffices: with it the account runs such statements."""
    fresh.execute(
        "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON dm_meta.* TO writer",
        "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON merged.* TO writer",
    )
    source, subtask = source_of(fresh), subtask_of(fresh, "writer", "secret")
    for mode in (config.SHARD_MODE_OPTIMISTIC, config.SHARD_MODE_PESSIMISTIC):
        subtask.shard_mode = mode
        bad = failures(check_subtask(source, subtask))
        assert bad.keys() == {"target_privilege"}
        lacking = bad["target_privilege"]
        assert lacking.code == 12028
        assert "ALTER, DROP, INDEX on dm_meta; ALTER, DROP, INDEX on merged" in lacking.error_msg
    # Without a stream there is no DDL.
    subtask.mode = config.TASK_MODE_FULL
    assert failures(check_subtask(source, subtask)) == {}
    subtask.mode = config.TASK_MODE_ALL
    # Filters that skip all DDL leave the target's structure as it is; that of the records follows the source.
    for tables in ("*", ""):
        subtask.event_filters.add(
            name=f"f{tables}",
            schema_pattern="shard_*",
            table_pattern=tables,
            events=["all ddl"],
            action=config.FILTER_ACTION_IGNORE,
        )
    skipped = failures(check_subtask(source, subtask))["target_privilege"]
    assert skipped.instruction == "GRANT ALTER, DROP, INDEX ON `dm\\_meta`.* TO 'writer'@'%';"
    fresh.execute(*skipped.instruction.split("\n"))
    assert failures(check_subtask(source, subtask)) == {}
    del subtask.event_filters[:]
    lacking = failures(check_subtask(source, subtask))["target_privilege"]
    assert lacking.instruction == "GRANT ALTER, DROP, INDEX ON `merged`.* TO 'writer'@'%';"
    fresh.execute(*lacking.instruction.split("\n"))
    assert failures(check_subtask(source, subtask)) == {}
    fresh.execute("CREATE DATABASE merged", "CREATE TABLE merged.t (id BIGINT PRIMARY KEY, v INT)")
    with closing(fresh.connect("merged", user="writer", password="secret")) as connection:
        for statement in (
            "ALTER TABLE t ADD COLUMN w INT, ADD INDEX i (w)",
            "DROP INDEX i ON t",
            "RENAME TABLE t TO u",
            "TRUNCATE TABLE u",
            "DROP TABLE u",
        ):
            connection.cursor().execute(statement)


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
        # A keyless table needs no lock on MariaDB, which reports the position of a consistent read.
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
    subtask.mode = config.TASK_MODE_INCREMENTAL  # this mode reads no table
    assert "dump_privilege" not in failures(check_subtask(source, subtask))
    subtask.mode = config.TASK_MODE_ALL
    fresh.execute(result.instruction)
    assert "dump_privilege" not in failures(check_subtask(source, subtask))


def test_lock_tables_is_required_by_the_targets_keys_where_positions_are_not_known(
    fresh: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on MySQL, where a consistent snapshot does not report its position."""

    def not_reported(session: Session, info: ServerInfo) -> None:
        return None

    monkeypatch.setattr(table_locks, "committed_position", not_reported)
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
    # The unique keys of an existing target decide.
    fresh.execute("CREATE DATABASE merged", "CREATE TABLE merged.t (id bigint PRIMARY KEY, v int)")
    assert failures(check_subtask(source, subtask)) == {}
    fresh.execute("ALTER TABLE merged.t ADD UNIQUE (v)")
    assert failures(check_subtask(source, subtask))["dump_privilege"].instruction == result.instruction
    subtask.ignore_checking_items[:] = ["dump_privilege"]
    assert failures(check_subtask(source, subtask)) == {}
    subtask.ignore_checking_items[:] = []
    fresh.execute(*(statement for statement in result.instruction.split(";") if statement.strip()))
    assert failures(check_subtask(source, subtask)) == {}


def test_privileges_that_a_role_gives(fresh: Database) -> None:
    """An active role counts; a role that is only granted does not."""
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
