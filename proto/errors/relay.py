"""Source connection and relay errors: codes 20001–20999."""

from __future__ import annotations

from functools import partial

from proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="relay")

SOURCE_LOG_GONE = _define(
    20001,
    "source-binlog-unavailable",
    scope=Scope.SOURCE,
    message="source {source}: the server cannot send its binlog from file {file}, position {pos}: {reason} "
    "(errno {errno})",
    workaround="Compare with SHOW BINARY LOGS at the source. If the file was purged, what it held cannot be fetched "
    "any more: restore the file, or stop the source's tasks, start them with a new snapshot (start-task "
    "--remove-meta) and keep binlogs longer (expire_logs_days, binlog_expire_logs_seconds). If the position lies "
    "behind the file's end, the source lost its latest writes: the same holds. If another replica uses the same "
    "server-id, give this source's file another one.",
)
DUMP_ENDED = _define(
    20002,
    "binlog-stream-ended",
    scope=Scope.SOURCE,
    level=Level.LOW,
    message="source {source}: the server ended the binlog stream at {position}: {reason}",
    workaround="Nothing to do: it connects again by itself.",
    retryable=True,
)
BAD_PACKET = _define(
    20003,
    "binlog-stream-garbled",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: the binlog stream is garbled after {position}: {reason}",
    workaround="Nothing was stored; it connects and fetches again by itself. If it repeats, look at the network or "
    "the proxy between worker and source.",
    retryable=True,
)
EVENT_CHECKSUM = _define(
    20004,
    "binlog-event-damaged",
    scope=Scope.SOURCE,
    message="source {source}: event behind {position} (type {type}, {size} bytes) does not match its CRC32",
    workaround="Nothing was stored; it fetches the event again by itself. If it repeats, the source's binlog file is "
    "damaged: check it with mysqlbinlog --verify-binlog-checksum.",
    retryable=True,
)
EVENT_OVERLAP = _define(
    20005,
    "binlog-event-repeated",
    scope=Scope.SOURCE,
    message="source {source}: event that ends at binlog byte {pos} begins before {position}, where the stream "
    "already was",
    workaround="Nothing was stored twice. Check that the address of the source leads to one server (no load "
    "balancer), then resume-task.",
)
GROUP_BROKEN = _define(
    20006,
    "binlog-group-broken",
    scope=Scope.SOURCE,
    message="source {source}: event of type {type} behind {position} does not belong where it stands: {reason}",
    workaround="The transaction that holds it was not stored. Look at the binlog there with mysqlbinlog; a server "
    "that writes such binlogs is not supported in this version.",
)
SOURCE_CHANGED = _define(
    20007,
    "source-is-another-server",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} is now {found}, the relay log was written from {expected}",
    workaround="Positions of one server mean nothing at another. Point the source's file to the old server, or stop "
    "its tasks, delete the relay directory {directory} and start the tasks with a new snapshot.",
)
SOURCE_LOG_RESET = _define(
    20008,
    "source-binlog-began-anew",
    scope=Scope.SOURCE,
    message="source {source}: the relay log holds the binlog up to {position}, but the source is at {found}: {reason}",
    workaround="The source's binlog is no longer the one that was read: RESET MASTER, a restored backup, or a crash "
    "that took its latest writes. What was applied beyond it may exist nowhere at the source. Check that the address "
    "leads to the right server, then stop the source's tasks and start them with a new snapshot (start-task "
    "--remove-meta).",
)
GROUP_TOO_LARGE = _define(
    20009,
    "undone-transaction-too-large",
    scope=Scope.SOURCE,
    message="source {source}: the transaction behind {position} was rolled back or only prepared and has {size} "
    "bytes, more than the {limit} that can be judged as a whole",
    workaround="Nothing of it was applied. Look at it with mysqlbinlog; to go on without it, start the task with a "
    "new snapshot.",
)
RELAY_CRASHED = _define(
    20010,
    "relay-reader-failed",
    scope=Scope.INTERNAL,
    message="source {source}: the relay reader stopped behind {position}: {reason}",
    workaround="This is a defect: report it with the worker's log. What was published is whole; resume-task "
    "tries again.",
)
DISK_FULL = _define(
    20020,
    "relay-disk-full",
    scope=Scope.INTERNAL,
    message="source {source}: no space left for the relay log in {directory}",
    workaround="Free space on that file system, or let the relay purge more (purge: in the source's file); it goes "
    "on by itself.",
    retryable=True,
)
DISK_FAILED = _define(
    20021,
    "relay-disk-failed",
    scope=Scope.INTERNAL,
    message="source {source}: {path}: {reason} (errno {errno})",
    workaround="Check the file system and its permissions, then resume-task.",
)
RELAY_DAMAGED = _define(
    20022,
    "relay-log-damaged",
    scope=Scope.INTERNAL,
    message="source {source}: {path} is damaged: {reason}",
    workaround="Stop the worker, delete the directory {directory} and start it again: the relay log is fetched anew "
    "from the tasks' checkpoints.",
)
POSITION_BEFORE_RELAY = _define(
    20030,
    "position-before-relay-log",
    scope=Scope.SOURCE,
    message="source {source}: {position} lies before the relay log, which begins at {first}",
    workaround="Resume the task: the relay log begins anew at the lowest position that a task needs, if the source "
    "still has it.",
)
POSITION_INSIDE_GROUP = _define(
    20031,
    "position-inside-transaction",
    scope=Scope.SOURCE,
    message="source {source}: {position} lies inside a transaction, which goes from {start} to {end}",
    workaround="Give the start or the end of that transaction as the position.",
)
LOCATE_TIMEOUT = _define(
    20032,
    "position-not-reached",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: the relay log is at {head} and did not reach {position} within {seconds} s",
    workaround="Check the relay's status in query-status; it is tried again by itself.",
    retryable=True,
)
OFFSET_PURGED = _define(
    20033,
    "relay-offset-purged",
    scope=Scope.INTERNAL,
    message="source {source}: relay offset {offset} was purged; the relay log begins at {first}",
    workaround="Resume the task: the relay log begins anew at its checkpoint's position, if the source still has it.",
)
RELAY_RESTARTED = _define(
    20034,
    "relay-log-began-anew",
    scope=Scope.INTERNAL,
    level=Level.LOW,
    message="source {source}: the relay log {relay_id} was replaced by one that begins earlier",
    workaround="Nothing to do: the task finds its place in the new one by its position.",
    retryable=True,
)
OFFSET_NOT_GROUP_END = _define(
    20035,
    "relay-offset-invalid",
    scope=Scope.INTERNAL,
    message="source {source}: relay offset {offset} is no end of a transaction in relay log {relay_id}",
    workaround="The checkpoint does not belong to this relay log. Resume the task; if it repeats, start it again "
    "with a new snapshot.",
)
RELAY_NOT_BEGUN = _define(
    20036,
    "relay-log-empty",
    scope=Scope.INTERNAL,
    level=Level.LOW,
    message="source {source}: the relay log has not begun: no task has said from where",
    workaround="Nothing to do: the first task of the source begins it.",
    retryable=True,
)
WAIT_INTERRUPTED = _define(
    20037,
    "relay-wait-interrupted",
    scope=Scope.INTERNAL,
    level=Level.LOW,
    message="source {source}: waiting for {position} was interrupted by a stop",
    workaround="Nothing to do.",
    retryable=True,
)
POSITION_WITHOUT_FILE = _define(
    20038,
    "position-without-file",
    scope=Scope.CONFIG,
    message="source {source}: a relay log needs a binlog file and a position to begin, got {given}",
    workaround="Give binlog-name and binlog-pos (SHOW BINLOG EVENTS, or BINLOG_GTID_POS() on MariaDB, tell which "
    "belong to a GTID set).",
)

