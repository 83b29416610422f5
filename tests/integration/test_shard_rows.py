"""Tests statements that remove the rows of one of several shard tables of a target, with a subtask in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors, failpoints
from shardmerge.worker.unit.contract import Failed
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_rig import META, subtask_config
from tests.support.mariadb import MariaDB

_IDS = "SELECT id & 0xFFFFFFFF, id >> 44 FROM merged.t ORDER BY 2, 1"


@pytest.fixture
def rig(make_server: Callable[..., MariaDB], tmp_path: Path) -> Iterator[LaneRig]:
    """Provide ``shard.t_1`` and ``shard.t_2`` with the ids 1 and 2, merged by ``partition id``."""
    source, target = make_server("source"), make_server("target")
    source.execute(
        "CREATE DATABASE shard",
        *(f"CREATE TABLE shard.t_{number} (id BIGINT PRIMARY KEY)" for number in (1, 2)),
        *(f"INSERT INTO shard.t_{number} VALUES (1), (2)" for number in (1, 2)),
    )
    config = subtask_config(target)
    config.replicate.lanes = 1
    config.routes.add(name="r", schema_pattern="shard", table_pattern="t_*", target_schema="merged", target_table="t")
    config.column_mappings.add(
        name="m", schema_pattern="shard", table_pattern="t_*", source_column="id", target_column="id",
        expression="partition id", arguments=["", "", "t_"],
    )  # fmt: skip
    with LaneRig(source, target, tmp_path, config) as made:
        yield made


def _copied(rig: LaneRig) -> Run:
    run = rig.begin(rig.config)
    run.until_joined(rig.target)
    return run


def _shards(rig: LaneRig) -> list[int]:
    """Return the ids at the target, shard table after shard table."""
    return [int(str(id_)) for id_, _ in rig.target.query(_IDS)]


@pytest.mark.parametrize("verb", ["TRUNCATE", "DROP"])
def test_the_rows_of_the_other_shard_tables_stay(rig: LaneRig, verb: str) -> None:
    run = _copied(rig)
    rig.source.execute(f"{verb} TABLE shard.t_1", "INSERT INTO shard.t_2 VALUES (3)")
    run.until_synced()
    assert _shards(rig) == [1, 2, 3]
    run.stop()


def test_an_older_process_removes_no_row(rig: LaneRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one has taken over when it comes to the statement: its rows may be new ones by then."""
    run = _copied(rig)

    def hit(moment: str) -> None:
        if moment == "ddl.before":
            rig.target.execute(f"UPDATE {META}.subtask SET epoch = epoch + 1")

    monkeypatch.setattr(failpoints, "hit", hit)
    rig.source.execute("TRUNCATE TABLE shard.t_1")
    outcome = run.join()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.replicate.FENCED
    assert _shards(rig) == [1, 2, 1, 2]
