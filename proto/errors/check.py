"""Pre-check errors: codes 12001–12999; those about rows are in check_data.py, those about resources in
check_room.py."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="check")

_REPLACE_KEY = (
    "ALTER TABLE … ADD FOREIGN KEY … without ON DELETE and ON UPDATE, then ALTER TABLE … DROP FOREIGN KEY …, in this "
    "order, so that no row without a parent is added between them; the application must then change such rows by itself"
)

UNSUPPORTED_COLUMN = _define(
    12010,
    "column-type-unsupported",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table}.{column} has type {type}: {reason}",
    workaround="Change the column's type at the source, or leave the table out with the block-allow list.",
)
UNSUPPORTED_TABLE = _define(
    12011,
    "table-unsupported",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table} cannot be merged: {reason}",
    workaround="Change the table at the source, or exclude it in the block-allow list.",
)
SOURCE_VERSION = _define(
    12001,
    "source-version-unsupported",
    scope=Scope.SOURCE,
    message="source {source}: server version {version} is not supported",
    workaround="Use MySQL 5.7 or newer, or MariaDB 10.2 or newer.",
)
UNTESTED_VERSION = _define(
    12002,
    "source-version-untested",
    scope=Scope.SOURCE,
    level=Level.LOW,
    message="source {source}: server version {version} is newer than what was tested",
    workaround="Nothing to do; compare the target after the copy.",
)
SOURCE_CONNECTION = _define(
    12003,
    "source-connection",
    scope=Scope.SOURCE,
    message="source {source}: no check could run: {reason}",
    workaround="{way_out}",
)
FLAVOR = _define(
    12004,
    "source-flavor",
    scope=Scope.CONFIG,
    message="source {source}: `flavor` is {wanted}, but the server is {version}",
    workaround="Set `flavor: {found}` (or leave it out) in the source's file.",
)
SERVER_ID = _define(
    12005,
    "source-server-id",
    scope=Scope.SOURCE,
    message="source {source}: {reason}",
    workaround="{way_out}",
)
BINLOG_OFF = _define(
    12006,
    "source-binlog-off",
    scope=Scope.SOURCE,
    message="source {source}: the server writes no binary log",
    workaround="Set log_bin=mysql-bin, binlog_format=ROW and binlog_row_image=FULL in the source's configuration "
    "file and restart it.",
)
BINLOG_FORMAT = _define(
    12007,
    "source-binlog-format",
    scope=Scope.SOURCE,
    message="source {source}: binlog_format is {value}; changes of rows are only in the log under ROW",
    workaround="SET GLOBAL binlog_format = 'ROW'; open sessions keep the old format: restart the applications "
    "(or kill their connections). Keep it with binlog_format=ROW in the server's configuration file.",
)
BINLOG_ROW_IMAGE = _define(
    12008,
    "source-binlog-row-image",
    scope=Scope.SOURCE,
    message="source {source}: {variable} is {value}; row events do not hold every column",
    workaround="SET GLOBAL {variable} = '{needed}'; open sessions keep the old value: restart the applications "
    "(or kill their connections). Keep it in the server's configuration file.",
)
REPLICATED_CHANGES = _define(
    12009,
    "source-replica-changes-not-logged",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: {variable} is OFF; if the source is itself a replica, what it replicates is missing from "
    "its binary log",
    workaround="Set {variable}=ON in the source server's configuration file and restart it, or take the replica's own "
    "source as the source. A server that is no replica may ignore this.",
)
NO_KEY = _define(
    12012,
    "table-without-key",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: without a primary or unique NOT NULL key: {tables}",
    workaround="They are copied as one chunk and kept by comparing whole rows, which is slow for large tables; all "
    "their changes go through one lane, equal rows are distinguished only by their number, and compare "
    "names none of their rows: it compares them as a whole. Add a primary key at the source.",
)
CASCADES = _define(
    12013,
    "foreign-key-cascades",
    scope=Scope.SOURCE,
    message="source {source}: a foreign key changes rows by cascade, which the binary log does not show: {tables}",
    workaround="`cascades: derive` in the task file lets the task derive these rows "
    f"(docs/explanation/cascades.md). Otherwise, at the source, for each of these keys: {_REPLACE_KEY}; or leave the "
    "table out with the block-allow list.",
)
CASCADES_INEXACT = _define(
    12093,
    "cascade-not-derivable",
    scope=Scope.SOURCE,
    message="source {source}: the rows that these foreign keys change by cascade cannot be derived: {keys}",
    workaround=f"Change what the message names: in the task file, or the foreign key at the source ({_REPLACE_KEY}); "
    "or leave the table out with the block-allow list.",
)
NOT_TRANSACTIONAL = _define(
    12014,
    "source-table-not-transactional",
    scope=Scope.SOURCE,
    message="source {source}: an engine without transactions cannot be read consistently: {tables}",
    workaround="ALTER TABLE … ENGINE=InnoDB at the source, or leave the table out with the block-allow list.",
)
NO_TABLES = _define(
    12015,
    "no-table-matches",
    scope=Scope.CONFIG,
    message="source {source}: the block-allow list lets none of the {count} tables through that user {user} can see",
    workaround="Correct the block-allow list, or grant: {grant} If the tables of this source are to be created later: "
    "`ignore-checking-items: [table_schema]` in the task file, which omits the item for every source; each table joins "
    "the task at its CREATE TABLE.",
)
RULES = _define(
    12016,
    "rules-do-not-fit",
    scope=Scope.CONFIG,
    message="{reason}",
    workaround="{way_out}",
)
PRIVILEGE = _define(
    12017,
    "privilege-missing",
    scope=Scope.SOURCE,
    message="{server}: user {user} lacks {missing}",
    workaround="{grant}",
)
PRIVILEGE_FOR_DDL = _define(
    12028,
    "privilege-missing-for-ddl",
    scope=Scope.TARGET,
    level=Level.MEDIUM,
    message="target: user {user} lacks {missing}: rows are copied and followed, but the task stops at the first DDL of "
    "a shard table, and secondary indexes that are added after the load are not created",
    workaround="{grant}",
)
HIDDEN_TABLES = _define(
    12018,
    "tables-may-be-hidden",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: user {user} may only read single tables of {schemas}: other tables of these schemas are "
    "invisible to it and would be missing without a warning",
    workaround="{grant}",
)
ONLINE_DDL_TABLES = _define(
    12019,
    "online-ddl-tables",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: {tables} are named like tables that a tool for online schema changes creates, and are "
    "left out",
    workaround="If a change is in progress: the structure after its swap is read from the source when the task "
    "reaches it, and the task stops where that does not show everything (50016); to be sure, start when it has ended. "
    "If they are ordinary tables: change shadow-table-rules and trash-table-rules, or set online-ddl: false.",
)
ID_RANGE = _define(
    12020,
    "id-out-of-range",
    scope=Scope.SOURCE,
    message="source {source}: `partition id` leaves {bits} bits for {schema}.{table}.{column} (0 to {highest}), which "
    "holds {low} to {high}",
    workaround='Widen the original id by giving "" for an unused part of the mapping\'s arguments, or leave the table '
    "out of the task.",
)
ID_COLLISION_RISK = _define(
    12021,
    "auto-increment-may-collide",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: {count} tables with AUTO_INCREMENT keys go to {target} without a column mapping of the "
    "key: {tables}",
    workaround="If the applications do not keep the ids apart themselves, map the key with `partition id`: the task "
    "stops at the first id that two tables use.",
)
TARGET_CONNECTION = _define(
    12030,
    "target-connection",
    scope=Scope.TARGET,
    message="the target cannot be checked: {reason}",
    workaround="{way_out}",
)
SESSION_PROXIED = _define(
    12120,
    "target-session-proxied",
    scope=Scope.TARGET,
    message="a proxy at {host}:{port} does not give a session one connection of the target: the connection number of "
    "the login is {login}, that of a statement is {statement}",
    workaround="Locks, transactions and settings of a session belong to one connection of the server. Connect to the "
    "server itself, or to a proxy that forwards TCP connections (HAProxy with `mode tcp`).",
)
TARGET_TABLE = _define(
    12031,
    "target-table",
    scope=Scope.TARGET,
    message="{reason}",
    workaround="{way_out}",
)
TARGET_COLLATION = _define(
    12032,
    "target-lacks-collation",
    scope=Scope.TARGET,
    level=Level.LOW,
    message="the target lacks collations of {table}: if source {source} creates {target}, which the first source that "
    "copies does, it gets {replaced}",
    workaround="Nothing to do: no text changes and no two rows become one; only comparing and sorting at the target "
    "may distinguish more texts. To choose the collations create {target} by hand before the task starts.",
)
TARGET_COLLATION_STRICT = _define(
    12103,
    "target-lacks-collation-strict",
    scope=Scope.TARGET,
    message="the target lacks collations of the tables that {target} will be made from, and the task has "
    "`collation_compatible: strict`; `loose` creates {target} with {replaced}",
    workaround="Write `collation_compatible: loose`: no text changes and no two rows become one. Or create {target} by "
    "hand before the task starts, or convert the columns at the source.",
)
TARGET_CHARSET = _define(
    12033,
    "target-lacks-charset",
    scope=Scope.TARGET,
    message="the target does not know the character set(s) {charsets} of shard tables of {target}",
    workaround="Convert their columns at the source (utf8mb4 holds all texts), or leave the tables out by the "
    "block-allow-list.",
)
TARGET_TYPE = _define(
    12099,
    "target-lacks-type",
    scope=Scope.TARGET,
    message="the target has no type that holds the values of shard tables of {target} exactly: {columns}",
    workaround="Leave the columns out of the merged table with a `transforms` rule, convert them at the source, or "
    "leave the tables out by the block-allow-list.",
)
POSITION_GONE = _define(
    12040,
    "start-position-gone",
    scope=Scope.SOURCE,
    message="source {source}: {key} {position} is not in the source's binary logs ({first} to {last}): {reason}",
    workaround="A later position leaves out the changes in between: give one only if the target holds everything up to "
    "it. Else "
    "copy the tables with task-mode: all.",
)
CHECK_BROKEN = _define(
    12050,
    "check-failed-to-run",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="{server}: this check could not run: {reason}",
    workaround="{way_out}",
)
BINLOG_UNREADABLE = _define(
    12041,
    "source-binlog-option-unsupported",
    scope=Scope.SOURCE,
    message="source {source}: {variable} is {value}; the events it makes cannot be read yet",
    workaround="SET GLOBAL {variable} = {needed}; keep it in the server's configuration file; open sessions keep "
    "the old value: restart the applications (or kill their connections).",
)
BINLOG_FILTERED = _define(
    12042,
    "source-binlog-filtered",
    scope=Scope.SOURCE,
    message="source {source}: {option} keeps changes of {schemas} out of the binary log",
    workaround="Remove the option from the source server's configuration file and restart it, or leave the schemas out "
    "with the block-allow list.",
)
TABLES_CHANGE = _define(
    12051,
    "tables-keep-changing",
    scope=Scope.SOURCE,
    message="source {source}: its tables were altered again and again while their structures were read",
    workaround="Nothing has begun. The worker tries again by itself.",
    retryable=True,
)
REFERENCE_UNMAPPED = _define(
    12085,
    "reference-not-mapped",
    scope=Scope.CONFIG,
    message="source {source}: {column} refers to {to} by a foreign key, but has another mapping: rows would refer to "
    "other rows or to none at the target: {tables}",
    workaround="Add to the task file, then repeat the command:\nreferences:\n- {rule}",
)
REFERENCE_TABLE = _define(
    12086,
    "referred-shard-table-missing",
    scope=Scope.CONFIG,
    message="source {source}: reference {reference}: the shard tables that these refer to are not at the source: "
    "{tables}",
    workaround="Name the right ones: add shard-table (for example users_*, where * is the digits at the end of "
    "the table's name) or shard-schema to the entry of `references`. Nothing to do if these tables are still created.",
)
REFERENCE_OUTSIDE = _define(
    12087,
    "reference-outside-the-task",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: foreign keys refer to tables that take no part in the task: {keys}",
    workaround="The values stay as they are. Let the tables through in the block-allow list, and add an entry of "
    "`references` for each column to a mapped one; or have the rows at the target by other means, before an "
    "application joins them there.",
)
REFERENCE_CANDIDATES = _define(
    12088,
    "reference-candidates",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="source {source}: by name and type, these columns may refer to a mapped column, but are not mapped: "
    "{columns}",
    workaround="If they do, their rows would refer to other rows or to none at the target. Add those that do to the "
    "task file:\nreferences:\n{rules}\nIf none of them does: `references: none`; if only some do not, add "
    "`references` to ignore-checking-items.",
)
REFERENCE_COLUMN = _define(
    12089,
    "reference-without-column",
    scope=Scope.CONFIG,
    message="source {source}: reference {reference} has no effect: {reason}",
    workaround="Correct `from` and `to` of the entry of `references`: names of target tables, as the routes give them, "
    "and of their columns.",
)
REFERENCE_TO_UNMAPPED = _define(
    12096,
    "referred-column-not-mapped",
    scope=Scope.CONFIG,
    message="source {source}: reference {reference} has no effect, because no column mapping of this source maps "
    "{column} of: {tables}",
    workaround="Add a column mapping for these tables to `column-mappings`, with `target-column: {column}`, and its "
    "name to `column-mapping-rules` of {source}; or correct `to` of the entry of `references`. If the column is mapped "
    "at other sources only: add `references` to ignore-checking-items.",
)
