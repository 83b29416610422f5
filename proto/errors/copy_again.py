"""The way out of errors after which changes are lost at the source: its history is copied again.

start-task --remove-meta first removes the source's own rows at the target, and refuses where it cannot identify them.
An operator must not empty a target table by hand: it may hold the rows of other sources.
"""

from __future__ import annotations

_START = (
    "`dmctl start-task <file> --remove-meta -s {source}` with task-mode: all, which removes the rows of this source at "
    "the target and copies them again. Do not empty the target by hand: rows of other sources stay there"
)

COPY_AGAIN = f"copy the history of this source again: `dmctl stop-task {{task}} -s {{source}}`, then {_START}"
"""For errors that name a task."""

COPY_SOURCE_AGAIN = (
    "copy its history again. First stop each task of the source (`dmctl query-status -s {source}` shows them), "
    f"`dmctl stop-task <task> -s {{source}}`; only then, for each, {_START}"
)
"""For errors of a source, which may have several tasks: while one of them needs the lost binlog, the relay log cannot
begin at a later position."""
