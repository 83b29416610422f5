"""DDL errors: codes 50001–50999. 50101–50149: the locks of sharding DDLs; 50150–50159: their dry runs; 50160–50169:
binlog-schema; 50170–50179: held rows."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.snapshot import COPY_AGAIN
from shardmerge.proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="ddl")

_SKIP = "`dmctl binlog skip {task} -s {source}` skips the statement"
_REPLACE = (
    '`dmctl binlog replace {task} "<statement>" -s {source}` runs another one instead, with names as at the source'
)
_RESUME = "`dmctl resume-task {task} -s {source}`"
_UPDATE = "`dmctl update-task <file>`"
_REPAIR = "when query-status shows the task as synced, `dmctl compare {task} --repair`"

STATEMENT_UNKNOWN = _define(
    50002,
    "statement-not-understood",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: it is unknown what the statement at {position} changes: {statement}",
    workaround=f"The task has stopped right before it. If it changes none of the task's tables, {_SKIP}. If it does, "
    f"{_REPLACE}.",
)
ROWS_BY_STATEMENT = _define(
    50003,
    "rows-changed-by-statement",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: at {position} rows of {tables} were changed by a statement that was logged "
    "without its rows: {statement}",
    workaround="Set binlog_format=ROW at the source, for every session. If the change is known, make the same one at "
    "the "
    "target by hand, for the rows of this shard table only, "
    f"then {_SKIP}. To be certain, {_SKIP}, and {_REPAIR}; or {COPY_AGAIN}.",
)
DDL_REFUSED = _define(
    50004,
    "ddl-refused-by-target",
    scope=Scope.TARGET,
    message="source {source}, task {task}: the target refuses the SQL for the statement at {position}: "
    "{statement}: {reason} (errno {errno})",
    workaround=f"The task has stopped right before the statement. Correct what the target reports and {_RESUME}. If "
    f"the target has the change already, {_SKIP}; {_REPAIR} corrects the values that the statement gives to rows. "
    f"Or {_REPLACE}. For the statement of a sharding-DDL lock, if the "
    "target has a part of it already: run the rest at the target by hand. Then, while a table of this source waits at "
    "the lock, skip the statement as above. If none waits any more, `dmctl shard-ddl-lock {task}` prints the lock's "
    "id, and `dmctl shard-ddl-lock unlock '<lock>' --force-remove` lets all tables continue without the statement.",
)
DDL_PART_REFUSED = _define(
    50069,
    "ddl-part-refused-by-target",
    scope=Scope.TARGET,
    message="source {source}, task {task}: the target refuses a part of the statement at {position}, which it does not "
    "run as a whole: {part}: {reason} (errno {errno}). Parts that have run: {done}. Parts that have not run: {left}. "
    "The statement: {statement}",
    workaround="The task has stopped within the statement; the parts that have run stay. Correct what the target "
    f"reports and {_RESUME}: it continues with the part. If the target has the rest already, {_SKIP}. Or give the "
    'rest in another form, with names as at the source: `dmctl binlog replace {task} "<statement>; <statement>" '
    "-s {source}`. For the statement of a sharding-DDL lock at which no table of this source waits any more: `dmctl "
    "shard-ddl-lock {task}` prints the lock's id, and `dmctl shard-ddl-lock unlock '<lock>' --force-remove` lets all "
    "tables continue without the rest.",
)
NEEDS_SHARD_MODE = _define(
    50005,
    "ddl-of-shards-without-mode",
    scope=Scope.CONFIG,
    message="source {source}, task {task}: {table} is one of {shards} shard tables of {target}, and the task has no "
    "shard-mode, so it is unknown when the statement at {position} is to run there: {statement}",
    workaround="The task has stopped right before the statement. Set shard-mode: pessimistic (once all shard tables "
    "have reached it) or optimistic (at once, the target takes the union) in the task file, and "
    f"{_UPDATE}; or {_REPLACE}; or {_SKIP}.",
)
MOVES_ROWS = _define(
    50006,
    "ddl-moves-rows",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} adds or removes rows of {table} without listing "
    "them: {statement}",
    workaround=f"The task has stopped right before it. {_SKIP}; {_REPAIR} removes the rows that the source "
    "no longer has and copies those that it has now. If rows that the source has removed are to stay at the target, "
    "leave out the repair.",
)
ROWS_NOT_TOLD_APART = _define(
    50007,
    "rows-not-told-apart",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} removes all rows of {table}, which cannot be "
    "distinguished from those of {target}'s other shard tables: {why}: {statement}",
    workaround=f"The task has stopped right before it. {_SKIP}; {_REPAIR} removes the rows that no shard table has, "
    "and no others. Without the repair the rows stay, and collide with later rows of the same keys (key-collision).",
)
RENAME_LEAVES = _define(
    50008,
    "rename-across-rules",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: at {position} {table} gets the name {new}, and {reason}: {statement}",
    workaround="The task has stopped right before the statement. "
    f"{_SKIP[0].upper()}{_SKIP[1:]}; then {_UPDATE} adds a table that the rules let through, with its rows. If the "
    "target has rows of an earlier table of that name, update-task prints the statement that removes them first. The "
    "rows of a table that the rules no longer let through stay at the target, and no longer follow.",
)
STRUCTURE_REFUSES = _define(
    50009,
    "ddl-refused-by-structure",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} does not fit the recorded structure of {table}: "
    "{reason} (errno {errno}): {statement}",
    workaround="The structure was read later than this position of the binlog (binlog-schema update records it as it "
    "was) "
    f"or the target's server does not know the statement. {_REPLACE[0].upper()}{_REPLACE[1:]}; or {_SKIP}.",
)
NO_CREATION = _define(
    50010,
    "structure-not-recorded",
    scope=Scope.INTERNAL,
    message="source {source}, task {task}: the CREATE TABLE of {table} was not recorded, and the table at the source "
    "is no longer as it was before the statement at {position}: {statement}",
    workaround=f"{COPY_AGAIN[0].upper()}{COPY_AGAIN[1:]}.",
)
CHECK_BY_NAME = _define(
    50011,
    "check-by-name",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} names a check or constraint of {table}, which "
    "has another name at the target: {statement}",
    workaround="The task has stopped right before the statement. "
    f"{_REPLACE[0].upper()}{_REPLACE[1:]}, with the name that SHOW CREATE TABLE shows at the target.",
)
CHARSET_NOT_AT_TARGET = _define(
    50068,
    "ddl-charset-not-at-target",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} names character set(s) {charsets} for {table}, "
    "which the target lacks, and a lock of shard tables keeps statements in the target's form: {statement}",
    workaround="The task has stopped right before the statement. "
    f"{_REPLACE[0].upper()}{_REPLACE[1:]}, with utf8mb4 as the character set: the target holds every character of "
    "the source by it. Each further shard table stops at its statement, too: where the target has the change already "
    f"(an added column), {_SKIP}; else replace it in the same way.",
)
MAPPED_COLUMN = _define(
    50012,
    "ddl-of-mapped-column",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} changes column {column} of {table}, whose "
    "values are mapped: {statement}",
    workaround="The task has stopped right before the statement. If it changes nothing else, "
    f"{_SKIP}: the target's column must hold the mapped values, and can. Else {_REPLACE}, which does not name the "
    "column.",
)
COLUMN_IN_RULE = _define(
    50019,
    "ddl-of-column-in-rule",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} removes column {column} of {table}, by which "
    "rule {rule} decides about rows: {statement}",
    workaround="The task has stopped right before the statement. Give the task a rule without that column: "
    f"correct the task file and {_UPDATE}; or {_REPLACE}.",
)
TRANSFORMED_TABLE = _define(
    50021,
    "ddl-of-transformed-table",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} is for {table}, whose columns at the target are "
    "those of transform {rule}: {reason}: {statement}",
    workaround="The task has stopped right before the statement. Make the change at the target by hand if it needs "
    "one, then "
    f"{_SKIP}; or "
    '`dmctl binlog replace {task} "<statement>" -s {source}` runs another one instead, with the name of the table as '
    "at the source, and those of its columns as at the target. If the statement drops or changes a column that an "
    "expression needs as it was: `dmctl stop-task {task} -s {source}`, then `dmctl start-task <file> -s {source}` with "
    "a projection that neither uses it nor keeps it by `*`; when the task has stopped there again, skip the statement "
    "(rows that are at the target stay as they were made). "
    f"Or {_UPDATE} with a file that leaves the table out, remove its rows at the target (only those of this shard "
    "table, if others are merged there), and add it again with another transform.",
)
RENAME_REMAPS = _define(
    50013,
    "rename-remaps",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: at {position} {table} gets the name {new}, by which {reason}: {statement}",
    workaround=f"The task has stopped right before the statement. {_SKIP}; then {_UPDATE} adds the table under its new "
    f"name, with its rows; {_REPAIR} removes the rows that it had under its former name. Or keep the rows as they are: "
    f"rules under which the new name has the same target and mapping, and {_UPDATE}.",
)
LOCK_CONFLICT = _define(
    50101,
    "ddl-lock-conflict",
    scope=Scope.SOURCE,
    message="task {task}: the shard tables of one target table were altered by different statements, so that none of "
    "them can run at the target. The first, of source {owner}: {statement} — but shard table(s) {tables} have another "
    "one, at {position} of source {source}: {other} — this wait is the DDL lock {lock}",
    workaround="Nothing is lost: these shard tables wait with their rows, and all other tables are applied. Choose "
    "one. (1) `dmctl shard-ddl-lock unlock '{lock}'` runs the first statement at the target; if it drops, renames or "
    "narrows a column, the rows of the other tables lose what they have in it. The other statement then waits for a "
    "decision of its own. If the target has all or a part of it already, because one statement at one table is several "
    "at another: do not run it; run only the part that is missing at the target by hand, and continue as in (2). (2) "
    "Change the target table by hand so that it fits the rows of all shard tables; then `dmctl shard-ddl-lock unlock "
    "'{lock}' -f` lets the tables continue without the statement; give it again for each further statement of which "
    "the target has everything. (3) Take the shard tables out of the task: `dmctl update-task <file>`, or `dmctl "
    "stop-task {task} -s {source}` for all tables of the source. After (1) or (2), when query-status shows the task "
    "as synced, `dmctl compare {task} --repair` gives the rows the values of their sources.",
)
LOCK_UNKNOWN = _define(
    50102,
    "ddl-lock-unknown",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="there is no DDL lock {lock}",
    workaround="shard-ddl-lock lists the locks. In a shell an id needs quotes ('…'), because of the backquotes in it.",
)
LOCK_RELEASED = _define(
    50103,
    "ddl-lock-released",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="lock {lock} is released already; before it is deleted, it waits for {waiting}",
    workaround="Nothing to do for the lock. If it stays, look at those sources: query-status {task}.",
)
LOCK_OWNER = _define(
    50104,
    "ddl-lock-owner",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="lock {lock}: source {owner} cannot run the statement, as none of its shard tables is parked at it",
    workaround="Give one of these as --owner: {ready}.",
)
LOCK_OPTIMISTIC = _define(
    50105,
    "ddl-lock-optimistic-only",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{flags} of shard-ddl-lock unlock {lock}: {reason}",
    workaround="Nothing was changed. With --action skip or --action exec, -s, -d and -t name the parked tables "
    "to decide about; without all of these an unlock is for all tables that are parked at the lock's statement. "
    "shard-ddl-lock shows the tables.",
)
LOCK_RULE = _define(
    50106,
    "ddl-lock-rule",
    scope=Scope.INTERNAL,
    message="a step of lock {lock} was not taken because it would break a rule: {reason}",
    workaround="This is a bug: please report it with the output of shard-ddl-lock. Waiting rows are safe.",
)
LOCK_WAITS = _define(
    50107,
    "ddl-lock-waits",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="lock {lock} waits {waiting}, for {seconds} s now; its statement: {statement}",
    workaround="Run the statement at the sources that are missing, or see `dmctl shard-ddl-lock unlock --help`. "
    "Rows of the parked shard tables are not applied meanwhile; all others are.",
)
LOCK_KEEPS_STRUCTURE = _define(
    50108,
    "ddl-lock-keeps-structure",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="lock {lock}: its statement may change values in a way that no structure shows (a column is dropped and "
    "added, columns exchange their names), and shard table(s) {tables} have not reached it; their rows at the target "
    "would get values that they do not have at their sources: {statement}",
    workaround="Nothing was changed. Give the statement to these tables, too: then it runs. If they will never get it: "
    "`dmctl shard-ddl-lock unlock '{lock}' --force-remove` lets the tables that wait continue without it (if the "
    "target does not fit them then, the error states how to ALTER it); when "
    "query-status shows the task as synced, `dmctl compare {task} --repair` corrects their rows.",
)
VALUES_DRAWN = _define(
    50014,
    "ddl-draws-values",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} fills, in the rows of {table}, column "
    "{column} with values that each server generates itself: {statement}",
    workaround="The task has stopped right before the statement. "
    f"{_REPLACE[0].upper()}{_REPLACE[1:]}, which adds the column NULL and without a default; "
    f"{_REPAIR} copies the values. Or {COPY_AGAIN}.",
)
VALUES_OF_TIME = _define(
    50063,
    "ddl-fills-in-its-time",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} fills, in the rows of {table}, column {column} "
    "with the time at which it runs. The {shards} shard tables of {target} run it at different times, and the target "
    "would run it once: {statement}",
    workaround="The task has stopped right before the statement. At the first shard table, "
    f"{_REPLACE}, which adds the column NULL and without a default; at each other one, {_SKIP}. Then, "
    f"{_REPAIR} copies the values. If the statement changes a column instead of adding it: run it at all shard tables, "
    "then `dmctl stop-task {task}`, drop {target} at the target, and `dmctl start-task <file> --remove-meta`, which "
    "copies the history again.",
)
DATES_REPLACED = _define(
    50073,
    "ddl-may-replace-dates",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: rows of {target} have dates in column {column} that the sql_mode of the "
    "statement at {position} does not permit, such as 2026-02-30. If the server copies {table} to execute it, it "
    "replaces them by 0000-00-00, which the binary log does not show: {statement}",
    workaround="The task has stopped right before the statement. If it changes columns or indexes, "
    f"{_REPLACE}: the same statement, once for {{target}}, runs it there with the dates as they are. For a statement "
    f"that only copies the table, and for those of the other shard tables, {_SKIP}. Then, {_REPAIR} copies the dates "
    "that the source has now.",
)
ADDS_CASCADE = _define(
    50065,
    "ddl-adds-cascade",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} adds a foreign key to {table} that changes rows "
    "by cascade, which the binary log does not show: {statement}",
    workaround="The task has stopped right before the statement. At the source, drop the foreign key and add it "
    f"without CASCADE, SET NULL and SET DEFAULT. Then {_SKIP}, for the statement has no effect at the target, and "
    f"{_REPAIR} for rows that it has changed since.",
)
CHANGES_CASCADE = _define(
    50067,
    "ddl-changes-cascade",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} changes {table} or its foreign keys in a way "
    "that the derivation of cascades does not follow: {statement}",
    workaround=f"The task has stopped right before the statement. If it adds or widens columns, ALTER "
    f"the target table too. Then {COPY_AGAIN}.",
)
ADDS_REFERENCE = _define(
    50066,
    "ddl-adds-unmapped-reference",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} lets {column} refer to {to}, which has another "
    "mapping: at the target its rows refer to other rows or to none: {statement}",
    workaround="The task has stopped right before the statement; the rows at the target keep their values. If the "
    "column holds ids of that table, the task needs an entry of `references` (docs/reference/rules.md) and has to "
    "begin again: `dmctl stop-task {task}`, empty its target tables, add the entry to the task file, and `dmctl "
    "start-task <file> --remove-meta`, without -s. If nothing joins the "
    f"two columns at the target, {_SKIP}: the foreign key has no effect there.",
)
COPIED_LATER = _define(
    50064,
    "ddl-during-copy",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} ran while the history of {table} was copied. "
    "Rows that were copied after it are at the target already, and there it would remove or change them too: "
    "{statement}",
    workaround="The task has stopped right before the statement, and all copied rows stay. Copy this table again: "
    "update-task with a file that leaves {table} out, delete the rows of this shard table at the target (only those, "
    "if others are merged there), then update-task with the present file. The other tables keep their copies.",
)
OPERATOR_STATEMENT = _define(
    50015,
    "operator-statement-not-understood",
    scope=Scope.CONFIG,
    message="source {source}, task {task}: the operator's SQL for the statement at {position} is not understood: "
    "{given} (the statement: {statement})",
    workaround='Repeat the command with DDL of tables, named as at the source: `dmctl binlog replace|inject {task} "…" '
    "-s {source}`, or `dmctl binlog revert {task} -s {source}`.",
)
OPERATOR_STATEMENT_UNCLEAR = _define(
    50062,
    "operator-statement-unclear",
    scope=Scope.TARGET,
    message="source {source}, task {task}: it is unknown whether an operator's statement has run at the target: the "
    "process that sent it ended, and the definitions of the tables do not reveal it: {given} (for the statement at "
    "{position}: {statement})",
    workaround="Check the rows of its tables at the target. If the statement has run, give the list again without it: "
    '`dmctl binlog replace|inject {task} "…" -s {source}` with the other statements, or `dmctl binlog skip|revert '
    "{task} -s {source}` if there are no others. If it has not run, give the list again with a comment in the "
    "statement (/* again */): a statement with another text runs. Then `dmctl resume-task {task} -s {source}`.",
)
SWAP_UNCLEAR = _define(
    50016,
    "online-ddl-not-told",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: at {position} {table} is swapped by an online schema change, and the "
    "resulting change cannot be derived from the binlog: {reason}: {statement}",
    workaround='The task has stopped right before the swap. `dmctl binlog replace {task} "<statement>" -s {source}` '
    f"makes the change at the target, by an ALTER TABLE with names as at the source; or {_SKIP}. The structure of its "
    "rows is read from the source in any case.",
)
SCHEMA_DEFAULT_UNKNOWN = _define(
    50070,
    "ddl-schema-default-unknown",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} depends on the default character set that "
    "schema {schema} had then, which the relay log does not have: a later statement has changed it, or the schema is "
    "gone: {statement}",
    workaround="The task has stopped right before the statement. "
    f"{_REPLACE[0].upper()}{_REPLACE[1:]}: the same one with the former character set and collation in it (DEFAULT "
    "CHARACTER SET … COLLATE …).",
)
SETTING_NOT_AT_TARGET = _define(
    50071,
    "ddl-setting-not-at-target",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} was run under a session setting without which "
    "it means something else: {reason}: {statement}",
    workaround="The task has stopped right before the statement. "
    f"{_REPLACE[0].upper()}{_REPLACE[1:]}: one that means the same without the setting, with the types and values "
    "that SHOW CREATE TABLE prints at the source.",
)
STRUCTURE_DIFFERS = _define(
    50072,
    "ddl-structure-differs",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} has another effect on {table} at the source "
    "than the same one would have at the target: {there} at the source, {here} here: {statement}",
    workaround="The task has stopped right before the statement. "
    f"{_REPLACE[0].upper()}{_REPLACE[1:]}: one that writes out what SHOW CREATE TABLE prints at the source. The "
    "structure of its rows is read from the source then.",
)
ZONE_VARIES = _define(
    50017,
    "ddl-in-varying-zone",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: the statement at {position} was run in the source's own time zone "
    "(SYSTEM), and no single offset from UTC is right for all of it: {reason}: {statement}",
    workaround="The task has stopped right before the statement. "
    f"{_REPLACE}: the same change, with all times as at the offset at which the statement ran; for several "
    "statements, one text, with ';' between them. For values that were converted, "
    f"{_REPAIR}. A session with a time_zone of its own, such as '+00:00', does not have this problem.",
)
PREVIEW_STATEMENT = _define(
    50150,
    "preview-statement",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="this is no ALTER TABLE, CREATE INDEX or DROP INDEX, or it is not understood: {statement}",
    workaround="Give one such statement, in quotes and as a source would run it. Other statements have no dry run.",
)
PREVIEW_BARE_TABLE = _define(
    50151,
    "preview-table-without-schema",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="the schema of shard table {table} is missing",
    workaround="Name it as schema.table in the statement, or name with --table schema.table (repeatable) the "
    "shard tables that the statement is for.",
)
PREVIEW_TABLE_UNKNOWN = _define(
    50152,
    "preview-table-unknown",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{table} is none of the shard tables of task {task}{where}, which are: {known}",
    workaround="Name shard tables as at their sources, as schema.table: in the statement, or with --table. If the task "
    "has only begun, wait until query-status {task} shows that it runs.",
)
PREVIEW_BUSY = _define(
    50153,
    "preview-under-way",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="another dry run of task {task} is in progress",
    workaround="Try again when it has ended.",
    retryable=True,
)
SCHEMA_RUNNING = _define(
    50160,
    "schema-of-running-task",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="source {source}, task {task}: recorded structures cannot be changed while it runs, or is about to",
    workaround="pause-task {task} -s {source}, then repeat the command, then resume-task.",
)
SCHEMA_TABLE_UNKNOWN = _define(
    50161,
    "schema-table-unknown",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{table} is none of the shard tables that task {task} has at source {source}, which are: {known}",
    workaround="Name the shard table as at its source; for a table that only some sources have, name these (-s).",
)
SCHEMA_TOO_EARLY = _define(
    50162,
    "schema-not-replicating",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="source {source}, task {task}: {what}, so the recorded structure of {table} cannot be changed",
    workaround="Structures can be changed of tables whose history is copied, while the task is paused: resume-task, "
    "and look at query-status {task}.",
)
SCHEMA_STATEMENT = _define(
    50163,
    "schema-no-create-table",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="source {source}, task {task}: {reason}: {statement}",
    workaround="Give a file with one CREATE TABLE that lists the columns, as SHOW CREATE TABLE prints it. Nothing was "
    "changed.",
)
SCHEMA_REFUSED = _define(
    50164,
    "schema-refused-by-server",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="source {source}, task {task}: the target's server does not take the structure for {table}: {reason} "
    "(errno {errno}): {statement}",
    workaround="Correct the statement as the server reports, and repeat the command. Nothing was changed.",
)
SCHEMA_TABLE_WAITS = _define(
    50165,
    "schema-of-waiting-table",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="source {source}, task {task}: {table} is parked at the statement of lock {lock} at {position}, and its "
    "structure depends on that",
    workaround="Let the lock finish first: see shard-ddl-lock {task}, and shard-ddl-lock unlock '{lock}'.",
)
SCHEMA_KEY = _define(
    50166,
    "schema-of-another-key",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="source {source}, task {task}: the structure gives {table} another key ({now}) than it has ({before}), and "
    "{reason}: changes of one row would be lost or applied twice",
    workaround=f"Nothing was changed. Give a structure with the same key columns; or {COPY_AGAIN}.",
)
SCHEMA_STATEMENT_BEGUN = _define(
    50167,
    "schema-while-statement-runs",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="source {source}, task {task}: it is not known yet whether a statement that was sent to the target has run "
    "there, so the structure of {table} cannot be checked",
    workaround="resume-task, which finds out; pause-task when query-status {task} shows it past the statement.",
)
SCHEMA_TABLE_GONE = _define(
    50168,
    "schema-table-gone",
    scope=Scope.CONFIG,
    message="source {source}, task {task}: the structure of {table} is to be read from the {place}, but {name} does "
    "not exist there",
    workaround="Give the structure in a file: binlog-schema update {task} <database> <table> <file> -s {source}.",
)
SCHEMA_TABLE_CHANGES = _define(
    50169,
    "schema-table-changing",
    scope=Scope.SOURCE,
    message="source {source}, task {task}: {table} keeps changing its structure while it is read",
    workaround="Wait until its DDL is done, then try again.",
    retryable=True,
)
HELD_ROWS = _define(
    50170,
    "ddl-of-held-rows",
    scope=Scope.TARGET,
    message="source {source}, task {task}: {count} key(s) of tables that the statement at {position} changes are held "
    "in the quarantine, with rows of the structure before it: {statement}",
    workaround="Nothing is lost: the task has stopped before the statement. Correct the target and `dmctl quarantine "
    "retry {task}`; or give the held changes up (`dmctl quarantine drop {task} --all`) and copy their rows after the "
    "statement with "
    "`dmctl compare {task} --repair`. Then `dmctl resume-task {task} -s {source}`.",
)
STATEMENT_FILTERED = _define(
    50018,
    "statement-stopped-by-filter",
    scope=Scope.CONFIG,
    message="source {source}, task {task}: an event filter stops the task before a statement on {table} at {position}: "
    "{statement}",
    workaround=f"{_SKIP[0].upper()}{_SKIP[1:]}; or change the filter in the task file so that it lets the statement "
    f"through, and {_UPDATE}.",
)
OTHER_TASK_VALUES = _define(
    50074,
    "ddl-of-another-tasks-rows",
    scope=Scope.TARGET,
    message="source {source}, task {task}: the statement at {position} would change values of {target} that are not "
    "this task's alone: {others} merges {tables} into it, too: {statement}",
    workaround="The task has stopped right before the statement; no value has changed. Execute the same statement at "
    "all shard tables of the other task, and wait until it has stopped before it, too (`dmctl query-status`). Let it "
    f"run here: {_REPLACE}; here the same one. Then, in the other task, for each table that stopped it: `dmctl "
    "binlog-schema update <other task> <database> <table> --from-source -s <source>`, which is not needed for tables "
    "that wait at a lock; and `dmctl binlog skip <other task>`. If the other task has ended for good: `dmctl stop-task "
    f"<other task> --remove-meta`, then {_RESUME}.",
)
