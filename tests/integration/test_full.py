"""Tests task-mode full: the task ends, and its result is reported from its records as long as they exist."""

from __future__ import annotations

from pathlib import Path

from shardmerge.proto import config_pb2, worker_pb2
from shardmerge.worker.unit.contract import Finished
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_rig import count_rows, subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database

__all__ = ["servers", "source", "target"]


def test_the_report_of_a_full_task_survives_restarts_without_its_source(
    source: Database, target: Database, tmp_path: Path
) -> None:
    make_tables(
        source,
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE=InnoDB",
        "INSERT INTO t SELECT seq, 'some text' FROM seq_1_to_1000",
        "CREATE TABLE u (id INT PRIMARY KEY) ENGINE=InnoDB",
        "ANALYZE TABLE t, u",
    )
    config = subtask_config(target, threads=2, chunk_rows=100)
    config.mode = config_pb2.TASK_MODE_FULL
    with LaneRig(source, target, tmp_path, config) as rig:
        first = rig.begin(config)
        assert first.join() == Finished()
        report = _report(first)
        full, empty = report.tables
        assert (full.source_table, full.target_table) == ("shard.t", "shard.t")
        assert (full.finished_rows, full.total_rows, full.finished_chunks) == (1000, 1000, full.total_chunks)
        assert full.total_chunks >= 8
        assert full.finished_bytes > 1000 * len("(1000,'some text'),") * 0.5
        assert full.seconds > 0
        assert (empty.source_table, empty.finished_rows, empty.total_chunks) == ("shard.u", 0, 1)
        assert (report.finished_rows, report.finished_bytes, report.progress) == (1000, full.finished_bytes, "100.00 %")

        source.execute("INSERT INTO shard.u VALUES (1)")
        source.shut_down()
        try:
            again = rig.begin(config)
            assert again.join() == Finished()
            assert _report(again) == report
        finally:
            source.ensure_running()
        assert count_rows(target, "shard.u") == 0


def _report(run: Run) -> worker_pb2.LoadStatus:
    assert run.unit is not None
    status = run.unit.status()
    assert isinstance(status, worker_pb2.LoadStatus)
    return status
