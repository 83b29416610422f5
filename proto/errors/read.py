"""Errors of reading shard tables into Spark: codes 35001–35999."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="read", level=Level.MEDIUM)

_LOAD_AGAIN = "call load() again: it reads the tables at a later position"

OPTION = _define(
    35001,
    "read-option",
    scope=Scope.CONFIG,
    message="option {option} of the Spark data source: {reason}",
    workaround="Correct the option. docs/how-to/read-into-spark.md lists those of mysql-shards, "
    "docs/how-to/stream-into-spark.md those of mysql-cdc.",
)
NO_TABLE = _define(
    35002,
    "read-no-table",
    scope=Scope.CONFIG,
    message="source {source} has no table that {wanted} selects and that the account may see",
    workaround="Correct the patterns, grant SELECT on the tables to the account, or leave the source out.",
)
TABLES_DIFFER = _define(
    35003,
    "read-tables-differ",
    scope=Scope.SOURCE,
    message="column {column} of {schema}.{table} at source {source} does not fit the DataFrame: {reason}",
    workaround="Select the columns that all tables have with option columns, or leave the table out.",
)
TABLE_REFUSED = _define(
    35004,
    "read-table-refused",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table} cannot be read exactly: {reason}",
    workaround="Leave the table out of the patterns, or change what the message names.",
)
SERVER_REFUSED = _define(
    35005,
    "read-server-refused",
    scope=Scope.SOURCE,
    message="source {source}: {variable} is {value}, but the state at one position can be computed only with {needed}",
    workaround="Set the variable at the source (`SET GLOBAL`), wait until each session that writes has connected "
    "again, and call load() again.",
)
STATEMENT = _define(
    35006,
    "read-statement",
    scope=Scope.SOURCE,
    message="source {source}: the state at {position}, which the DataFrame has, cannot be computed any more: a "
    "statement after it, at {at}, changes or may change the tables: {statement}",
    workaround=f"When the statement has ended, {_LOAD_AGAIN}.",
)
XA = _define(
    35007,
    "read-xa",
    scope=Scope.SOURCE,
    message="source {source}: the state at {position}, which the DataFrame has, cannot be computed: a two-phase (XA) "
    "transaction with unknown rows was in progress there, as {at} shows",
    workaround=f"While no XA transaction is prepared (`XA RECOVER` shows none), {_LOAD_AGAIN}.",
)
BINLOG_GONE = _define(
    35008,
    "read-binlog-gone",
    scope=Scope.SOURCE,
    message="source {source}: the state at {position}, which the DataFrame has, cannot be computed any more: {reason}",
    workaround=f"Keep the source's binlog for longer than a DataFrame is used (binlog_expire_logs_seconds or "
    f"expire_logs_days), cache or write a DataFrame that is needed later, and {_LOAD_AGAIN}.",
)
ZERO_DATE = _define(
    35009,
    "read-zero-date",
    scope=Scope.SOURCE,
    message="source {source}: column {column} of {schema}.{table} has {value}, which is no date in Spark",
    workaround="Set option zero-dates to null, which reads such dates as NULL, or leave the column out with option "
    "columns.",
)
TOO_MANY_CHANGES = _define(
    35010,
    "read-too-many-changes",
    scope=Scope.SOURCE,
    message="source {source}: the rows that were changed after {position}, which the DataFrame has, exceed "
    "max-undo-mib = {limit}",
    workaround=f"Raise the option, read the tables with more executors at once, or {_LOAD_AGAIN}.",
)
STRUCTURE_MOVES = _define(
    35011,
    "read-structure-moves",
    scope=Scope.SOURCE,
    message="source {source}: tables or their structures changed in each of {attempts} attempts to read them at one "
    "position",
    workaround="Call load() when the DDL statements have ended.",
    retryable=True,
)
VALUE = _define(
    35012,
    "read-value",
    scope=Scope.SOURCE,
    message="source {source}: column {column} ({type}) of {schema}.{table} has a value that is none of {wanted}: "
    "{value}",
    workaround="Leave the column out with option columns, and report the value: it should not exist.",
)
POSITION_NEEDED = _define(
    35013,
    "read-position-needed",
    scope=Scope.CONFIG,
    message="over Spark Connect a DataFrame of mysql-shards needs fixed positions: Spark may plan it again for each "
    "action, and twice within one action, each time at a later position",
    workaround="Load it with load_fixed(reader) of shardmerge.worker.datasource, in place of reader.load(). "
    "docs/how-to/spark-connect.md describes it.",
)
PASSWORD_IN_PLAN = _define(
    35014,
    "read-password-in-plan",
    scope=Scope.CONFIG,
    message="source {source}: over Spark Connect the options of a DataFrame are in the server's event log and on its "
    "web page, so that the text of a password is refused",
    workaround="Use password-file or password-env, which are read on the server and its executors. If the password was "
    "a real one, change it: the request may be in the event log.",
)

_NEW_CHECKPOINT = "start a query with a new checkpoint location and start = snapshot, which reads the tables again"

STREAM_OFFSET = _define(
    35020,
    "read-stream-offset",
    scope=Scope.CONFIG,
    message="the offset of the query's checkpoint cannot be used: {reason}",
    workaround=f"Use the options and the program version with which the checkpoint was written, or {_NEW_CHECKPOINT}.",
)
STREAM_LOG_GONE = _define(
    35021,
    "read-stream-log-gone",
    scope=Scope.SOURCE,
    message="source {source}: the changes after {position} cannot be read any more: {reason}",
    workaround="Keep the source's binlog for longer than a query may be stopped (binlog_expire_logs_seconds or "
    f"expire_logs_days), and {_NEW_CHECKPOINT}.",
)
STREAM_OTHER_SERVER = _define(
    35022,
    "read-stream-other-server",
    scope=Scope.SOURCE,
    message="source {source}: the checkpoint is at {position} of server {known}, but server {found} answers at the "
    "source's address",
    workaround="Connect the source to the server of the checkpoint. After a fail-over, start a query with a new "
    "checkpoint location, and with start = the GTID set up to which the old query has delivered.",
)
STREAM_SCHEMA = _define(
    35023,
    "read-stream-schema",
    scope=Scope.SOURCE,
    message="source {source}: from {position} on, column {column} of {schema}.{table} does not fit the stream's "
    "schema: {reason}",
    workaround="Start the query again from the same checkpoint with another load(): the stream then has the tables' "
    "present columns. With option columns, add or remove the column there.",
)
STREAM_DDL = _define(
    35024,
    "read-stream-ddl",
    scope=Scope.SOURCE,
    message="source {source}: the stream stops before a statement that changes its tables, at {position}: {statement}",
    workaround="Start the query again from the same checkpoint with option ddl = event: the statement arrives as a row "
    "with op = ddl, and the changes after it follow.",
)
STREAM_STRUCTURE = _define(
    35025,
    "read-stream-structure",
    scope=Scope.SOURCE,
    message="source {source}: rows of {schema}.{table} at {position} cannot be decoded: {reason}",
    workaround=f"Start a query with a new checkpoint location after the statement, or {_NEW_CHECKPOINT}.",
)
STREAM_STATEMENT = _define(
    35026,
    "read-stream-statement",
    scope=Scope.SOURCE,
    message="source {source}: the statement at {position} may change rows of the tables, and the binlog does not have "
    "these rows: {statement}",
    workaround=f"Set binlog_format = ROW for each session that writes, and {_NEW_CHECKPOINT}. If the statement does "
    "not concern the tables, start a query with a new checkpoint location at the position after it.",
)
STREAM_SERVER = _define(
    35027,
    "read-stream-server",
    scope=Scope.SOURCE,
    message="source {source}: {variable} is {value}, but a stream of changes needs {needed}",
    workaround="Set the variable at the source (`SET GLOBAL`), wait until each session that writes has connected "
    "again, and start the query again.",
)
STREAM_START = _define(
    35028,
    "read-stream-start",
    scope=Scope.SOURCE,
    message="source {source}: the stream cannot start at {start}: {reason}",
    workaround="Give another start, or use start = snapshot, which needs no earlier binlog.",
)
STREAM_XA = _define(
    35029,
    "read-stream-xa",
    scope=Scope.SOURCE,
    message="source {source}: {position} belongs to a two-phase (XA) transaction whose rows the stream cannot deliver: "
    "{reason}",
    workaround=f"While no XA transaction is prepared (`XA RECOVER` shows none), {_NEW_CHECKPOINT}.",
)
STREAM_SNAPSHOT = _define(
    35030,
    "read-stream-snapshot",
    scope=Scope.SOURCE,
    message="source {source}: the history at {position} cannot be read any more: {reason}",
    workaround=f"When the statement, if one is named, has ended, {_NEW_CHECKPOINT}.",
)
