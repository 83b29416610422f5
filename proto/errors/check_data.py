"""Pre-check errors about the rows themselves: keys, ids, texts, what the target holds. See proto/errors/check.py."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="check")
ID_NEAR_LIMIT = _define(
    12022,
    "auto-increment-near-limit",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: the next AUTO_INCREMENT id of a table has reached {percent} % or more of its "
    "range: {tables}",
    workaround='Widen the column at the source and at the target, or give the mapping\'s original id more bits ("" for '
    "an unused part of `partition id`), before the ids are used up: an id that does not fit stops the task.",
)
DUPLICATE_KEYS = _define(
    12023,
    "duplicate-keys",
    scope=Scope.SOURCE,
    message="{target}: key ({columns}) has the same value in several rows: {found}{more}",
    workaround="One of the rows would evict the other, so that the task would stop there. Map the key with `partition "
    "id` (or add prefix, add suffix), route the tables to different targets, or change the rows at a source.",
)
KEYS_NOT_COMPARED = _define(
    12024,
    "keys-not-compared",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="{target}: it is unknown whether key ({columns}) has the same value in several shard tables: {reason}",
    workaround="{way_out}",
)
KEY_RANGES_OVERLAP = _define(
    12025,
    "partition-ranges-overlap",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="{target}: `partition id` gives several shard tables ids of {column} from one range: {tables}",
    workaround="Give each source an instance number of its own (the mapping's first argument), and each schema and "
    "table a number of its own.",
)
TARGET_NOT_EMPTY = _define(
    12037,
    "target-table-not-empty",
    scope=Scope.TARGET,
    message="{target} holds rows that the task has no record of: {found}",
    workaround="The copy stops at the first row whose key exists already. Find out who wrote the rows. If a run of "
    "this task has, leave out --remove-meta: start-task then continues from its records. Else route to another table, "
    "or empty this one, if no other task or source has rows in it. Rows that are known to share no key with the shard "
    "tables may stay: ignore-checking-items: [downstream_table_empty]. For a target that was loaded by other means: "
    "task-mode: incremental.",
)
TARGET_ROWS_OVERWRITTEN = _define(
    12038,
    "target-rows-overwritten",
    scope=Scope.TARGET,
    level=Level.MEDIUM,
    message="{target} holds rows that the task has no record of: {found}; with safe-mode the stream overwrites those "
    "with the same keys",
    workaround="Nothing to do if they are an older state of the same rows that the copy does not reach. The copy "
    "itself overwrites nothing, with or without safe-mode: it stops at the first row whose key exists already.",
)
TARGET_ROWS_BESIDE = _define(
    12039,
    "target-rows-beside",
    scope=Scope.TARGET,
    level=Level.LOW,
    message="{target} holds rows of which the task has no record, outside of the ids that `partition id` gives to the "
    "shard tables of this source",
    workaround="Nothing to do if another source or another task writes them: they do not collide with this source's. "
    "compare may count them as extra rows. Tasks with one meta-schema do not drop columns of each other's rows "
    "(50074); those with different ones do.",
)
COLLATION_COARSER = _define(
    12061,
    "collation-tells-less-apart",
    scope=Scope.TARGET,
    level=Level.MEDIUM,
    message="{target}: in a unique key the target may treat two texts as equal that a source distinguishes: {columns}",
    workaround="Give the target's column the source's collation (or the character set's _bin) before the task starts: "
    "the task stops at the first two rows that become one key.",
)
SHARD_TYPES_CONTRADICT = _define(
    12105,
    "shard-types-contradict",
    scope=Scope.SOURCE,
    message="{target}: no type of column {column} holds every value of its shard tables: {type} in {table}, "
    "{other_type} in {other}",
    workaround="Change the column in one of the two shard tables, so that one type holds the values of both, or leave "
    "one of them out of the task, or route it to another target (block-allow-list, routes). No ALTER TABLE at the "
    "target helps. Then check-task again.",
)
SHARD_TABLES_DIFFER = _define(
    12106,
    "shard-tables-differ",
    scope=Scope.SOURCE,
    message="{target} does not exist, and would not fit all of its shard tables if it is created like {table}: "
    "{differences}",
    workaround="Create {target} at the target before the task starts: with all columns of these shard tables, for each "
    "of them a type that holds the values of all, a default (or NULL) where a shard table lacks the column, and a "
    "unique key over the key of each. `dmctl schema <file>` shows the statements that each source would use. Or make "
    "the shard tables equal. Then check-task again.",
)
SHARD_CHARSETS_DIFFER = _define(
    12107,
    "shard-charsets-differ",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="{target} does not exist, and may lack characters of its shard tables: {columns}",
    workaround="Create {target} at the target before the task starts, with CHARACTER SET utf8mb4 for these columns. "
    "Nothing to do if all texts have only characters of both: the task stops at the first text that does not fit.",
)
SHARD_CHARSETS_WAIT = _define(
    12109,
    "shard-charsets-wait",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="{target}: an ALTER TABLE of these columns will wait under `shard-mode: optimistic` until an operator "
    "decides (50101), because shard tables have different character sets: {columns}",
    workaround="Convert the columns to one character set at all sources before the task starts (utf8mb4 holds all "
    "texts). Nothing to do if no statement will change these columns: rows and other columns do not wait.",
)
SEQUENCES_LET_THROUGH = _define(
    12108,
    "sequences-let-through",
    scope=Scope.CONFIG,
    message="source {source}: the rules let sequences through, which are no tables: {sequences}",
    workaround="Exclude them in the block-allow-list of the source, as ignore-tables: [{entries}] (where do-tables are "
    "listed, these alone must not match them). The numbers that they give are in the rows and are copied; the target "
    "gets no sequence. Else the task stops when a sequence reserves its next numbers (40010).",
)
SQL_MODE_DIFFERS = _define(
    12062,
    "sql-mode-differs",
    scope=Scope.TARGET,
    level=Level.LOW,
    message="source {source}: the global sql_mode of source and target differ in what statements mean: {differences}",
    workaround="Copied rows do not depend on it: the task's sessions set their own sql_mode, and each DDL runs under "
    "the one that it had at the source. Applications that move to the target do: SET GLOBAL sql_mode there as at the "
    "source.",
)
FILTERED_ROWS_SHARE_KEYS = _define(
    12064,
    "filtered-rows-share-keys",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="source {source}: filters drop changes of rows of {tables}, and other shard tables of {target} may "
    "have rows of the same keys: a later UPDATE or DELETE of a dropped row would change theirs",
    workaround="Keep the keys apart: map a key column by `partition id` with instance, schema and table, or let "
    "columns of extract-table, extract-schema and extract-source be part of the target's key. Nothing to do if no two "
    "shard tables ever have the same key.",
)
FILTER_WITHOUT_TABLE = _define(
    12074,
    "expression-filter-without-table",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="source {source}: expression filter {rule} is for {table}, and the task has no such table there: it drops "
    "nothing",
    workaround="Correct `schema` and `table` of the filter: they are names as the source has them, without wildcards. "
    "Nothing to do if the table will be created later.",
)
EARLIER_ROWS_MIXED = _define(
    12080,
    "earlier-rows-mixed",
    scope=Scope.TARGET,
    message="task {task}, source {source}: start-task --remove-meta cannot remove the rows of the earlier run from "
    "{target}: {why}",
    workaround="Nothing was changed. `dmctl start-task <file> -s {source}` continues from the records, without a new "
    "copy. For a new copy all sources start again: `dmctl stop-task {task}` unless it is stopped, empty {target} at "
    "the target (first save rows that the sources no longer have), then `dmctl start-task <file> --remove-meta`, "
    "without -s.",
)
OTHER_ROWS_GONE = _define(
    12081,
    "rows-of-other-sources-gone",
    scope=Scope.TARGET,
    message="{target} is empty, but task {task} has copied {count} row(s) of source(s) {sources} into it, and these "
    "sources do not start again",
    workaround="Nothing was changed. All sources must start again: `dmctl stop-task {task}` unless it is stopped, then "
    "`dmctl start-task <file> --remove-meta`, without -s.",
)
EARLIER_ROWS_REMOVED = _define(
    12082,
    "earlier-rows-removed",
    scope=Scope.TARGET,
    level=Level.MEDIUM,
    message="{target}: before the copy, the rows of {count} shard table(s) of source {source} are removed, the first "
    "where {condition}",
    workaround="Nothing to do: the copy writes them again, and they are missing until then. Other sources' rows stay.",
)
ROWS_HALF_REMOVED = _define(
    12083,
    "earlier-rows-half-removed",
    scope=Scope.CONFIG,
    message="task {task}, source {source}: a start with --remove-meta has begun to remove its rows at the target, so "
    "the task cannot continue with task-mode: incremental",
    workaround="Nothing was changed. `dmctl stop-task {task} -s {source}`, then `dmctl start-task <file> -s {source}` "
    "with task-mode: all, which copies the rows again.",
)
TEXTS_NOT_KNOWN_YET = _define(
    12104,
    "extracted-texts-not-known-yet",
    scope=Scope.TARGET,
    level=Level.LOW,
    message="task {task}, source {source}: the rows of the earlier run are known by the texts of extracted columns, "
    "and source {other} has no record yet of its shard tables, which may have the same texts",
    workaround="Nothing to do: this source continues by itself once source {other} has begun.",
    retryable=True,
)
SOURCE_TRIGGERS = _define(
    12090,
    "source-triggers",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: triggers on shard tables, which a target does not get: {triggers}",
    workaround="Nothing to do for the task: the rows that the triggers write are in the binlog, and are replicated if "
    "their tables take part. Create what the applications need at the target at the cut-over, not before.",
)
TARGET_TRIGGERS = _define(
    12091,
    "target-triggers",
    scope=Scope.TARGET,
    message="{target} has triggers, which run for every replicated row: {triggers}",
    workaround="They would change replicated rows, or write what the sources' triggers have written already. Drop them "
    "until the cut-over. If they may run for replicated rows: ignore-checking-items: [triggers].",
)
PARTITIONS_NOT_KEPT = _define(
    12097,
    "partitions-not-kept",
    scope=Scope.CONFIG,
    message="source {source}: {target} cannot have the partitions of its shard tables {tables}: {reason}",
    workaround="partitions: drop creates it without partitions. To have others, create {target} by hand before the "
    "start, with partitions: drop in the task file.",
)
PARTITIONS_DIFFER = _define(
    12098,
    "partitions-differ",
    scope=Scope.CONFIG,
    message="source {source}: the shard tables of {target} have different partitions, so it cannot keep them: {groups}",
    workaround="partitions: drop creates it without partitions. To have others, create {target} by hand before the "
    "start, with partitions: drop in the task file. Or make the shard tables equal.",
)
EXTRACTED_NOT_IN_KEY = _define(
    12101,
    "extracted-columns-not-in-key",
    scope=Scope.TARGET,
    message="{target}: {keys} lacks columns that the route extracts from names ({columns}): equal keys of two shard "
    "tables would be one key there, and the task would stop at the second row",
    workaround="At the target, before the task starts:\n{statement};\nIf no two shard tables ever have the same key: "
    "extract-in-key: never (of the task or of the route).",
)
EXTRACTED_KEY_TOO_LONG = _define(
    12102,
    "extracted-columns-too-long-for-key",
    scope=Scope.CONFIG,
    message="{target}: {key} with the columns that the route extracts from names ({columns}) would have {found}, and "
    "the target's server allows {limit}",
    workaround="Create {target} by hand before the start, with a shorter column in the key and with the extracted "
    "columns at its end. If no two shard tables ever have the same key: extract-in-key: never (of the task or of the "
    "route).",
)
TRIGGERS_UNSEEN = _define(
    12092,
    "target-triggers-unseen",
    scope=Scope.TARGET,
    level=Level.MEDIUM,
    message="it is unknown whether existing target tables have triggers: {user} lacks the privilege TRIGGER on "
    "{tables}",
    workaround="Triggers at the target run for every replicated row. Look for them with another account (SHOW "
    "TRIGGERS), or grant the privilege: {grant}",
)
TARGET_INDEXES_KEPT = _define(
    12110,
    "target-indexes-kept",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="the existing empty target table {target} is loaded with its secondary indexes {indexes}: the target "
    "updates them row by row, and the load takes a quarter to a half longer with one of them, and more with many",
    workaround="With defer-indexes: empty in the block load of the task file, the task drops them before the load and "
    "adds them after it, as they were. With defer-indexes: never, it loads as now, without this warning.",
)
PRIVILEGE_FOR_INDEXES = _define(
    12111,
    "privilege-missing-for-indexes",
    scope=Scope.TARGET,
    message="defer-indexes: empty cannot drop and add the indexes {indexes} of {target}: user {user} lacks {missing}",
    workaround="{grant}\nOr set defer-indexes: created in the block load of the task file: the table is then loaded "
    "with its indexes.",
)
