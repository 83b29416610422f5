"""Tests foreign keys that change rows by cascade, added while a task runs: the task stops before them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from shardmerge.worker.unit.contract import Failed
from tests.integration.lane_rig import LaneRig
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database

__all__ = ["servers", "source", "target"]

STATEMENTS = {
    "alter": "ALTER TABLE shard.child ADD CONSTRAINT up FOREIGN KEY (p) REFERENCES shard.parent (id) ON DELETE CASCADE",
    "set null": "ALTER TABLE shard.child ADD FOREIGN KEY (p) REFERENCES shard.parent (id) ON UPDATE SET NULL",
    "create": "CREATE TABLE shard.other (id INT PRIMARY KEY, p INT, "
    "FOREIGN KEY (p) REFERENCES shard.parent (id) ON DELETE CASCADE)",
}


def _make(source: Database) -> None:
    make_tables(
        source,
        "CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT) ENGINE=InnoDB",
        "INSERT INTO parent VALUES (1), (2), (3)",
        "INSERT INTO child VALUES (1, 1), (2, 2), (3, 3)",
    )


@pytest.mark.parametrize("name", list(STATEMENTS))
def test_the_task_stops_before_the_statement(source: Database, target: Database, tmp_path: Path, name: str) -> None:
    _make(source)
    with LaneRig(source, target, tmp_path, subtask_config(target, threads=1)) as rig:
        run = rig.begin(rig.config)
        run.until_joined(target, 60)
        source.execute(STATEMENTS[name])
        outcome = run.join(60)
        assert isinstance(outcome, Failed)
        assert outcome.error.spec is errors.ddl.ADDS_CASCADE
        # The way out: the foreign key is replaced at the source, and the statement is skipped.
        table = "other" if name == "create" else "child"
        [(key,)] = source.query(
            "SELECT CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS "
            f"WHERE CONSTRAINT_SCHEMA = 'shard' AND TABLE_NAME = '{table}'"
        )
        source.execute(
            f"ALTER TABLE shard.{table} DROP FOREIGN KEY `{key}`",
            f"ALTER TABLE shard.{table} ADD FOREIGN KEY (p) REFERENCES shard.parent (id)",
            "INSERT INTO shard.child VALUES (4, 1)",
        )
        run = rig.begin(rig.config, ops=_skip(outcome))
        run.until_joined(target, 60)
        assert target.query("SELECT id, p FROM shard.child ORDER BY id") == [(1, 1), (2, 2), (3, 3), (4, 1)]
        run.stop()


def _skip(outcome: Failed) -> tuple[StoredOverride, ...]:
    """Return the operator's command that the message names."""
    found = re.search(r"\((mysql-bin\.\d+), (\d+)\)", str(outcome.error))
    assert found is not None
    assert "dmctl binlog skip" in outcome.error.workaround
    return (StoredOverride(kind=OverrideKind.SKIP, file=found[1], pos=int(found[2])),)


@pytest.mark.parametrize("action", ["RESTRICT", "NO ACTION"])
def test_a_foreign_key_that_changes_no_rows(source: Database, target: Database, tmp_path: Path, action: str) -> None:
    _make(source)
    with LaneRig(source, target, tmp_path, subtask_config(target, threads=1)) as rig:
        run = rig.begin(rig.config)
        run.until_joined(target, 60)
        source.execute(
            f"ALTER TABLE shard.child ADD FOREIGN KEY (p) REFERENCES shard.parent (id) ON DELETE {action}",
            "ALTER TABLE shard.child ADD COLUMN at TIMESTAMP NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP",
            "INSERT INTO shard.child (id, p) VALUES (5, 1)",
        )
        run.until_joined(target, 60)
        assert target.query("SELECT COUNT(*) FROM shard.child") == [(4,)]
        run.stop()
