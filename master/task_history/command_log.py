"""Runs commands and reports each to the histories of its tasks. A report never delays or fails a command."""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.task_history.commands import command_events
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.log_rate_limit import RateLimit
from shardmerge.proto.rpc.caller import caller_name
from shardmerge.proto.task_history.event import History

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class CommandLog:
    """Thread-safe. One thread makes the reports: the name of a task is in its file, which takes time to read."""

    def __init__(self, history: History, store: Store) -> None:
        self._history = history
        self._store = store
        self._log_limit = RateLimit(600.0)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="command-log")

    def run(self, request: Request, context: grpc.ServicerContext, command: Callable[[Request], Response]) -> Response:
        """The answer of ``command``, or what it raises."""
        at, before = time.time(), self._last_state()
        try:
            answer = command(request)
        except ShardmergeError as error:
            self._hand_over(request, error, context, at, before)
            raise
        self._hand_over(request, answer, context, at, before)
        return answer

    def end(self) -> None:
        """Report what was handed over; no command follows."""
        self._thread.shutdown()

    def _hand_over(
        self, request: Message, answer: Any, context: grpc.ServicerContext, at: float, before: State | None
    ) -> None:
        states = tuple(state for state in (before, self._last_state()) if state is not None)
        with contextlib.suppress(RuntimeError):  # the master ends, and this command has outlived its drain
            operation = contextvars.copy_context()
            self._thread.submit(operation.run, self._report, request, answer, caller_name(context), at, states)

    def _last_state(self) -> State | None:
        """The records as the command, or a loop of the leader, has read them: this asks no server."""
        last = self._store.last_read
        return None if last is None else last.state

    def _report(self, request: Message, answer: Any, caller: str, at: float, states: tuple[State, ...]) -> None:
        known = frozenset(task for state in states for task, _ in state.subtasks)

        def tasks_of(source: str) -> list[str]:
            return sorted({task for state in states for task in state.tasks_of(source)})

        try:
            for event in command_events(request, answer, caller, at, known, tasks_of):
                self._history.add(event)
        except ShardmergeError:
            return  # a task file without a readable name
        except Exception:  # noqa: BLE001 - the command has been done
            left_out = self._log_limit.left_out("report")
            if left_out is not None:
                get_logger().warning("a command is missing in the history", left_out=left_out, exc_info=True)
