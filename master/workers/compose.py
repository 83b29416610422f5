"""Composes a subtask's configuration from the task's file and the source's settings for every task."""

from __future__ import annotations

from collections.abc import Iterable

from shardmerge.master.state import State
from shardmerge.proto import config_pb2 as config


def with_source_settings(subtask: config.SubTaskConfig, source: config.SourceConfig) -> config.SubTaskConfig:
    """``subtask`` with the filters of ``source``, as its worker runs it. Composing it again changes nothing. Pure."""
    made = config.SubTaskConfig()
    made.CopyFrom(subtask)
    del made.source_filters[:]
    made.source_filters.extend(source.filters)
    return made


def all_with_source_settings(
    subtasks: Iterable[config.SubTaskConfig], state: State
) -> tuple[config.SubTaskConfig, ...]:
    """:func:`with_source_settings` for each subtask, in order; subtasks of unknown sources stay as they are."""
    known = state.sources
    return tuple(
        with_source_settings(one, known[one.source_id].value.config) if one.source_id in known else one
        for one in subtasks
    )
