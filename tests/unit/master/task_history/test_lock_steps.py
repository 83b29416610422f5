"""Events of the locks of sharding DDLs."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.master.ddl_lock.records import Target
from shardmerge.master.ddl_lock.resolver import (
    ChangeOwner,
    Close,
    Execute,
    Nothing,
    Open,
    Release,
    TakeBack,
    Unlock,
    Wait,
)
from shardmerge.master.ddl_lock.situation import Lock
from shardmerge.master.task_history.lock_steps import conflict_event, step_event
from shardmerge.proto import errors
from shardmerge.proto.task_history.event import Kind

_TARGET = Target("merge", "shop", "orders")
_LOCK = Lock("g", "s1", "ALTER TABLE x ADD c INT", "f", "b", "a", 1.0)


def test_the_life_of_a_lock() -> None:
    steps = (
        Open(_LOCK),
        Execute(_LOCK),
        ChangeOwner(replace(_LOCK, owner="s2")),
        TakeBack(_LOCK),
        Release(_LOCK),
        Unlock(replace(_LOCK, forced=True)),
        Close(),
    )
    events = [step_event(_TARGET, _LOCK, step, 9.0) for step in steps]
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
        ("merge", Kind.DDL, _LOCK.statement, "`shop`.`orders`", ())
    }
    assert events[5] is not None
    assert events[5].text.endswith("as an operator has decided")


def test_waiting_is_no_event() -> None:
    assert step_event(_TARGET, _LOCK, Wait(), 1.0) is None
    assert step_event(_TARGET, None, Nothing(), 1.0) is None


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
