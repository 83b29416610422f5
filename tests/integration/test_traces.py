"""Tests that a command is one trace through master, worker and lanes, and that log lines carry its id.

It needs daemons of its own: they send their traces to the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.mariadb import MariaDB
from tests.support.trace_collector import ReceivedSpan, TraceCollector
from tests.support.wait import until

_TASK = "traced"


@pytest.fixture
def collector() -> Iterator[TraceCollector]:
    with TraceCollector() as made:
        yield made


def _task(target: MariaDB) -> str:
    return f"""\
name: {_TASK}
task-mode: all
meta-schema: dm_meta
target-database: {target.login}
mysql-instances:
  - {{source-id: one, block-allow-list: own}}
block-allow-list:
  own: {{do-dbs: [shop]}}
"""


def test_a_command_is_one_trace(
    make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster], collector: TraceCollector
) -> None:
    source, target = make_server("source"), make_server("target")
    source.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)")
    settings = {"trace-endpoint": collector.url}
    cluster = make_cluster(workers=1, master_settings=settings, worker_settings=settings)
    cluster.create_source("one", source)
    cluster.start_task(_task(target))
    cluster.wait_replicating(_TASK)

    def named(name: str) -> list[ReceivedSpan]:
        return [span for span in collector.spans if span.name == name]

    # Each daemon sends its spans every five seconds.
    until(lambda: len(named("lane start")) == 2 and named("StartTask"), "master and worker have sent their spans", 60)
    [operation] = {span.trace_id for span in named("lane start")}
    trace = {span.name: span for span in collector.spans if span.trace_id == operation}
    assert trace["StartTask"].service == ("dm-master", "master-1")
    assert not trace["StartTask"].parent_id
    start = trace["subtask start"]
    assert start.service == ("dm-worker", "worker-1")
    assert start.attributes == {"task": _TASK, "source": "one"}
    assert start.parent_id == trace["StartTask"].span_id
    assert {span.parent_id for span in named("lane start")} == {trace["StartTask"].span_id}
    # The master's questions to the worker belong to the same command.
    assert trace["CheckSubTask"].service == ("dm-worker", "worker-1")
    assert trace["CheckSubTask"].parent_id == trace["StartTask"].span_id

    lines = [line for line in cluster.workers[0].log.read_text().splitlines() if f"task={_TASK}" in line]
    assert any(f"operation={operation}" in line for line in lines), lines

    cluster.dmctl("pause-task", _TASK)
    cluster.wait_paused(_TASK)
    until(
        lambda: any(span.name == "OperateTask" and span.trace_id != operation for span in collector.spans),
        "pause-task is a trace of its own",
        30,
    )
