"""Tests which of a task's records at the target prevent its source from being read from another server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardmerge.proto import common_pb2, errors
from shardmerge.proto import config_pb2 as config
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, connect
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.daemon.commands.move_source import busy_with
from shardmerge.worker.snapshot.chunk_store import SnapshotStore
from shardmerge.worker.snapshot.watermark_gtids import WatermarkGtids, write_gtid_sets
from shardmerge.worker.target.records import parked_tables, subtask_record
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.history import passed_watermarks
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.schema import ensure_meta
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION
from tests.support.epochs import numbered
from tests.support.mariadb import MariaDB

WHO = SubtaskKey("dm_meta", "t", "s")
_HERE = SourcePosition("bin.000001", 4)
WAITS = Parked(
    1, "ALTER TABLE t1 ADD n INT", "shop_01", 0, False, UNKNOWN_SESSION, StatementPlace(_HERE, 0), _HERE, 1.0
)
_SUBTASK = "UPDATE dm_meta.subtask SET "


@pytest.fixture
def session(make_server: Callable[..., MariaDB]) -> Session:
    target = make_server("target")
    return connect(Endpoint(target.host, target.port, "root"), Side.TARGET, name="target")


def _run(session: Session, *statements: str) -> None:
    with session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def test_what_a_task_may_be_at(session: Session) -> None:
    subtask = config.SubTaskConfig(task="t", source_id="s", meta_schema="dm_meta")
    placed = config.SubTaskConfig(start=common_pb2.SourcePosition(file="bin.000007", pos=99))
    placed.MergeFrom(subtask)
    ending = config.SubTaskConfig(stop_at=config.StopAt(position=common_pb2.SourcePosition(file="bin.000009", pos=5)))
    ending.MergeFrom(subtask)
    by_time = config.SubTaskConfig(stop_at=config.StopAt(time="2030-01-01 00:00:00"))
    by_time.MergeFrom(subtask)
    assert busy_with(session, subtask) == "", "nothing is at the target"
    ensure_meta(session, "dm_meta")
    subtask_record.take_over(session, WHO, numbered(1), "")
    assert busy_with(session, subtask) == ""
    assert "begins at (bin.000007, 99)" in busy_with(session, placed)
    _run(session, _SUBTASK + "phase = 'snapshot'")
    assert busy_with(session, subtask) == "copies its snapshot"
    _run(session, _SUBTASK + "phase = 'replicate'")
    assert [busy_with(session, one) for one in (subtask, placed, by_time)] == [""] * 3
    assert "ends in bin.000009" in busy_with(session, ending)
    store = SnapshotStore(WHO, 1)
    for number, pos in ((0, 10), (1, 20), (2, 20)):
        loaded = f"1, 1, 1, 1, 'bin.000001', {pos}, '', 'one', 'log', 1, {pos}"
        _run(session, f"INSERT INTO dm_meta.snapshot_chunk VALUES ('t', 's', 5, {number}, '[]', '[]', {loaded})")
    assert "before the end of its snapshot" in busy_with(session, subtask), "its marks are known by their file alone"
    one, two = SourcePosition("bin.000001", 10, "", "one"), SourcePosition("bin.000001", 20, "", "one")
    write_gtid_sets(
        session,
        WHO,
        [WatermarkGtids(5, 0, one, "0-1-1"), WatermarkGtids(5, 1, two, "0-1-2"), WatermarkGtids(5, 2, one, "0-1-1")],
    )
    assert "before the end of its snapshot" in busy_with(session, subtask), "chunk 2 has another mark than that"
    write_gtid_sets(session, WHO, [WatermarkGtids(5, 0, one, "0-1-9"), WatermarkGtids(5, 2, two, "0-1-2")])
    assert busy_with(session, subtask) == ""
    assert [item.loaded and item.loaded.high.position.gtid_set for item in store.read_chunks(session)] == [
        "0-1-1",
        "0-1-2",
        "0-1-2",
    ]
    _run(session, "UPDATE dm_meta.snapshot_chunk SET gtid_set = ''")
    _run(session, "INSERT INTO dm_meta.snapshot_passed VALUES ('t', 's', 6)")
    assert "before the end of its snapshot" in busy_with(session, subtask), "another table's are passed"
    with pytest.raises(ShardmergeError) as fenced:
        SnapshotStore(WHO, 0).record_passed(session, {5})
    assert fenced.value.spec is errors.replicate.FENCED and passed_watermarks.read(session, WHO) == {6}
    store.record_passed(session, {5})
    store.record_passed(session, {5, 6})
    assert passed_watermarks.read(session, WHO) == {5, 6} and busy_with(session, subtask) == ""
    _run(session, "DROP TABLE dm_meta.snapshot_passed")
    assert "before the end of its snapshot" in busy_with(session, subtask), "an earlier version has no such record"
    ensure_meta(session, "dm_meta")
    store.record_passed(session, {5, 6})
    store.forget(session, [5])
    assert passed_watermarks.read(session, WHO) == {6} and busy_with(session, subtask) == ""
    subtask_record.take_over(session, WHO, numbered(2), "anew")
    subtask_record.start_over(session, WHO, 2, 3)
    assert passed_watermarks.read(session, WHO) == frozenset(), "with --remove-meta"
    _run(session, _SUBTASK + "phase = 'replicate'")
    _run(session, _SUBTASK + "joining = '{}'")
    assert busy_with(session, subtask) == "has tables that join it"
    _run(session, _SUBTASK + "joining = ''", "INSERT INTO dm_meta.parked_table VALUES ('t', 'other', 1, '{}')")
    assert busy_with(session, subtask) == ""
    parked_tables.write(session, WHO, {1: WAITS})
    assert "parked at a sharding DDL" in busy_with(session, subtask)
    parked_tables.delete(session, WHO, [1])
    _run(session, _SUBTASK + "phase = 'finished'")
    assert busy_with(session, ending) == ""
