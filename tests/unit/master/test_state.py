"""Which worker and which sources a state has for a command."""

from __future__ import annotations

import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from tests.unit.master.records import state

_SUBTASKS = tuple(config_pb2.SubTaskConfig(task="merge", source_id=source) for source in ("s2", "s1"))
_STATE = state(workers=("w2", "w9"), bindings={"s1": "w1", "s2": "w2"}, subtasks=_SUBTASKS)


def test_the_live_worker_of_a_source() -> None:
    assert _STATE.holder_of("s2").name == "w2"
    with pytest.raises(ShardmergeError) as caught:
        _STATE.holder_of("s1")
    assert caught.value.spec is errors.master.SOURCE_UNBOUND
    assert caught.value.values == {"source": "s1"}


def test_the_live_worker_of_a_source_or_any() -> None:
    assert _STATE.holder_or_any("s2").name == "w2"
    assert _STATE.holder_or_any("s1").name == "w2", "its own worker is dead"
    with pytest.raises(ShardmergeError) as caught:
        state(bindings={"s1": "w1"}).holder_or_any("s1")
    assert caught.value.spec is errors.master.NO_WORKER


def test_the_sources_of_a_task() -> None:
    assert _STATE.selected_sources("merge", ()) == _STATE.known_sources("merge") == ("s1", "s2")
    assert _STATE.selected_sources("merge", ["s2", "s2"]) == ("s2",)


@pytest.mark.parametrize(
    ("task", "selection", "spec"),
    [("nope", (), errors.master.TASK_UNKNOWN), ("merge", ("s1", "s3"), errors.master.SUBTASK_UNKNOWN)],
)
def test_an_unknown_task_or_source_is_refused(task: str, selection: tuple[str, ...], spec: ErrorSpec) -> None:
    with pytest.raises(ShardmergeError) as caught:
        _STATE.selected_sources(task, selection)
    assert caught.value.spec is spec
