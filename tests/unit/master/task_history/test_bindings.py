"""Events of bindings and workers."""

from __future__ import annotations

from shardmerge.master.placement import Bind, Unbind
from shardmerge.master.state import Entry, State
from shardmerge.master.task_history.bindings import WorkerWatch, step_events
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import state_pb2 as pb
from tests.unit.master.records import state


def _state(bindings: dict[str, str], **workers: str) -> State:
    """``workers``: live ones with their incarnations."""
    subtasks = tuple(config.SubTaskConfig(task=task, source_id="s1") for task in ("a", "b"))
    made = state(workers=tuple(workers), bindings=bindings, subtasks=subtasks)
    incarnated = {
        name: Entry(pb.WorkerRecord(name=name, incarnation=incarnation), 1) for name, incarnation in workers.items()
    }
    return State(
        made.revision, made.leader, made.masters, incarnated, made.sources, made.bounds, made.tasks, made.subtasks,
        made.shards, made.locks,
    )  # fmt: skip


def test_a_step_is_an_event_of_each_task_on_the_source() -> None:
    known = _state({"s1": "w1", "s2": ""})
    texts = [
        [(event.task, event.text, event.sources) for event in step_events(step, known, 1.0)]
        for step in (Bind("s1", "w1"), Bind("s1", "w2", "w1"), Unbind("s1", "w1"), Bind("s2", "w1"))
    ]
    assert texts == [
        [(task, "bound to worker w1", ("s1",)) for task in "ab"],
        [(task, "worker w2 takes over from worker w1, which is gone", ("s1",)) for task in "ab"],
        [],
        [],
    ]


def test_a_worker_goes_comes_back_and_starts_again() -> None:
    watch = WorkerWatch()
    seen = [
        watch.observe(one, 1.0)
        for one in (
            _state({"s1": "w1"}, w1="i1"),
            _state({"s1": "w1"}, w1="i1"),
            _state({"s1": "w1"}),
            _state({"s1": "w1"}, w1="i2"),
            _state({"s1": "w1"}, w1="i3"),
            _state({"s1": "w2"}, w1="i3", w2="j"),  # a step of the placement, or a command
            _state({"s1": ""}, w1="i3", w2="j"),
            _state({"s1": ""}, w1="i3", w2="j"),
        )
    ]
    assert [[event.text for event in events if event.task == "a"] for events in seen] == [
        [],
        [],
        ["worker w1 is gone"],
        ["worker w1 is back"],
        ["worker w1 has started again"],
        [],
        ["no longer bound to worker w2"],
        [],
    ]
    assert {event.task for events in seen for event in events} == {"a", "b"}


def test_a_new_leader_reports_nothing_of_what_it_finds() -> None:
    watch = WorkerWatch()
    watch.observe(_state({"s1": "w1"}, w1="i1"), 1.0)
    watch.forget()
    assert watch.observe(_state({"s1": "w1"}), 2.0) == []
