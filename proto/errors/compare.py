"""Errors of a comparison: codes 45001–45999."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="compare", level=Level.LOW)

NOT_REPLICATING = _define(
    45001,
    "compare-not-replicating",
    scope=Scope.CONFIG,
    message="task {task}, source {source}: only a subtask that replicates can be compared with its target; this one "
    "is {state}",
    workaround="Wait for the end of the snapshot, or resume-task; query-status shows the state. A task of mode full "
    "ends with its snapshot: nothing follows the source's changes, so what differs later is no error.",
)
LANES_BEHIND = _define(
    45002,
    "compare-lanes-behind",
    scope=Scope.TARGET,
    message="task {task}, source {source}: the lanes did not reach {position} of the source within {seconds} s, so "
    "rows that changed since cannot be judged",
    workaround="Wait until query-status shows the task as synced, or find out there what the lanes wait for; then "
    "compare again.",
    retryable=True,
)
RELAY_CHANGED = _define(
    45003,
    "compare-relay-changed",
    scope=Scope.INTERNAL,
    message="task {task}, source {source}: the relay log was replaced, or the subtask was started again, in the middle "
    "of the comparison",
    workaround="Compare again.",
    retryable=True,
)
TABLE_UNKNOWN = _define(
    45004,
    "compare-table-unknown",
    scope=Scope.CONFIG,
    message="task {task}: none of its shard tables or target tables is named {tables}",
    workaround="Name tables as schema.table, spelt as at the source or at the target; without "
    "--table all are compared.",
)
ALREADY_RUNNING = _define(
    45005,
    "compare-already-running",
    scope=Scope.CONFIG,
    message="task {task}, source {source}: a comparison is in progress already",
    workaround="Wait for its end, or end it with Ctrl-C where it was started.",
    retryable=True,
)
STREAM_ENDED = _define(
    45006,
    "compare-stream-ended",
    scope=Scope.INTERNAL,
    message="task {task}, source {source}: the comparison's stream of relay events ended early",
    workaround="Compare again; look at the worker's log if it repeats.",
    retryable=True,
)
INTERRUPTED = _define(
    45010,
    "compare-interrupted",
    scope=Scope.INTERNAL,
    message="task {task}: the comparison ended before the result of {sources} arrived",
    workaround="Compare again. The master that ran it has stopped; its log shows why.",
    retryable=True,
)
NO_REFERENCES = _define(
    45007,
    "compare-no-references",
    scope=Scope.CONFIG,
    message="task {task}: no table that was requested refers to another table of the task: there is no foreign key at "
    "the sources, and no entry of `references`",
    workaround="Add the columns to `references` of the task file. If nothing refers to anything, there is nothing to "
    "compare.",
)
NOT_REFERENCES = _define(
    45008,
    "compare-worker-too-old",
    scope=Scope.CONFIG,
    message="task {task}, source {source}: its worker has compared rows instead of references, because it is of an "
    "earlier version",
    workaround="Update the worker, then compare again.",
)
