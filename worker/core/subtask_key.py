"""The key of a subtask's records at the target."""

from __future__ import annotations

SubtaskKey = tuple[str, str, str]
"""Meta schema, task, source."""