ACCESS_DENIED = _define(
    20101,
    "source-access-denied",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} does not let user {user} in: {reason} (errno {errno})",
    workaround="Check user, password and the host part of the account at the source, correct the source's "
    "file, then operate-source create again (or resume-task).",
)
SOURCE_LOST = _define(
    20102,
    "source-unreachable",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port}: {reason} (errno {errno})",
    workaround="Check that the source runs and can be reached from the worker; it goes on by itself.",
    retryable=True,
)
PRIVILEGE_MISSING = _define(
    20103,
    "source-privilege-missing",
    scope=Scope.SOURCE,
    message="source {source}: user {user} at {host}:{port} is not allowed: {reason} (errno {errno})",
    workaround="Grant what the server's message names (check-task prints the statement), then resume-task.",
)
SOURCE_BUSY = _define(
    20104,
    "source-busy",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: {host}:{port} takes no further connection or statement: {reason} (errno {errno})",
    workaround="Raise max_connections or the account's limits at the source; it goes on by itself.",
    retryable=True,
)
SOURCE_CONFLICT = _define(
    20105,
    "source-lock-conflict",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: {host}:{port}: {reason} (errno {errno})",
    workaround="Nothing to do: it is tried again. If it repeats: for errno 4052 another replica uses the same "
    "server-id, give this source's file another one; else look for long transactions at the source.",
    retryable=True,
)
SOURCE_STORAGE = _define(
    20106,
    "source-storage-full",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} has no room: {reason} (errno {errno})",
    workaround="Free disk space at the source; it goes on by itself.",
    retryable=True,
)
SOURCE_REJECTED = _define(
    20107,
    "source-rejected-statement",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} refused a statement: {reason} (errno {errno})",
    workaround="Mend what the server's message names, then resume-task.",
)
SESSION_VARIABLE = _define(
    20108,
    "session-variable-refused",
    scope=Scope.CONFIG,
    message="{host}:{port} refuses session variable {variable} = {value}: {reason} (errno {errno})",
    workaround="Correct or remove the variable under `session` in the configuration file.",
)
NO_BINLOG = _define(
    20109,
    "source-writes-no-binlog",
    scope=Scope.SOURCE,
    message="the source ({server}) has no binary log",
    workaround="Start the source with log_bin, binlog_format=ROW and binlog_row_image=FULL, then resume-task.",
)
