"""What of a task's records at the target keeps its source from being read from another server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proto import common_pb2
from proto import config_pb2 as config
from tests.support.mariadb import MariaDB
from worker import meta
from worker.connection import Endpoint, Session, Side, connect
from worker.ddl import parked
from worker.ddl.parked import Parked
from worker.ddl.records import StatementPlace
from worker.ddl.session import PLAIN
from worker.position import SourcePosition
from worker.switch import busy_with

WHO = ("dm_meta", "t", "s")
_HERE = SourcePosition("bin.000001", 4)
WAITS = Parked(1, "ALTER TABLE t1 ADD n INT", "shop_01", 0, False, PLAIN, StatementPlace(_HERE, 0), _HERE, 1.0)
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
    meta.ensure_meta(session, "dm_meta")
    meta.take_over(session, *WHO, 1, "")
    assert busy_with(session, subtask) == ""
    assert "begin at (bin.000007, 99)" in busy_with(session, placed)
    _run(session, _SUBTASK + "phase = 'snapshot'")
    assert busy_with(session, subtask) == "copies its snapshot"
    _run(session, _SUBTASK + "phase = 'replicate'")
    assert [busy_with(session, one) for one in (subtask, placed, by_time)] == [""] * 3
    assert "end in bin.000009" in busy_with(session, ending)
    _run(session, _SUBTASK + "joining = '{}'")
    assert busy_with(session, subtask) == "has tables that join it"
    _run(session, _SUBTASK + "joining = ''", "INSERT INTO dm_meta.parked_table VALUES ('t', 'other', 1, '{}')")
    assert busy_with(session, subtask) == ""
    parked.write(session, *WHO, {1: WAITS})
    assert "wait before a sharding DDL" in busy_with(session, subtask)
    parked.forget(session, *WHO, [1])
    _run(session, _SUBTASK + "phase = 'finished'")
    assert busy_with(session, ending) == ""
