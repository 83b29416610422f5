"""The key of a subtask's records at the target."""

from __future__ import annotations

from typing import NamedTuple


class SubtaskKey(NamedTuple):
    """``schema``: the meta schema, in which the records are."""

    schema: str
    task: str
    source: str
