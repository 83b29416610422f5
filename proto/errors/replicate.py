"""Replicate and target errors: codes 40001–40999."""

from __future__ import annotations

from functools import partial

from proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="replicate")

COLLISION = _define(
    40001,
    "key-collision",
    scope=Scope.TARGET,
    message="source {source}: row of {schema}.{table} at {position} collides at target "
    "{target_schema}.{target_table}: key {key} exists already{other}",
    workaround="Two shards (or somebody else) own this key. Add a column mapping that keeps the shards' keys "
    "apart, or remove the foreign row at the target, then resume-task.",
)
DIVERGED = _define(
    40002,
    "target-diverged",
    scope=Scope.TARGET,
    message="source {source}: {schema}.{table} at {position}: {missing} row(s) that must exist at target "
    "{target_schema}.{target_table} are missing, e.g. key {key}",
    workaround="Somebody else changed the target table. Restore the row (or use safe-mode: true for targets "
    "that were pre-loaded by other means), then resume-task.",
)
FENCED = _define(
    40003,
    "fenced",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="task {task}, source {source}: a newer epoch than {epoch} has taken over; nothing of this one was "
    "committed",
    workaround="Nothing to do: this was a left-over of an earlier run. If it repeats, look for two workers with "
    "the same source.",
)
TARGET_LOST = _define(
    40004,
    "target-unreachable",
    scope=Scope.TARGET,
    message="target {host}:{port}: {reason} (errno {errno})",
    workaround="Check that the target server runs and accepts this user; the task goes on by itself.",
    retryable=True,
)
TARGET_REJECTED = _define(
    40005,
    "target-rejected-statement",
    scope=Scope.TARGET,
    message="target refused a statement on {target_schema}.{target_table} for source {source}: {reason} "
    "(errno {errno})",
    workaround="Mend the target table or the privilege named by the server's message, then resume-task.",
)
