"""Whose rules are explained, and who is asked."""

from __future__ import annotations

import pytest

from shardmerge.master.commands.task.rules import wanted_subtasks
from shardmerge.proto import config_pb2, errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from tests.unit.master.records import state
from tests.unit.proto.config.samples import TASK

SUBTASKS = tuple(
    config_pb2.SubTaskConfig(task="merge", source_id=source, meta_schema="as-it-runs") for source in ("s1", "s2")
)
STATE = state(workers=("w2", "w9"), bindings={"s1": "w1", "s2": "w2"}, subtasks=SUBTASKS)
FILE = pb.ConfigFile(name="t.yaml", content=TASK)


def _asked(**given: object) -> list[str]:
    request = pb.ExplainRulesRequest(**given)  # pyright: ignore[reportArgumentType]
    return [f"{one.source_id} {one.meta_schema}" for one in wanted_subtasks(request, STATE)]


def test_a_task_as_it_runs_or_as_in_its_file() -> None:
    assert _asked(task="merge") == ["s1 as-it-runs", "s2 as-it-runs"]
    assert _asked(task="merge", sources=["s2"]) == ["s2 as-it-runs"]
    assert _asked(file=FILE, sources=["mysql-02"]) == ["mysql-02 dm_meta"]
    assert len(_asked(file=FILE)) == 2


@pytest.mark.parametrize(
    ("given", "spec"),
    [
        ({}, errors.master.BAD_REQUEST),
        ({"task": "merge", "file": FILE}, errors.master.BAD_REQUEST),
        ({"task": "nope"}, errors.master.TASK_UNKNOWN),
        ({"task": "merge", "sources": ["s3"]}, errors.master.SUBTASK_UNKNOWN),
        ({"file": FILE, "sources": ["s1"]}, errors.master.SOURCE_NOT_IN_TASK),
        ({"file": pb.ConfigFile(name="t", content="name: x")}, errors.config.INVALID),
    ],
)
def test_refusals(given: dict[str, object], spec: ErrorSpec) -> None:
    with pytest.raises(ShardmergeError) as caught:
        _asked(**given)
    assert caught.value.spec is spec
