"""Tests a task whose source has lost its last transactions and has used their positions and GTIDs again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.worker.unit.contract import Failed
from tests.integration.lane_rig import LaneRig
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import servers, source, target
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.wait import until

__all__ = ["servers", "source", "target"]

KINDS = {"mariadb": MariaDB, "mysql": MySQL}


@pytest.fixture(params=list(KINDS))
def fragile(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A source of its own, which a test kills."""
    server = KINDS[request.param](tmp_path / "source", 177).start()
    try:
        yield server
    finally:
        server.stop()


def test_a_worker_without_the_relay_log_does_not_continue_there(
    fragile: Database, target: Database, tmp_path: Path
) -> None:
    """The rows of the lost transactions are at the target, those of the new ones would be missing."""
    for server in (fragile, target):
        server.execute(
            "DROP DATABASE IF EXISTS shard",
            "CREATE DATABASE shard",
            "CREATE TABLE shard.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9))",
        )
    with LaneRig(fragile, target, tmp_path, subtask_config(target)) as rig:
        fragile.execute("INSERT INTO shard.t (v) VALUES ('kept')")
        file, byte = fragile.binlog_end()
        run = rig.replicate(1)
        fragile.execute(*["INSERT INTO shard.t (v) VALUES ('lost')"] * 3)
        until(lambda: target.query("SELECT COUNT(*) FROM shard.t") == [(4,)], "the rows are at the target", 60)
        run.until_synced()
        run.stop()
        fragile.kill()
        os.truncate(fragile.directory / "data" / file, byte)
        fragile.start()
        fragile.execute(*["INSERT INTO shard.t (v) VALUES ('new')"] * 9)
        rig.renew_relay(tmp_path / "another worker")
        outcome = rig.replicate(1).join(60)
        assert isinstance(outcome, Failed)
        assert outcome.error.spec is errors.relay.SOURCE_LOG_RESET
        assert file in outcome.error.message
    assert target.query("SELECT COUNT(*) FROM shard.t WHERE v = 'new'") == [(0,)]
