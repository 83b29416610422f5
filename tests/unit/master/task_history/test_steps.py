"""Events of the leader's steps: of the placement, with workers that go and come back, and of locks."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.master.ddl_lock.records import Target
from shardmerge.master.ddl_lock.resolver import (
    ChangeOwner,
    Close,
    LetOwnerExecute,
    Nothing,
    Open,
    ReleaseTables,
    TakeBack,
    Unlock,
    Wait,
)
from shardmerge.master.ddl_lock.situation import Lock
from shardmerge.master.placement import Bind, Unbind
from shardmerge.master.state import State, VersionedRecord
from shardmerge.master.task_history.steps import WorkerChanges, conflict_event, lock_event, placement_events
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.task_history.event import HistoryEntryKind
from tests.unit.master.records import state


def _state(bindings: dict[str, str], **workers: str) -> State:
    """``workers``: live ones with their incarnations."""
    subtasks = tuple(config.SubTaskConfig(task=task, source_id="s1") for task in ("a", "b"))
    made = state(workers=tuple(workers), bindings=bindings, subtasks=subtasks)
    incarnated = {
        name: VersionedRecord(pb.WorkerRecord(name=name, incarnation=incarnation), 1)
        for name, incarnation in workers.items()
    }
    return State(
        made.revision, made.leader, made.masters, incarnated, made.sources, made.bounds, made.tasks, made.subtasks,
        made.shards, made.locks,
    )  # fmt: skip


def test_a_step_is_an_event_of_each_task_on_the_source() -> None:
    known = _state({"s1": "w1", "s2": ""})
    texts = [
        [(event.task, event.text, event.sources) for event in placement_events(step, known, 1.0)]
        for step in (Bind("s1", "w1"), Bind("s1", "w2", "w1"), Unbind("s1", "w1"), Bind("s2", "w1"))
    ]
    assert texts == [
        [(task, "bound to worker w1", ("s1",)) for task in "ab"],
        [(task, "worker w2 takes over from worker w1, which is gone", ("s1",)) for task in "ab"],
        [],
        [],
    ]


def test_a_worker_goes_comes_back_and_starts_again() -> None:
    watch = WorkerChanges()
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
    watch = WorkerChanges()
    watch.observe(_state({"s1": "w1"}, w1="i1"), 1.0)
    watch.forget()
    assert watch.observe(_state({"s1": "w1"}), 2.0) == []


_TARGET = Target("merge", "shop", "orders")
_LOCK = Lock("g", "s1", "ALTER TABLE x ADD c INT", "f", "b", "a", 1.0)


def test_the_life_of_a_lock() -> None:
    steps = (
        Open(_LOCK),
        LetOwnerExecute(_LOCK),
        ChangeOwner(replace(_LOCK, owner="s2")),
        TakeBack(_LOCK),
        ReleaseTables(_LOCK),
        Unlock(replace(_LOCK, forced=True)),
        Close(),
    )
    events = [lock_event(_TARGET, _LOCK, step, 9.0) for step in steps]
    assert [event.text.partition(":")[0] for event in events if event is not None] == [
        "lock opened",
        "all shard tables have reached it",
        "source s2 is to run it now",
        "not run",
        "released",
        "released",
        "lock closed",
    ]
    assert {(event.task, event.kind, event.statement, event.target, event.sources) for event in events if event} == {
        ("merge", HistoryEntryKind.DDL, _LOCK.statement, "`shop`.`orders`", ())
    }
    assert events[5] is not None
    assert events[5].text.endswith("as an operator has decided")


def test_waiting_is_no_event() -> None:
    assert lock_event(_TARGET, _LOCK, Wait(), 1.0) is None
    assert lock_event(_TARGET, None, Nothing(), 1.0) is None


def test_a_conflict_has_its_error() -> None:
    error = errors.ddl.LOCK_CONFLICT(
        task="merge",
        lock="L",
        tables="s2 `d`.`c`",
        source="s2",
        position="p",
        other="ALTER B",
        owner="s1",
        statement="ALTER A",
    )
    event = conflict_event(_TARGET, _LOCK, error, 9.0)
    assert (event.code, event.name, event.message, event.task) == (
        error.code,
        error.spec.name,
        error.message,
        "merge",
    )
