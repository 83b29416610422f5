"""Which worker is asked for a rehearsal."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shardmerge.master.commands.task.ddl_preview import pick_worker
from shardmerge.proto import config_pb2, errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from tests.unit.master.records import state

SUBTASKS = tuple(config_pb2.SubTaskConfig(task="merge", source_id=source) for source in ("s1", "s2"))
BINDINGS = {"s1": "w1", "s2": "w2", "s3": "w3"}


def _ask(workers: tuple[str, ...], *sources: str, task: str = "merge", bindings: Mapping[str, str] = BINDINGS) -> str:
    request = pb.PreviewDDLRequest(task=task, sources=sources)
    worker, subtask = pick_worker(request, state(workers=workers, bindings=bindings, subtasks=SUBTASKS))
    assert BINDINGS[subtask.source_id] == worker.name
    return worker.name


def test_any_that_lives() -> None:
    assert _ask(("w1", "w2")) == "w1"
    assert _ask(("w2", "w3")) == "w2"
    assert _ask(("w1",), "s2") == "w1"


@pytest.mark.parametrize(
    ("workers", "sources", "task", "spec"),
    [
        (("w1",), (), "other", errors.master.TASK_UNKNOWN),
        (("w1",), ("s3",), "merge", errors.master.SUBTASK_UNKNOWN),
        (("w3",), (), "merge", errors.master.SOURCE_UNBOUND),
    ],
)
def test_refusals(workers: tuple[str, ...], sources: tuple[str, ...], task: str, spec: ErrorSpec) -> None:
    with pytest.raises(ShardmergeError) as caught:
        _ask(workers, *sources, task=task)
    assert caught.value.spec is spec
