"""The warnings of a task's sources as one for each kind, for the list of tasks. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardmerge.proto import master_pb2 as pb


def task_warnings(answers: Sequence[pb.SourceSubTasks]) -> list[pb.TaskWarning]:
    """Of each kind the warning with the least time left, and how many others there are; bounded, however many sources
    the task has."""
    kinds: dict[str, list[pb.TaskWarning]] = {}
    for answer in answers:
        for warning in answer.source_status.warnings:
            found = pb.TaskWarning(source=answer.source_status.source, warning=warning)
            kinds.setdefault(warning.name, []).append(found)
    firsts: list[pb.TaskWarning] = []
    for found in kinds.values():
        first = min(found, key=_urgency)
        first.others = len(found) - 1
        firsts.append(first)
    return sorted(firsts, key=_urgency)


def _urgency(found: pb.TaskWarning) -> tuple[float, str, str]:
    """By its time; those without one are last."""
    return (found.warning.due or math.inf, found.warning.name, found.source)
