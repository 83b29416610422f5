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
    message="option {option} of mysql-shards: {reason}",
    workaround="Correct the option; docs/how-to/read-into-spark.md lists all of them.",
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
    message="source {source}: {schema}.{table} cannot be read at one position: {reason}",
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
