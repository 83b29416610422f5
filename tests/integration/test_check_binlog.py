"""Tests pre-checks of the binlog on real servers: its options, and the position where a task begins."""

from __future__ import annotations

import pytest

from shardmerge.proto import config_pb2 as config
from shardmerge.worker.verify.precheck import check_subtask
from tests.integration.check_rig import failures, fresh, server, source_of, subtask_of
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL

__all__ = ["fresh", "server"]


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


def test_a_start_by_gtid(fresh: Database) -> None:
    if fresh.flavor != "mysql":
        pytest.skip("MariaDB's GTIDs are of another form")
    [(executed, uuid)] = fresh.query("SELECT @@GLOBAL.gtid_executed, @@GLOBAL.server_uuid")
    subtask = subtask_of(fresh)
    subtask.mode = config.TASK_MODE_INCREMENTAL
    subtask.start.gtid_set = str(executed)
    assert failures(check_subtask(source_of(fresh), subtask)) == {}
    fresh.purge()
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
    """Check that the ``items`` fail, the last one with ``code``; the instructions correct all that a running server can
    change."""
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
