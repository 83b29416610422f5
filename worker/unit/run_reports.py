"""What a run reports to its subtask: statements and the work in parallel with its unit, for the history of the task,
and the time of readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardmerge.proto.errors import ShardmergeError


@dataclass(frozen=True, slots=True)
class DdlOutcome:
    """``statement``: as at the source. ``form``: the same without the names of its shard tables. ``targets``: quoted.
    ``result``: one phrase."""

    statement: str
    form: str
    position: str
    targets: tuple[str, ...]
    result: str


def ignore(outcome: DdlOutcome) -> None:
    """Where no task has a history."""


def ignore_tables(what: str, tables: Sequence[str], error: ShardmergeError | None) -> None:
    """As :func:`ignore`."""


def ignore_reader_time(cause: str, seconds: float) -> None:
    """Where no metrics are made of it."""
