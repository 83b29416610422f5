"""Replicate and target errors: codes 40001–40999."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.snapshot import COPY_AGAIN
from shardmerge.proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="replicate")

COLLISION = _define(
    40001,
    "key-collision",
    scope=Scope.TARGET,
    message="source {source}: row of {schema}.{table} at {position} collides at target "
    "{target_schema}.{target_table}: key {key} exists already{other}",
    workaround="The row at the target may be the valid row of another shard table, or an earlier one of {schema}."
    "{table}: do not delete it before you know whose it is "
    "(`dmctl decode-id <file> <id>` names the shard table of an id that `partition id` made). If no shard table has "
    "it, remove it at the target and `dmctl resume-task {task} -s {source}`. If another one has it, and this is a "
    "change of the stream: set on-row-error: quarantine under `replicate` in the task file and `dmctl update-task "
    "<file>`, which holds "
    "the row; or `dmctl binlog skip {task} -s {source} -b <position>`, which leaves the rows of that event out and "
    "records them. If {schema}.{table} itself has it, and `partition id` or extracted columns distinguish the shard "
    "tables: skip the event, and when query-status shows the task as synced, `dmctl compare {task} --repair` replaces "
    "the row. To keep all keys apart, add a column mapping, and copy every source again: `dmctl stop-task "
    "{task}`, empty {target_schema}.{target_table}, `dmctl start-task <file> --remove-meta`, without -s.",
)
DIVERGED = _define(
    40002,
    "target-diverged",
    scope=Scope.TARGET,
    message="source {source}: {schema}.{table} at {position}: {missing} row(s) that must exist at target "
    "{target_schema}.{target_table} are missing, e.g. key {key}",
    workaround="Another writer has removed rows at the target. Skip the rows of this event, which are recorded: "
    '`dmctl binlog skip {task} -s {source} -b "{position}"`; the task continues. If it stops at a further row, skip '
    "that, too. When query-status shows it as synced, `dmctl compare {task} --repair` copies the present rows of the "
    "source. It repairs no table without a key, and reports its difference: "
    f"{COPY_AGAIN}. "
    "Do not insert the row by hand: it would be the row as it is now, not as it was before this change. If "
    "many rows are missing, because the table was emptied, for example: set safe-mode: true in a block of `syncers` in "
    "the task file, name the block as syncer-config-name of each source, and `dmctl update-task <file>` instead of "
    "skipping them; after the comparison remove it in the same way. For a target that was loaded by other means: "
    "safe-mode: true.",
)
FENCED = _define(
    40003,
    "fenced",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="task {task}, source {source}: the records at the target are not of epoch {epoch}: a newer run has taken "
    "over; nothing of this run was committed",
    workaround="Of an earlier run that has ended by this there is nothing to do. A task that is paused by it continues "
    "with `dmctl resume-task {task} -s {source}`. If it repeats, another installation runs a task of this name with "
    "the same meta-schema, or two workers have the source: stop one of them.",
)
TARGET_WENT_BACK = _define(
    40103,
    "target-went-back",
    scope=Scope.TARGET,
    level=Level.MEDIUM,
    message="task {task}, source {source}: the records at the target {host}:{port} are not those that this run has "
    "written (epoch {epoch}, at the target {recorded}), and no newer run has taken over: most likely the target has "
    "lost transactions",
    workaround="The task continues by itself from the place that the target has, and applies again what was lost. It "
    "follows a fail-over to a replica that lagged, or a restored backup: rows of other programs may be lost, too. When "
    "query-status shows the task as synced, `dmctl compare {task}` shows that no row differs.",
    retryable=True,
)
TARGET_LOST = _define(
    40004,
    "target-unreachable",
    scope=Scope.TARGET,
    message="target {host}:{port}: {reason} (errno {errno})",
    workaround="Check that the target server runs and accepts this user; the task continues by itself.",
    retryable=True,
)
TARGET_REJECTED = _define(
    40005,
    "target-rejected-statement",
    scope=Scope.TARGET,
    message="target refused a statement on {target_schema}.{target_table} for source {source}: {reason} "
    "(errno {errno})",
    workaround="Correct what the server's message names at the target table, or the privilege; where a row of the "
    "source has a value that the target does not accept (an empty geometry, with which a source without a strict "
    "sql_mode fills a new column), the row at the source. Then `dmctl resume-task {task} -s {source}`. Do not drop or "
    "empty the table: it may hold the rows of other sources.",
)
TARGET_ACCESS_DENIED = _define(
    40020,
    "target-access-denied",
    scope=Scope.TARGET,
    message="target {host}:{port} refuses the login of user {user}: {reason} (errno {errno})",
    workaround="Check user, password and the host part of the account at the target, correct "
    "`target-database` in the file of each task of this target, and `dmctl update-task <file>` for each (start-task "
    "for "
    "a new task). If the files are right: `dmctl resume-task {task} -s {source}`.",
)
TARGET_PRIVILEGE_MISSING = _define(
    40021,
    "target-privilege-missing",
    scope=Scope.TARGET,
    message="user {user} at target {host}:{port} is not allowed: {reason} (errno {errno})",
    workaround="Grant what the server's message names (`dmctl check-task <file>` prints the statement), then "
    "`dmctl resume-task {task} -s {source}`.",
)
TARGET_BUSY = _define(
    40022,
    "target-busy",
    scope=Scope.TARGET,
    level=Level.MEDIUM,
    message="target {host}:{port} takes no further connection or statement: {reason} (errno {errno})",
    workaround="Raise max_connections or the account's limits at the target; the task continues by itself.",
    retryable=True,
)
TARGET_CONFLICT = _define(
    40023,
    "target-lock-conflict",
    scope=Scope.TARGET,
    level=Level.MEDIUM,
    message="target {host}:{port}: {reason} (errno {errno})",
    workaround="Nothing to do: the transaction is run again. If it repeats, look for other writers at the target.",
    retryable=True,
)
TARGET_READ_ONLY = _define(
    40024,
    "target-read-only",
    scope=Scope.TARGET,
    message="target {host}:{port} is read-only: {reason} (errno {errno})",
    workaround="Make the target writable; the task continues by itself. If a replica of it has taken over: `dmctl "
    "stop-task <task>`, point `target-database` in the task file at that server, `dmctl start-task <file>`.",
    retryable=True,
)
TARGET_STORAGE = _define(
    40025,
    "target-storage-full",
    scope=Scope.TARGET,
    message="target {host}:{port} has no disk space: {reason} (errno {errno})",
    workaround="Free disk space at the target; the task continues by itself.",
    retryable=True,
)
TARGET_TRANSACTION_TOO_LARGE = _define(
    40027,
    "target-transaction-too-large",
    scope=Scope.TARGET,
    message="target {host}:{port} has no memory for a transaction of this size: {reason} (errno {errno})",
    workaround="Changes of rows and chunks of the history are repeated in smaller transactions by themselves. If it "
    "does not pass, raise the target's limit (TiDB: SET GLOBAL tidb_mem_quota_query, and txn-total-size-limit in its "
    "configuration); the task continues by itself. One row may be too large, or the history of a table without a key, "
    "or with a further unique key, is one transaction.",
    retryable=True,
)
TARGET_STATEMENT = _define(
    40026,
    "target-refused",
    scope=Scope.TARGET,
    message="target {host}:{port} refused a statement: {reason} (errno {errno})",
    workaround="Correct what the server's message names, then `dmctl resume-task {task} -s {source}`. If a merged "
    "table was changed there (dropped a column, for example), undo that first; its values in earlier rows are "
    "lost: when query-status shows the task as synced, `dmctl compare {task} --repair` copies them.",
)
TABLE_UNKNOWN = _define(
    40010,
    "table-not-planned",
    scope=Scope.SOURCE,
    message="source {source}: the rules let rows of {schema}.{table} at {position} through, but this table did not "
    "exist when the task started",
    workaround="Nothing is lost: the task has stopped before these rows. `dmctl update-task <file>` adds the "
    "table, with its history; or exclude it in the block-allow-list. A sequence (MariaDB) is no table: exclude it "
    "(ignore-tables), and `dmctl update-task <file>`.",
)
LANES_CHANGED = _define(
    40011,
    "lane-count-changed",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="task {task}, source {source}: rows were distributed to its {found} lanes otherwise than to the {wanted} "
    "that are configured; they run up to one barrier, and from there the task continues as configured",
    workaround="Nothing to do.",
)
TARGET_DUPLICATE_OTHER_KEY = _define(
    40012,
    "unique-key-collision",
    scope=Scope.TARGET,
    message="source {source}: a row of {schema}.{table} at {position} violates a unique key of target "
    "{target_schema}.{target_table}: {reason} (errno {errno})",
    workaround="If several shard tables are merged into the table, the row at the target is most likely the valid row "
    "of another one: do not delete it. `dmctl decode-id <file> {id}` names the shard table of its id, if `partition "
    "id` made it. If only one is, the source accepts both values: compare SHOW CREATE TABLE of both servers, give the "
    "column its collation of the source at the target, and `dmctl resume-task {task} -s {source}`. Else set "
    "on-row-error: quarantine under `replicate` in the task file and `dmctl update-task <file>`: the row is held, and "
    "all others follow. "
    "Change one of the two rows at its source; when the change is at the target, `dmctl quarantine retry {task}`. Or "
    'leave the rows of this event out, which are recorded: `dmctl binlog skip {task} -s {source} -b "{position}"`. '
    "If "
    "shard tables may repeat the value, drop the unique key at the target, then `dmctl resume-task {task} -s "
    "{source}`. Remove a row at the target only if no shard table has it.",
)
NO_START = _define(
    40013,
    "no-start-position",
    scope=Scope.INTERNAL,
    message="task {task}, source {source}: phase is {phase}, but there are no lane checkpoints in {schema}",
    workaround="The task's records at the target were changed by hand. Restore them and `dmctl resume-task {task} -s "
    f"{{source}}`; or {COPY_AGAIN}.",
)
TARGET_TABLE_DIFFERS = _define(
    40030,
    "target-table-differs",
    scope=Scope.TARGET,
    message="source {source}: target table {target_schema}.{target_table} does not fit: {differences}",
    workaround="ALTER the target table so that it holds every value of all its shard tables and has a unique key over "
    "the mapped key, or correct the column mapping (update-task); then `dmctl resume-task {task} -s {source}`. Do not "
    "drop or empty a table that has rows: those of other sources would be lost. If another task or program has removed "
    "a column, its values are lost, too: when query-status shows the task as synced, `dmctl compare {task} --repair` "
    "copies them. If no type holds the values of all "
    "shard tables (check-task shows them with code 12105), change the shard table instead: before the copy of source "
    "{source} has begun (task-mode all or full), the same command reads the structures of its tables again.",
)
TARGET_NOT_TRANSACTIONAL = _define(
    40031,
    "target-not-transactional",
    scope=Scope.TARGET,
    message="target table {target_schema}.{target_table} has engine {engine}, which has no transactions",
    workaround="ALTER TABLE {target_schema}.{target_table} ENGINE=InnoDB at the target, then `dmctl resume-task "
    "{task} -s {source}`.",
)
TARGET_CREATE_REFUSED = _define(
    40032,
    "target-create-refused",
    scope=Scope.TARGET,
    message="source {source}: target table {target_schema}.{target_table} cannot be created like {schema}.{table}: "
    "{reason} (errno {errno}); the statement was: {statement}",
    workaround="Create the target table by hand, then `dmctl resume-task {task} -s {source}`.",
)
TARGET_IS_META = _define(
    40033,
    "target-is-meta-schema",
    scope=Scope.CONFIG,
    message="source {source}: {schema}.{table} is routed into the task's meta schema {target_schema}",
    workaround="Choose another `meta-schema` for the task, or route the table elsewhere.",
)
SOURCE_TABLE_GONE = _define(
    40034,
    "source-table-gone",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table} no longer exists, so target {target_schema}.{target_table} cannot "
    "be created like it",
    workaround="Create the target table by hand, then `dmctl resume-task {task} -s {source}`: the stream contains what "
    "became of the table.",
)
LANES_MOVED = _define(
    40014,
    "lanes-moved",
    scope=Scope.INTERNAL,
    message="source {source}: its lanes are at different positions, and another version of this program has "
    "distributed the rows to them (distribution {found}, this version: {wanted})",
    workaround="Start the version that wrote the checkpoints, pause the task once its source is quiet and every lane "
    "is at the same position (query-status --more), then start this version. If that version is lost, "
    f"{COPY_AGAIN}.",
)
LANES_MISSING = _define(
    40015,
    "lane-checkpoints-missing",
    scope=Scope.TARGET,
    message="source {source}: by its record at the target the task has {recorded} lanes, but there are {found} "
    "checkpoints",
    workaround="The task's records at the target were changed by hand. Restore them and `dmctl resume-task {task} -s "
    f"{{source}}`; or {COPY_AGAIN}.",
)
UPDATE_REMAPS = _define(
    40035,
    "update-remaps-rows",
    scope=Scope.CONFIG,
    message="source {source}: the update would write rows of {table} differently into {target}, which holds them as "
    "they were written before",
    workaround="Nothing was changed. Leave the column mappings and the transform of a table as they are while it is "
    "merged. To "
    "change them: exclude the table with update-task, remove its rows at the target (only those of this shard table, "
    "if "
    "others are merged there), and add it again with another update-task. Another projection, where rows that are at "
    "the target may stay as they were made: stop-task, then start-task.",
)
UPDATE_OWN_ROWS = _define(
    40099,
    "update-onto-own-rows",
    scope=Scope.TARGET,
    message="task {task}, source {source}: the update would copy {table} into {target}, which has rows of this shard "
    "table already: they are from before it left the task, or moved to another target",
    workaround="Nothing was changed. Remove these rows at the target, then give the command again, which copies the "
    "rows that the source has now: {removal} If the source no longer has some of them, save these first. A further "
    "shard table may print a statement of its own.",
)
TARGET_LACKS_ZONE = _define(
    40102,
    "target-lacks-time-zone",
    scope=Scope.TARGET,
    message="target {host}:{port} does not know the time zone {zone}, in which a session of the source ran a statement",
    workaround="Nothing of the statement has run. Load the time zones at the target's server (`mysql_tzinfo_to_sql "
    "/usr/share/zoneinfo | mysql -u root mysql`, at MariaDB 10.5 and newer also named mariadb-tzinfo-to-sql; TiDB has "
    "its own), then `dmctl resume-task <task>`.",
)
UPDATE_MIXED_ROWS = _define(
    40101,
    "update-onto-mixed-rows",
    scope=Scope.TARGET,
    message="task {task}, source {source}: the update would copy {table} into {target}, which may have rows of this "
    "shard table already, from before it left the task or moved to another target: {why}",
    workaround="Nothing was changed. Copy every source again: `dmctl stop-task {task}`, empty {target} at the target "
    "(first save rows that the sources no longer have), `dmctl start-task <file> --remove-meta`, without -s. If you "
    "can identify the rows of {table} at the target: remove only these, add ignore-checking-items: "
    "[downstream_table_empty] to the task file, and give the command again.",
)
UPDATE_TOO_EARLY = _define(
    40036,
    "update-too-early",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="task {task} has not begun to copy from source {source} yet: there is nothing to update",
    workaround="Look at query-status; update it once it copies or replicates, or stop-task and start-task it again.",
)
UPDATE_OF_ENDING = _define(
    40037,
    "update-of-ending-task",
    scope=Scope.CONFIG,
    message="task {task}, source {source}: no table can join it, because it ends at {stop}",
    workaround="Start it without an end (stop-task, start-task), or merge the tables with a task of their own.",
)
TIME_UNCLEAR = _define(
    40050,
    "time-unclear",
    scope=Scope.CONFIG,
    message="source {source}: {time} is not a unique time in its time zone {zone}: clocks were put forward or back "
    "then, or the server cannot convert it",
    workaround='Give the time with its offset, as in "2026-01-02T03:04:05+02:00".',
)
START_TOO_EARLY = _define(
    40051,
    "start-time-too-early",
    scope=Scope.SOURCE,
    message="source {source}: its binlog does not hold everything since {time}: its oldest file {file} begins "
    "at {begins}",
    workaround="The changes before that file are lost for a start there. Copy the tables with task-mode: all. Only if "
    "the "
    "target holds everything up to the beginning of that file, start with `start-at: earliest` (--start-time "
    "earliest).",
)
START_TOO_LATE = _define(
    40052,
    "start-time-too-late",
    scope=Scope.CONFIG,
    message="source {source}: the start time {time} is in the future: its clock shows {now}",
    workaround="Give a time that has passed there (mind its time zone), or `latest`.",
)
START_NEEDS_KEY = _define(
    40053,
    "start-time-needs-key",
    scope=Scope.SOURCE,
    message="source {source}: its binlog does not record when transactions committed, so that some from before {time} "
    "are applied again; tables without a key do not allow that: {tables}",
    workaround="Give the start as a binlog position or as a GTID set (`meta`), or exclude these tables.",
)
STOP_BEHIND = _define(
    40054,
    "stop-behind-start",
    scope=Scope.CONFIG,
    message="task {task}, source {source}: it is to end at {stop}, but {standing}",
    workaround="Nothing was changed. Give a later end: stop-task, then start-task with it.",
)
STOP_WITHOUT_GTIDS = _define(
    40055,
    "stop-without-gtids",
    scope=Scope.CONFIG,
    message="source {source}: the task is to end at GTID set {stop}, but {reason}",
    workaround="Give the end as a binlog position or as a time.",
)
STOP_OF_ANOTHER_SERVER = _define(
    40056,
    "stop-of-another-server",
    scope=Scope.SOURCE,
    message="task {task}, source {source}: it is to end at {stop}, a position in the binlog of server {server}, but "
    "the source is server {now} now",
    workaround="Find the same position at the new server, or a GTID set or a time: stop-task, then start-task with it.",
)
ROW_REFUSED = _define(
    40060,
    "row-refused",
    scope=Scope.TARGET,
    message="source {source}: row of {schema}.{table} at {position} is refused by target "
    "{target_schema}.{target_table}: key {key}: {reason} (errno {errno})",
    workaround="Correct the target table so that it accepts the row, then `dmctl resume-task {task} -s {source}`. Or "
    "skip the "
    'rows of this one event, which are recorded: `dmctl binlog skip {task} -s {source} -b "{position}"`; the target '
    "lacks them until `dmctl compare {task} --repair`, after it accepts them.",
)
SKIP_AMBIGUOUS = _define(
    40061,
    "skip-ambiguous",
    scope=Scope.SOURCE,
    message="source {source}: rows of {position} are to be skipped, but the events there belong to a transaction that "
    "was written compressed or prepared (XA): they have no positions of their own",
    workaround="Nothing was skipped. Remove the override, `dmctl binlog revert {task} -s {source} -b <position>`, "
    "correct the "
    "target and `dmctl resume-task {task} -s {source}`.",
)
QUARANTINE_BROKEN = _define(
    40062,
    "quarantine-broken",
    scope=Scope.TARGET,
    message="{schema}.{table} at {position}: the held change of key {key} does not fit the one before it",
    workaround="Nothing was applied. The records in held_change were changed by hand: restore them; or drop the key "
    "(`dmctl quarantine list {task}` shows it, `dmctl quarantine drop {task} --key <key>` removes it) and correct its "
    "row with `dmctl "
    "compare {task} --repair`.",
)
QUARANTINE_FULL = _define(
    40063,
    "quarantine-full",
    scope=Scope.TARGET,
    message="source {source}: {count} keys of task {task} would be held, more than the limit of {limit}; the newest "
    "is of {schema}.{table} at {position}: {reason}",
    workaround="Nothing is lost: the task has stopped before these rows. So many refusals have one cause: correct the "
    "target, `dmctl quarantine retry {task}`, then `dmctl resume-task {task} -s {source}`.",
)
ROWS_FILTERED = _define(
    40070,
    "rows-stopped-by-filter",
    scope=Scope.CONFIG,
    message="source {source}: an event filter stops the task before {event} of {schema}.{table} at {position}",
    workaround='`dmctl binlog skip {task} -s {source} -b "{position}"` skips the rows, which are recorded; or change '
    "the filter so that it lets them through, `dmctl update-task <file>`, and `dmctl resume-task {task} -s {source}`.",
)
EXPRESSION_FAILED = _define(
    40065,
    "expression-failed",
    scope=Scope.TARGET,
    message="source {source}: an expression filter of {schema}.{table} cannot be evaluated at {position}: "
    "{expression}: {reason} (errno {errno})",
    workaround="Nothing was written for these rows. Correct the expression and `dmctl update-task <file>`, then `dmctl "
    "resume-task {task} -s {source}`; or, where one row's values are the cause, skip its event: `dmctl binlog skip "
    "{task} -s {source} -b <position>` with exactly this position.",
)
TRANSFORM_FAILED = _define(
    40075,
    "transform-failed",
    scope=Scope.SOURCE,
    message="source {source}: transform {rule} of {schema}.{table} has no result for the row {key} at {position}: "
    "{reason}",
    workaround="Nothing was written for these rows. A row of the history: correct it at the source, then `dmctl "
    "resume-task "
    "{task} -s {source}`. A change: skip its event, `dmctl binlog skip {task} -s {source} -b <position>` with exactly "
    "this position. Another transform changes all rows of the table: take the table out with update-task, remove the "
    "rows of this shard table at the target (only those, if others are merged there), and add it again with another "
    "update-task.",
)
FUNCTION_RAISED = _define(
    40111,
    "transform-function-raised",
    scope=Scope.SOURCE,
    message="source {source}: transform {rule} of {schema}.{table}: function {function} raised {exception} at "
    "{position}",
    workaround="Nothing was written for these rows. Correct the function and restart the worker, or correct the row of "
    "the history at the source; then `dmctl resume-task {task} -s {source}`. To skip a change: `dmctl binlog skip "
    "{task} -s {source} -b <position>` with exactly this position. The message has neither values nor the text of the "
    "exception: log them in the function if you need them.",
)
FUNCTION_RESULT = _define(
    40112,
    "transform-function-result",
    scope=Scope.SOURCE,
    message="source {source}: transform {rule} of {schema}.{table}: function {function} has no result that can be used "
    "at {position}: {reason}",
    workaround="Nothing was written for these rows. Correct the function and restart the worker, or correct the row of "
    "the history at the source; then `dmctl resume-task {task} -s {source}`. To skip a change: `dmctl binlog skip "
    "{task} -s {source} -b <position>` with exactly this position. The types that a function gets and returns: "
    "docs/reference/rules.md, Transforms in Python.",
)
FUNCTION_UNUSABLE = _define(
    40113,
    "transform-function-unusable",
    scope=Scope.CONFIG,
    message="source {source}: transform {rule} of {schema}.{table}: function {function} cannot be used where Spark "
    "runs its tasks: {reason}",
    workaround="Nothing was written. The worker could import the function, a Spark task could not: install the same "
    "version of the module on every machine that runs Spark tasks, then `dmctl resume-task {task} -s {source}`.",
)
TRANSFORM_FILTER_CHANGED = _define(
    40077,
    "transform-filter-changed",
    scope=Scope.CONFIG,
    message="source {source}: {target} holds the rows of {table} that meet the filter {before} of its transform; the "
    "filter in the task file is {after}",
    workaround="Nothing was done: stop-task, then start-task with the filter as it was. For another one: take the "
    "table out with update-task, remove its rows at the target (only those of this shard table, if others are merged "
    "there), and add it again with another update-task.",
)
EXPRESSIONS_UNKNOWN = _define(
    40088,
    "expressions-unknown",
    scope=Scope.INTERNAL,
    message="task {task}, source {source}: a Spark task requests expressions that its worker has not compiled for it",
    workaround="Nothing was evaluated. If lanes or chunk readers of the task stop with this error, it is a bug: report "
    "it with the worker's log, and run `dmctl resume-task {task} -s {source}`, which compiles the expressions again. "
    "If none stops, another "
    "program has called the worker's port.",
)
ROWS_UNREADABLE = _define(
    40089,
    "transform-rows-unreadable",
    scope=Scope.INTERNAL,
    message="the rows in a request to evaluate a transform cannot be read: {reason}",
    workaround="Nothing was evaluated. If lanes or chunk readers stop with this error, install the worker's versions "
    "of shardmerge and pyarrow on every machine that runs Spark tasks, then `dmctl resume-task {task} -s {source}`. "
    "If none stops, another "
    "program has called the worker's port.",
)
EVALUATION_LOST = _define(
    40090,
    "transform-evaluation-lost",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="the worker's Spark could not evaluate a transform: {reason}",
    workaround="The worker retries by itself. If the error persists, raise spark.driver.memory, and check the free "
    "memory and the limit of open files on the worker's machine.",
    retryable=True,
)
CASCADES_INEXACT = _define(
    40091,
    "cascades-not-derivable",
    scope=Scope.SOURCE,
    message="task {task}, source {source}: rows that foreign keys change by cascade cannot be derived: {reason}",
    workaround="Nothing was written. Change what the message names, until `dmctl check-task <file>` accepts it, "
    f"without `ignore-checking-items`. Then {COPY_AGAIN}.",
)
CASCADES_CHANGED = _define(
    40092,
    "cascades-setting-changed",
    scope=Scope.CONFIG,
    message="task {task}, source {source}: the task began with `cascades: {before}`, and the task file has "
    "`cascades: {after}`",
    workaround="Nothing was written. Set it back in the file, `dmctl stop-task {task}`, then `dmctl start-task "
    "<file>`: the task continues where it was. With `cascades: refuse` the pre-check names keys that must be replaced "
    f"at the source first. Or, for each source, {COPY_AGAIN}.",
)
CASCADES_AWAY = _define(
    40093,
    "cascade-table-away",
    scope=Scope.SOURCE,
    message="task {task}, source {source}: {tables} cannot be copied or replicated apart from the tables with which "
    "foreign keys connect them by cascade: {reason}",
    workaround=f"If a statement has added or widened columns, ALTER the target table too. Then {COPY_AGAIN}.",
)
RENAME_UNDER_WAY = _define(
    40094,
    "target-rename-under-way",
    scope=Scope.TARGET,
    level=Level.MEDIUM,
    message="task {task}: a session at the target is renaming one of its target tables",
    workaround="It ends within a minute, or with its session. The worker retries by itself; repeat a command that was "
    "refused.",
    retryable=True,
)
RENAME_UNPUBLISHED = _define(
    40095,
    "target-rename-unpublished",
    scope=Scope.CONFIG,
    message="task {task}: the target table {before} was renamed to {after}, and the task's file still has the old name",
    workaround="Nothing was written. `dmctl update-task <file> --rename-target` with the file that names {after} "
    "completes the rename; with the file that names {before} it renames the table back. Then `dmctl resume-task "
    "{task}`.",
)
RENAME_UNCLEAR = _define(
    40096,
    "target-rename-unclear",
    scope=Scope.TARGET,
    message="task {task}: it is not known whether the target table {before} was renamed to {after}: {reason}",
    workaround="Nothing was written. See which table has the rows of the task. If both exist, rename or drop the one "
    "without them; if neither exists, restore it under one of the names; then `dmctl resume-task {task}`. If the "
    "records were changed by hand, restore them.",
)
_LOST_ROWS = (
    "When query-status shows it as synced, `dmctl compare {task} --repair --table {target_schema}.{target_table}`"
    " copies the rows again. If it stops with 40002 before that, because the source has changed a lost row: set "
    "safe-mode: true in a block of `syncers` in the task file, name the block as syncer-config-name of each "
    "source, and `dmctl update-task <file>`; after the comparison remove it in the same way. Or, without a "
    "comparison: take all shard tables of {target_schema}.{target_table} out of the task file, `dmctl update-task"
    " <file>`, drop the table at the target if it is there, and add them again with another update-task: it is "
    "created and their history is copied."
)
MERGED_TABLE_MISSING = _define(
    40097,
    "merged-table-missing",
    scope=Scope.TARGET,
    message="source {source}: target table {target_schema}.{target_table} is missing, found {found}; task {task} has "
    "merged rows of {tables} into it",
    workaround="The table is not created again by itself, because it would lack these rows. If it was renamed, rename "
    "it back, then `dmctl resume-task {task}`: nothing is lost. Else restore it from a backup, or create it with the "
    "statement that `dmctl schema {task} {schema}.{table} -s {source}` shows, and with the columns and indexes that "
    "other shard tables have in addition (`dmctl schema {task}` lists them), then `dmctl resume-task {task}`. "
    + _LOST_ROWS,
)
MERGED_TABLE_EMPTY = _define(
    40098,
    "merged-table-empty",
    scope=Scope.TARGET,
    message="source {source}: target table {target_schema}.{target_table} has no row, and task {task} has copied "
    "{count} rows of {tables} into it; its copy continues, so nothing else has removed them",
    workaround="Another writer has emptied or replaced the table. Restore it with these rows, then `dmctl resume-task "
    "{task}`. Or copy again: `dmctl stop-task {task}`, empty {target_schema}.{target_table}, `dmctl start-task <file> "
    "--remove-meta`, without -s.",
)
TARGET_WITHOUT_RECORDS = _define(
    40100,
    "target-without-records",
    scope=Scope.TARGET,
    message="task {task}, source {source}: another server than before answers at {host}:{port}, and it has no records "
    "of the task in {schema}: {now} instead of {before}",
    workaround="Nothing was written there. If a proxy or a name leads to the wrong server, lead it back, then "
    "`dmctl resume-task {task} -s {source}`. If the target was restored or replaced, restore {schema} with its tables "
    "at the same moment. To begin on the new server instead: `dmctl stop-task {task} -s {source}`, then start-task.",
)
RECORDS_LOST = _define(
    40114,
    "target-records-lost",
    scope=Scope.TARGET,
    message="task {task}, source {source}: the task has begun, and records of it are missing in {schema} at "
    "{host}:{port}: {missing}",
    workaround="Nothing was written since they are missing, and the history is not copied a second time. If {schema} "
    "was renamed, rename it back, then `dmctl resume-task {task}`. Else, with a backup of {schema} and the merged "
    "tables of one moment: `dmctl stop-task {task}`, restore both, `dmctl start-task <file>`. Without one: `dmctl "
    "stop-task {task}`, empty the merged tables of the task, `dmctl start-task <file> --remove-meta`, without -s.",
)
