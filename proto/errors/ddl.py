"""DDL errors: codes 50001–50999."""

from __future__ import annotations

from functools import partial

from proto.errors.spec import Scope, define

_define = partial(define, error_class="ddl")

NOT_HANDLED = _define(
    50001,
    "shard-ddl-not-handled",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: statement at {position} touches routed table(s) {tables}: {statement} "
    "— shard-DDL handling is missing in this version",
    workaround="Nothing is lost: the task stands right before the statement. Upgrade to a version with "
    "shard-DDL handling and resume-task. If it makes a table: update-task with the task file takes the table in, with "
    "its rows.",
)
