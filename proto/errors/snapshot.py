"""Snapshot errors: codes 30001–30999."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.spec import Level, Scope, copies_one_source, define

_define = partial(define, error_class="snapshot")

# After these errors changes are lost at the source: its history is copied again. start-task --remove-meta first removes
# the source's own rows at the target, and refuses where it cannot identify them. An operator must not empty a target
# table by hand: it may hold the rows of other sources.
_START = (
    "`dmctl start-task <file> --remove-meta -s {source}` with task-mode: all, which removes the rows of this source at "
    "the target and copies them again. Do not empty the target by hand: rows of other sources stay there"
)

_EMPTY = "empty {mixed_targets} at the target (first save rows that no source has any more)"
_START_ALL = "`dmctl start-task <file> --remove-meta`, without -s and with task-mode: all"
_OF_ALL = "copy the history of all sources of task {task} again, because {mixed_rows}"

COPY_AGAIN = copies_one_source(
    f"copy the history of this source again: `dmctl stop-task {{task}} -s {{source}}`, then {_START}",
    f"{_OF_ALL}: `dmctl stop-task {{task}}`, {_EMPTY}, then {_START_ALL}",
)
"""For errors that name a task."""

_STOP_EACH = (
    "First stop each task of the source (`dmctl query-status -s {source}` shows them), `dmctl stop-task <task> -s "
    "{source}`"
)

_STOP_ALL = (
    "First stop it, `dmctl stop-task {task}`, and each other task of the source (`dmctl query-status -s {source}` "
    "shows them), `dmctl stop-task <task> -s {source}`"
)

COPY_SOURCE_AGAIN = copies_one_source(
    f"copy its history again. {_STOP_EACH}; only then, for each, {_START}",
    f"{_OF_ALL}. {_STOP_ALL}; then {_EMPTY}; only then {_START_ALL}",
)
"""For errors of a source, which may have several tasks: while one of them needs the lost binlog, the relay log cannot
begin at a later position."""

_UPDATE_SOURCE = "`dmctl operate-source update <source-file>`"

COPY_FROM_ANOTHER_SERVER = copies_one_source(
    f"copy its history again, from the server in the source's file. {_STOP_EACH}; then {_UPDATE_SOURCE}; only then, "
    f"for each, {_START}",
    f"{_OF_ALL}. {_STOP_ALL}; then {_UPDATE_SOURCE}, and {_EMPTY}; only then {_START_ALL}",
)
"""As COPY_SOURCE_AGAIN, where the source is to be read from a server that does not continue the former one."""

COPY_AFTER_SWITCH = copies_one_source(
    "`dmctl stop-task {task} -s {source}`, then `dmctl operate-source update <source-file>`, and `dmctl start-task "
    "<file> --remove-meta -s {source}`, which removes the rows of this source and copies them again",
    f"`dmctl stop-task {{task}}`, then `dmctl operate-source update <source-file>`, {_EMPTY}, and {_START_ALL}: all "
    "sources of the task are copied again, because {mixed_rows}",
)
"""For a task that keeps its source from being read from another server."""

TABLE_GONE = _define(
    30001,
    "table-gone",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table} no longer exists since the snapshot of task {task} began, and the "
    "source's binlog has no statement that dropped it",
    workaround="Restore the table, or take it out of the task: `dmctl update-task <file>`, with a file that leaves it "
    "out. The other "
    "tables keep their copies.",
)
STRUCTURE_CHANGED = _define(
    30002,
    "structure-changed",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table} was altered while the snapshot of task {task} was in progress, and the "
    "source's binlog has no statement that did it: {difference}",
    workaround="The snapshot has stopped and nothing is lost. Undo the ALTER at the source, then `dmctl resume-task "
    "{task} -s {source}`. An ALTER "
    "that is in the binlog (sql_log_bin=1) does not stop the snapshot.",
)
ROW_TOO_LARGE = _define(
    30003,
    "row-too-large",
    scope=Scope.TARGET,
    message="source {source}: a row of {schema}.{table} (key {key}) needs a statement of {bytes} bytes, the target "
    "takes {limit} (max_allowed_packet)",
    workaround="SET GLOBAL max_allowed_packet at the target to more than that, then `dmctl resume-task {task} -s "
    "{source}`; nothing of its chunk "
    "was written.",
)
COUNT_MISMATCH = _define(
    30004,
    "chunk-count-mismatch",
    scope=Scope.TARGET,
    message="source {source}: chunk {number} of {schema}.{table}: target {target_schema}.{target_table} reports "
    "{taken} inserted rows for {sent} sent ones",
    workaround="The chunk was rolled back. Look for a trigger or a proxy that rewrites statements at the target, "
    "then `dmctl resume-task {task} -s {source}`.",
)
RELAY_CHANGED = _define(
    30005,
    "relay-changed-under-chunk",
    scope=Scope.INTERNAL,
    level=Level.LOW,
    message="source {source}: the relay log was replaced while chunk {number} of {schema}.{table} was read",
    workaround="Nothing to do: the chunk is read again.",
    retryable=True,
)
INCOMPLETE = _define(
    30006,
    "snapshot-incomplete",
    scope=Scope.INTERNAL,
    message="task {task}, source {source}: every reader has ended but {left} chunk(s) are not loaded",
    workaround="The task continues by itself with the remaining chunks. If it repeats, report it with the "
    "worker's log.",
    retryable=True,
)
CHUNK_FORGOTTEN = _define(
    30007,
    "chunk-record-missing",
    scope=Scope.TARGET,
    message="task {task}, source {source}: chunk {number} of {schema}.{table} has no record in {meta_schema}",
    workaround=f"The task's records at the target were removed while it ran: {COPY_AGAIN}.",
)
RELAY_STREAM_ENDED = _define(
    30008,
    "relay-stream-ended",
    scope=Scope.INTERNAL,
    level=Level.LOW,
    message="source {source}: the relay stream for chunk {number} of {schema}.{table} ended before its high watermark",
    workaround="Nothing to do: the chunk is read again.",
    retryable=True,
)
PLAN_STUCK = _define(
    30009,
    "chunk-plan-stuck",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table}: the server does not order {found} after {last}, although the query "
    "asked for greater keys",
    workaround="The key's collation does not order its values consistently: CHECK TABLE and rebuild the index at "
    "the source, then `dmctl resume-task {task} -s {source}`.",
)
STATEMENT_UNDER_CHUNK = _define(
    30010,
    "statement-under-chunk",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: a statement on {tables} at {position} ran while a chunk of task {task} was read: "
    "{statement}",
    workaround="Nothing to do: the chunk is read again. If it repeats, restart applications whose sessions still log "
    "with binlog_format STATEMENT or MIXED.",
    retryable=True,
)
COMMITS_PENDING = _define(
    30011,
    "commits-pending",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: after {seconds} s a transaction that is in its binlog at {position} is still not "
    "committed",
    workaround="Nothing to do: the chunk is read again. If it repeats, the source waits for a semi-synchronous replica "
    "or for its disk (SHOW PROCESSLIST names the sessions), or it runs with binlog_order_commits=OFF: then set "
    "gtid_mode=ON, by which each transaction can be waited for.",
    retryable=True,
)
POSITION_UNKNOWN = _define(
    30018,
    "snapshot-position-unknown",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: the binlog position of a consistent snapshot is not known: only {agreeing} of {answers} "
    "answers to SHOW STATUS agree",
    workaround="Nothing to do: the chunk is read again. If it repeats, other programs send SHOW STATUS to the source "
    "all the time, and the server confuses the answers (SHOW PROCESSLIST names them): let them send it less often.",
    retryable=True,
)
KEYS_NOT_FOUND = _define(
    30012,
    "keys-not-found-by-value",
    scope=Scope.SOURCE,
    message="source {source}: {count} row(s) of {schema}.{table} are not found by the key that they show: a UUID "
    "column in it holds bytes that are no UUID",
    workaround="MariaDB mistakes such bytes, and ranges of the key lack these rows. Correct them at the source, or "
    "make the column BINARY(16) there; then `dmctl resume-task {task} -s {source}`.",
)
INDEXES_NOT_ADDED = _define(
    30013,
    "indexes-not-added",
    scope=Scope.TARGET,
    level=Level.MEDIUM,
    message="target {target_schema}.{target_table}: the indexes {indexes}, deferred until after the load, could not be "
    "added: {reason} (errno {errno})",
    workaround="Nothing is lost, and the worker tries again by itself. By errno: 1205, end the transaction that holds "
    "the table; 1799, SET GLOBAL innodb_online_alter_log_max_size higher; 1114 or 1034, free disk space where the "
    "target sorts (innodb_tmpdir). Or add the indexes by hand.",
    retryable=True,
)
PRESSURE_UNSEEN = _define(
    30014,
    "source-load-unseen",
    scope=Scope.SOURCE,
    message="source {source}: user {user} may not see the replication status that snapshot.max-replica-lag needs "
    "(errno {errno})",
    workaround="GRANT REPLICATION CLIENT ON *.* (MariaDB since 10.5: REPLICA MONITOR) to that user, or remove "
    "snapshot.max-replica-lag from the task file; then `dmctl resume-task {task} -s {source}`.",
)
COPY_KEY_CHANGED = _define(
    30015,
    "copy-key-changed",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} ran while the history of {table} was copied. "
    "It changed the key by which its chunks are read: the rest cannot be copied",
    workaround="Only this table waits. Copy it again: `dmctl update-task <file>` with a file that leaves {table} out, "
    "delete the rows "
    "of this shard table from {target} (if other tables are merged into it, only those), then `dmctl update-task "
    "<file>` with the present file. The other tables keep their copies. A task with task-mode: full or stop-at refuses "
    "update-task: first stop-task, then start-task with task-mode: all and without stop-at.",
)
COPY_OF_ENDING = _define(
    30016,
    "interrupted-copy-of-ending-task",
    scope=Scope.CONFIG,
    message="task {task}, source {source}: a statement has interrupted the copy of {tables}, and the source has passed "
    "{stop}, where the task ends: the rest would hold later changes",
    workaround="All copied rows stay. Give a later end, or none, in the task file: `dmctl stop-task {task} -s "
    "{source}`, then "
    "`dmctl start-task <file> -s {source}`, which continues from the records.",
)
