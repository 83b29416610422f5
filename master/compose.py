"""What a subtask is made of: the task's file, and what the source's file says for every task."""

from __future__ import annotations

from collections.abc import Iterable

from master.state import State
from proto import config_pb2 as config


def composed(subtask: config.SubTaskConfig, source: config.SourceConfig) -> config.SubTaskConfig:
    """``subtask`` as its worker is to run it at ``source``; the same again for one that is composed already. Pure."""
    made = config.SubTaskConfig()
    made.CopyFrom(subtask)
    del made.source_filters[:]
    made.source_filters.extend(source.filters)
    return made


def composed_all(subtasks: Iterable[config.SubTaskConfig], state: State) -> tuple[config.SubTaskConfig, ...]:
    """In order; those of sources that are not known stay as they are."""
    known = state.sources
    return tuple(
        composed(one, known[one.source_id].value.config) if one.source_id in known else one for one in subtasks
    )
