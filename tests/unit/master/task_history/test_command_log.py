"""A command is reported by the master that carries it out, also if it fails there."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, cast

import pytest

from shardmerge.master.store import Store
from shardmerge.master.task_history.command_log import CommandLog
from shardmerge.proto import errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.task_history.event import Event


class _Events:
    def __init__(self) -> None:
        self.found: list[Event] = []

    def add(self, event: Event) -> None:
        self.found.append(event)

    def separate(self, task: str, source: str) -> None:
        """Events of subtasks only."""


class _Context:
    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}


class _Records:
    """The records with one task, as a loop of the leader has read them."""

    subtasks = MappingProxyType({("orders", "s"): None})

    @property
    def last_read(self) -> _Records:
        return self

    @property
    def state(self) -> _Records:
        return self

    def tasks_of(self, source: str) -> tuple[str, ...]:
        return ("orders",)


@pytest.mark.parametrize(
    ("error", "texts"),
    [
        (errors.master.CONFLICT(what="a subtask"), ["pause-task"]),
        (errors.master.NOT_LEADER(master="m2", leader="m1", address="h:1"), []),
        (errors.master.NO_LEADER(), []),
    ],
)
def test_a_command_that_another_master_carries_out_is_not_reported(error: ShardmergeError, texts: list[str]) -> None:
    events = _Events()
    log = CommandLog(events, cast("Store", _Records()))
    request = pb.OperateTaskRequest(op=pb.OperateTaskRequest.OP_PAUSE, name="orders")

    def fail(_: Any) -> pb.OperateTaskResponse:
        raise error

    with pytest.raises(ShardmergeError):
        log.run(request, cast("Any", _Context()), fail)
    log.end()
    assert [(event.text, event.failed) for event in events.found] == [(text, True) for text in texts]
