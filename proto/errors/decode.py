"""Binlog decoding errors: codes 21001–21999."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.snapshot import COPY_AGAIN
from shardmerge.proto.errors.spec import Scope, define

_define = partial(define, error_class="decode")

MALFORMED_EVENT = _define(
    21001,
    "malformed-event",
    scope=Scope.SOURCE,
    message="source {source}: event ending at binlog position {position} cannot be read: {reason}",
    workaround="Nothing of this event was applied. The relay log or the source's binlog is damaged, or written by "
    "a server this version does not know: compare with mysqlbinlog at that position. If the source's file is sound: "
    "stop the worker, move the relay directory away, start the worker, and `dmctl resume-task {task} -s {source}`: the "
    "relay log is fetched again. Do not delete the directory before the task has caught up: what the source has "
    "purged is nowhere else.",
)
BAD_CHECKSUM = _define(
    21002,
    "event-checksum-wrong",
    scope=Scope.INTERNAL,
    message="source {source}: event ending at binlog position {position}: its CRC32 does not match its bytes",
    workaround="Nothing of this event was applied. Check the disk of the relay log. Then stop the worker, move the "
    "relay "
    "directory away, start the worker, and `dmctl resume-task {task} -s {source}`: the relay log is fetched again. Do "
    "not delete the directory before the task has caught up: what the source has purged is nowhere else.",
)
UNSUPPORTED_EVENT = _define(
    21003,
    "unsupported-event",
    scope=Scope.SOURCE,
    message="source {source}: event {event} ending at binlog position {position} may change rows and cannot be "
    "decoded: {reason}",
    workaround=f"{{way_out}} To {COPY_AGAIN}.",
)
MISSING_COLUMN = _define(
    21004,
    "row-image-incomplete",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table}, event ending at binlog position {position}: the row image lacks "
    "column {column}",
    workaround="Set binlog_row_image=FULL at the source (and let its clients reconnect). Rows written before that "
    f"cannot be replicated: {COPY_AGAIN}.",
)
STRUCTURE_MISMATCH = _define(
    21005,
    "table-structure-mismatch",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table}, event ending at binlog position {position}: the event does not fit "
    "the known structure of the table: {reason}",
    workaround="Nothing of this event was applied. The recorded structure is older or newer than the rows: "
    "`dmctl binlog-schema update {task} {schema} {table} <file> -s {source}`, where the file has the CREATE TABLE "
    "as it was, then `dmctl resume-task {task} -s {source}`. If it is not known, "
    f"{COPY_AGAIN}.",
)
UNSUPPORTED_TYPE = _define(
    21006,
    "unsupported-column-type",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table}.{column} of type {type}: {reason}",
    workaround="Leave the table out of the task by the block-allow-list, or change the column's type at the source.",
)
ROLLED_BACK_ROWS = _define(
    21007,
    "rolled-back-rows",
    scope=Scope.SOURCE,
    message="source {source}: the transaction that holds binlog position {position} changed {schema}.{table}, then "
    "ran {statement}: the binlog does not show which of its rows were kept",
    workaround="The transaction was too large to be held, changed a table that cannot roll back, or rolled back to "
    f"a savepoint. Let such tables use a transactional engine, and {COPY_AGAIN}.",
)
PREPARED_ROWS = _define(
    21008,
    "prepared-rows",
    scope=Scope.SOURCE,
    message="source {source}: the XA transaction prepared at binlog position {position} changed {schema}.{table}; "
    "its commit or rollback comes later in the binlog",
    workaround="Two-phase XA transactions on replicated tables are not supported in this version. Write the table by "
    "plain "
    f"transactions, and {COPY_AGAIN}. Or leave the table out of the task (update-task): its rows at the target stay, "
    "and no longer follow.",
)
UNREADABLE_VALUE = _define(
    21009,
    "unreadable-value",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table}.{column}: value {value} is none of type {type}{at}",
    workaround="Nothing of this row was written. Look at the row at the source; if it is sound, the table's structure "
    "was changed while it was read: `dmctl resume-task {task} -s {source}`.",
)
NO_CHARACTER = _define(
    21010,
    "bytes-without-character",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table}.{column}: the bytes {code} (hexadecimal) are no character of {charset}; "
    "the value begins with {value}{at}",
    workaround="Nothing of this row was written. The target stores text as UTF-8 only, and a client that reads this "
    "value at the source sees a question mark or nothing for these bytes. Correct the row at the source. If it is read "
    "as history, `dmctl resume-task {task} -s {source}`. If the message names a place in the binlog, which keeps the "
    "old bytes: `dmctl binlog skip {task} -s {source} -b <position>` leaves the rows of that event out and records "
    "them; then compare and repair the table.",
)
SECOND_CODE = _define(
    21011,
    "key-with-second-code",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table}.{column}: {charset} has two codes of a character in key {value} "
    "(hexadecimal); as UTF-8 it is the same key as {common}{at}",
    workaround="Nothing of this row was written. The target stores text as UTF-8 only, where both keys would be one. "
    "Change the key to {common} at the source. If it is read as history, `dmctl resume-task {task} -s {source}`. If "
    "the message names a place in the binlog, which keeps the old bytes: `dmctl binlog skip {task} -s {source} -b "
    "<position>` leaves the rows of that event out and records them; then compare and repair the table.",
)
INFLATED_EVENT_TOO_LARGE = _define(
    21012,
    "inflated-event-too-large",
    scope=Scope.SOURCE,
    message="source {source}: event ending at binlog position {position} has {size} bytes when it is decompressed, "
    "more than the limit of {limit} MiB (max-inflated-event-mib)",
    workaround="Nothing of this event was applied. Look at it with mysqlbinlog at that position. If its statement or "
    "its rows are really so large: set max-inflated-event-mib to more in the files of the workers, restart them, and "
    "`dmctl resume-task {task} -s {source}`; each lane that reads the event needs that memory. A read into Spark has "
    "the option of the same name.",
)
