"""Source connection and relay errors: codes 20001–20999."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.snapshot import COPY_AFTER_SWITCH, COPY_FROM_ANOTHER_SERVER, COPY_SOURCE_AGAIN
from shardmerge.proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="relay")

_RESUME = "for each task that is paused, `dmctl resume-task <task> -s {source}`"
_UPDATE = "`dmctl operate-source update <source-file>`"
_READ_PREVIOUS = (
    f"If the previous server can be read, point the source's file to it, {_UPDATE}; then stop the source's worker, "
    "move the directory {source} in its relay-dir away and start it: the relay log is fetched again from the previous "
    "server. Read from there"
)

SOURCE_LOG_GONE = _define(
    20001,
    "source-binlog-unavailable",
    scope=Scope.SOURCE,
    message="source {source}: the server cannot send its binlog from file {file}, position {pos}: {reason} "
    "(errno {errno})",
    workaround="Compare with SHOW BINARY LOGS at the source. If the file was purged, its content cannot be fetched any "
    "more: "
    f"restore the file there and `dmctl resume-task <task> -s {{source}}`; or {COPY_SOURCE_AGAIN}. Keep binlogs longer "
    "(expire_logs_days, binlog_expire_logs_seconds). If the position is after the file's end, the source lost its "
    "latest writes: copy again, too. If another replica uses the same server-id, set another one in this source's "
    f"file and {_UPDATE}; nothing is to be copied then.",
)
DUMP_ENDED = _define(
    20002,
    "binlog-stream-ended",
    scope=Scope.SOURCE,
    level=Level.LOW,
    message="source {source}: the server ended the binlog stream at {position}: {reason}",
    workaround="Nothing to do: the relay reconnects by itself.",
    retryable=True,
)
BAD_PACKET = _define(
    20003,
    "binlog-stream-garbled",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: the binlog stream is garbled after {position}: {reason}",
    workaround="Nothing was stored; the relay reconnects and fetches again by itself. If it repeats, look at the "
    "network or the proxy between worker and source.",
    retryable=True,
)
EVENT_CHECKSUM = _define(
    20004,
    "binlog-event-damaged",
    scope=Scope.SOURCE,
    message="source {source}: the event after {position} (type {type}, {size} bytes) does not match its CRC32",
    workaround="Nothing was stored; the relay fetches the event again by itself. If it repeats, the source's binlog "
    "file is damaged: check it with mysqlbinlog --verify-binlog-checksum.",
    retryable=True,
)
EVENT_OVERLAP = _define(
    20005,
    "binlog-event-repeated",
    scope=Scope.SOURCE,
    message="source {source}: the event that ends at binlog byte {pos} begins before {position}, which the stream "
    "has already passed",
    workaround="Nothing was stored twice. Check that the address of the source leads to one server (no load "
    f"balancer); then, {_RESUME}.",
)
GROUP_BROKEN = _define(
    20006,
    "binlog-group-broken",
    scope=Scope.SOURCE,
    message="source {source}: the event of type {type} after {position} is out of place: {reason}",
    workaround="The transaction that contains it was not stored. Look at the binlog there with mysqlbinlog; a server "
    "that writes such binlogs is not supported in this version.",
)
SOURCE_CHANGED = _define(
    20007,
    "source-is-another-server",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} is now {found}, the relay log was written from {expected}",
    workaround="Check first that the address leads to the right server: a copy from a wrong one replaces the rows of "
    "this source at the target. Positions in files of one server mean nothing at another, and the relay log holds no "
    f"GTIDs to continue by. Point the source's file to the old server: {_UPDATE}; or let its address lead there again: "
    f"{_RESUME}. If that server is lost for good, {COPY_FROM_ANOTHER_SERVER}. With GTIDs (gtid_mode=ON; MariaDB always "
    "has them) it continues by itself.",
)
SOURCE_LOG_RESET = _define(
    20008,
    "source-binlog-began-anew",
    scope=Scope.SOURCE,
    message="source {source}: the relay log holds the binlog up to {position}, but the source is at {found}: {reason}",
    workaround="The source's binlog is no longer the one that was read: RESET MASTER, a restored backup, or a crash "
    "that took its latest writes. What was applied beyond it may not exist at the source. Check that the address "
    f"leads to the right server. If it does, {COPY_SOURCE_AGAIN}.",
)
GROUP_TOO_LARGE = _define(
    20009,
    "undone-transaction-too-large",
    scope=Scope.SOURCE,
    message="source {source}: the transaction after {position} was rolled back or only prepared and has {size} "
    "bytes, more than the {limit} that can be judged as a whole",
    workaround=f"Nothing of it was applied. Look at it with mysqlbinlog. To continue after it, {COPY_SOURCE_AGAIN}.",
)
RELAY_CRASHED = _define(
    20010,
    "relay-reader-failed",
    scope=Scope.INTERNAL,
    message="source {source}: the relay reader stopped after {position}: {reason}",
    workaround="This is a bug: report it with the worker's log. What was published is complete; `dmctl "
    "resume-task <task> -s {source}` tries again.",
)
SOURCE_GTIDS_GONE = _define(
    20011,
    "source-gtids-purged",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} no longer has what follows GTID set {gtid_set}; the first missing GTID is "
    "{missing}: {reason}",
    workaround="The content of the purged binlogs cannot be fetched from this server any more. Point the source's "
    "file to a server that still has it (compare with its gtid_purged, on MariaDB BINLOG_GTID_POS(<first file>, 4)) "
    f"and {_UPDATE}; or {COPY_SOURCE_AGAIN}. Keep binlogs longer.",
)
SOURCE_LACKS_GTIDS = _define(
    20012,
    "source-lacks-gtids",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} ({server}) does not have GTID {missing}, which was read from {before} and "
    "may be applied",
    workaround="A replica that is still catching up will have it, and the relay continues by itself. A server that "
    "never gets it has another history (a fail-over that lost transactions, RESET MASTER): point the source's file to "
    f"the right server, {_UPDATE}. If there is none, {COPY_FROM_ANOTHER_SERVER}.",
    retryable=True,
)
GTID_PLACE_MISSING = _define(
    20013,
    "gtid-set-not-in-relay-log",
    scope=Scope.SOURCE,
    message="source {source}: no position in the relay log has exactly GTID set {wanted}; it goes from {before} to "
    "{behind}",
    workaround="For a start position: give a set as the source itself had it (gtid_executed; gtid_binlog_pos on "
    "MariaDB, with every domain). For a checkpoint: the current server has its transactions in another order than the "
    f"previous one. {_READ_PREVIOUS} until the tasks have caught up. If the previous server is lost, "
    f"{COPY_SOURCE_AGAIN}.",
)
POSITION_ELSEWHERE = _define(
    20014,
    "position-of-another-server",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: {position} is a position in the binlog of {server}; the relay log can find positions of: "
    "{servers}",
    workaround="Nothing to do after a fail-over: the relay tries again with a position of the current server. If it "
    "repeats, check that the source's address leads to one server at a time.",
    retryable=True,
)
PIECE_OF_ANOTHER_SERVER = _define(
    20015,
    "checkpoint-inside-transaction-of-another-server",
    scope=Scope.SOURCE,
    message="source {source}: the checkpoint is inside the transaction after {position} of {server}, and the "
    "current relay log has that transaction from {now}, which may have written it in other events",
    workaround=f"{_READ_PREVIOUS} until the task has applied that transaction. If the previous server is lost, "
    f"{COPY_SOURCE_AGAIN}.",
)
XA_PREPARE_MISSING = _define(
    20016,
    "xa-prepare-missing",
    scope=Scope.SOURCE,
    message="source {source}: XA COMMIT {xid} after {position}: its XA PREPARE is in none of the binlogs that the "
    "source still has, so it is unknown what it commits",
    workaround="Nothing of it was applied, and no row may be left out. While XA RECOVER at the source lists nothing, "
    f"{COPY_SOURCE_AGAIN}.",
)
SERVER_ID_TAKEN = _define(
    20017,
    "server-id-taken",
    scope=Scope.CONFIG,
    message="source {source}: server-id {server_id} is used by {owner}, at the same server",
    workaround="Set another server-id in this source's file, or none (then a free one is chosen), and "
    f"{_UPDATE}: its tasks continue. Or change the other source in this way, or stop it if it is no longer needed "
    f"(`dmctl operate-source stop <source>`); then, {_RESUME}.",
)
POSITION_UNORDERED = _define(
    20018,
    "position-not-comparable",
    scope=Scope.SOURCE,
    message="source {source}: it is unknown whether the relay log, which begins at {first}, reaches back to "
    "{position}, and other tasks need it as it is",
    workaround="Give the position as a GTID set (binlog-gtid), or let the source's other tasks finish first.",
)
SERVER_ID_STILL_HELD = _define(
    20019,
    "server-id-still-held",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: server-id {server_id} is still held by {owner}",
    workaround="Nothing to do where a source has moved or stopped, or a worker has died: the id is free when that "
    "worker has stopped or its lease has ended, and this one continues by itself. Otherwise set in one of the sources' "
    "files another server-id, or none: then a free one is chosen.",
    retryable=True,
)
DISK_FULL = _define(
    20020,
    "relay-disk-full",
    scope=Scope.INTERNAL,
    message="source {source}: no space left for the relay log in {directory}",
    workaround="Free space on that file system, or let the relay purge more (purge: in the source's file); it "
    "continues by itself.",
    retryable=True,
)
DISK_FAILED = _define(
    20021,
    "relay-disk-failed",
    scope=Scope.INTERNAL,
    message="source {source}: {path}: {reason} (errno {errno})",
    workaround=f"Check the file system and its permissions; then, {_RESUME}.",
)
RELAY_DAMAGED = _define(
    20022,
    "relay-log-damaged",
    scope=Scope.INTERNAL,
    message="source {source}: {path} is damaged: {reason}",
    workaround="Compare SHOW BINARY LOGS at the source with syncerBinlog of query-status. If the source still has the "
    "files "
    "from there on: stop the worker, move the directory {directory} away and start the worker again; the relay log is "
    "fetched again from the tasks' checkpoints. Do not delete the directory before the tasks have caught up: what the "
    "source has purged is nowhere else.",
)
RELAY_REMOVED = _define(
    20023,
    "relay-log-removed",
    scope=Scope.INTERNAL,
    message="source {source}: {path} was removed or replaced by another program while the worker runs",
    workaround=f"Tasks that run continue by themselves: the relay log in {{directory}} is fetched again from their "
    f"checkpoints, if the source still has its binlog from there on (20001 if not); {_RESUME}. If this error stays, "
    "files of the log are left: stop the worker, move {directory} away and start the worker again. Only `dmctl "
    "purge-relay` may remove files there.",
    retryable=True,
)
POSITION_BEFORE_RELAY = _define(
    20030,
    "position-before-relay-log",
    scope=Scope.SOURCE,
    message="source {source}: {position} is before the relay log, which begins at {first}",
    workaround="`dmctl resume-task <task> -s {source}`: the relay log starts again at the lowest position that a task "
    "needs, if the source still has it.",
)
POSITION_INSIDE_GROUP = _define(
    20031,
    "position-inside-transaction",
    scope=Scope.SOURCE,
    message="source {source}: {position} is inside a transaction, which goes from {start} to {end}",
    workaround="Give the start or the end of that transaction as the position.",
)
LOCATE_TIMEOUT = _define(
    20032,
    "position-not-reached",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: the relay log is at {head} and did not reach {position} within {seconds} s",
    workaround="Check the relay's status in query-status; the worker tries again by itself.",
    retryable=True,
)
OFFSET_PURGED = _define(
    20033,
    "relay-offset-purged",
    scope=Scope.INTERNAL,
    message="source {source}: relay offset {offset} was purged; the relay log begins at {first}",
    workaround="`dmctl resume-task <task> -s {source}`: the relay log starts again at its checkpoint's position, if "
    "the source still has it.",
)
RELAY_RESTARTED = _define(
    20034,
    "relay-log-began-anew",
    scope=Scope.INTERNAL,
    level=Level.LOW,
    message="source {source}: the relay log {relay_id} was replaced by another one",
    workaround="Nothing to do: the task continues in the new one from its position.",
    retryable=True,
)
OFFSET_NOT_GROUP_END = _define(
    20035,
    "relay-offset-invalid",
    scope=Scope.INTERNAL,
    message="source {source}: relay offset {offset} is not the end of a transaction in relay log {relay_id}",
    workaround="The checkpoint does not belong to this relay log. `dmctl resume-task <task> -s {source}`; if it "
    "repeats, "
    f"{COPY_SOURCE_AGAIN}.",
)
RELAY_NOT_BEGUN = _define(
    20036,
    "relay-log-empty",
    scope=Scope.INTERNAL,
    level=Level.LOW,
    message="source {source}: the relay log has not begun: no task has requested a start position",
    workaround="Nothing to do: the first task of the source starts it.",
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
    message="source {source}: a relay log begins at a binlog file and position or at a GTID set, got {given}",
    workaround="Give binlog-name and binlog-pos, or binlog-gtid as the source shows it (gtid_executed, on MariaDB "
    "gtid_binlog_pos).",
)
RELAY_FILE_UNKNOWN = _define(
    20039,
    "relay-file-unknown",
    scope=Scope.CONFIG,
    message="source {source}: the relay log has not reached a binlog file {file}; it goes from {first} to {last}",
    workaround="Give a file of the server that the relay reads from now, up to relayBinlog in query-status --more. A "
    "file that the relay log has not reached yet cannot be a limit for purging.",
)
RELAY_SUB_DIR_UNKNOWN = _define(
    20040,
    "relay-sub-dir-unknown",
    scope=Scope.CONFIG,
    message="source {source}: {given} is not its relay log, which is {relay_id}",
    workaround="Leave --sub-dir out, or give the relaySubDir of query-status --more: a source has one relay log.",
)

ACCESS_DENIED = _define(
    20101,
    "source-access-denied",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} refuses the login of user {user}: {reason} (errno {errno})",
    workaround="Check user, password and the host part of the account at the source. If the source's "
    "file is wrong, correct it and `dmctl operate-source update <source-file>`. Then, for each task that is paused, "
    "`dmctl resume-task <task> -s {source}`.",
)
SOURCE_LOST = _define(
    20102,
    "source-unreachable",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port}: {reason} (errno {errno})",
    workaround="Check that the source runs and can be reached from the worker; the relay continues by itself. If the "
    "server is lost and a replica of it takes over: write the replica's host and port into the source's file, then "
    "`dmctl operate-source update <source-file> --ask-password`, which asks for the password there. The tasks continue "
    "without a new copy if the replica's GTIDs continue those that were read (docs: how-to/change-a-source); otherwise "
    "nothing is changed, and the answer has the reason.",
    retryable=True,
)
PRIVILEGE_MISSING = _define(
    20103,
    "source-privilege-missing",
    scope=Scope.SOURCE,
    message="source {source}: user {user} at {host}:{port} is not allowed: {reason} (errno {errno})",
    workaround="Grant what the server's message names (`dmctl check-task <file>` prints the statement); then, "
    f"{_RESUME}.",
)
SOURCE_BUSY = _define(
    20104,
    "source-busy",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: {host}:{port} takes no further connection or statement: {reason} (errno {errno})",
    workaround="Raise max_connections or the account's limits at the source; the relay continues by itself.",
    retryable=True,
)
SOURCE_CONFLICT = _define(
    20105,
    "source-lock-conflict",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: {host}:{port}: {reason} (errno {errno})",
    workaround="Nothing is lost, and the worker tries again. If it repeats: for errno 4052 another replica uses the "
    "same server-id, set another one in this source's file. For errno 1205 another session holds a table or rows that "
    "are copied (LOCK TABLES, FLUSH TABLES WITH READ LOCK, a DDL, a long transaction): `SHOW FULL PROCESSLIST` at the "
    "source shows it, and the copy continues when it ends.",
    retryable=True,
)
SOURCE_STORAGE = _define(
    20106,
    "source-storage-full",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} has no disk space: {reason} (errno {errno})",
    workaround="Free disk space at the source; the relay continues by itself.",
    retryable=True,
)
SOURCE_REJECTED = _define(
    20107,
    "source-rejected-statement",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} refused a statement: {reason} (errno {errno})",
    workaround=f"Correct what the server's message names; then, {_RESUME}.",
)
SESSION_VARIABLE = _define(
    20108,
    "session-variable-refused",
    scope=Scope.CONFIG,
    message="{host}:{port} refuses session variable {variable} = {value}: {reason} (errno {errno})",
    workaround="Correct or remove the variable under `session` in the configuration file.",
)
SWITCH_OTHER_BINLOG = _define(
    20050,
    "source-switch-other-binlog",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} identifies itself as {server}, from which the relay log was read up to "
    "{position}, but its binlog does not continue there: {reason}",
    workaround="Nothing was changed. The server is a copy with another history, or was reset: point the source's file "
    "to the "
    f"previous server. If that is lost for good, {COPY_FROM_ANOTHER_SERVER}.",
)
SWITCH_ERRANT = _define(
    20051,
    "source-switch-errant-transaction",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} has transaction {errant} of its own among those that were read "
    "from {before}: {behind} follows it",
    workaround="Nothing was changed. Its rows are not those of the previous server, so it is unknown what the merged "
    "tables should hold: point the source's file to a replica without writes of its own. If there is none, "
    f"{COPY_FROM_ANOTHER_SERVER}.",
)
SWITCH_BUSY = _define(
    20052,
    "source-switch-while-busy",
    scope=Scope.CONFIG,
    message="source {source} cannot be read from another server now: task {task} {doing}",
    workaround="Nothing was changed. Wait until query-status {task} shows that it replicates all of its tables, then "
    "`dmctl operate-source update <source-file>` again. If it cannot: "
    f"{COPY_AFTER_SWITCH}.",
)
SWITCH_UNPROVEN = _define(
    20053,
    "source-switch-unproven",
    scope=Scope.SOURCE,
    message="source {source}: it cannot be proven that {host}:{port} continues where {before} ended: {reason}",
    workaround=f"Nothing was changed. Correct what is named and repeat {_UPDATE}. If it cannot be "
    f"proven, {COPY_FROM_ANOTHER_SERVER}.",
)
SWITCH_LACKS_GTIDS = _define(
    20055,
    "source-switch-lacks-transactions",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} ({server}) cannot continue where {before} was read: {reason}",
    workaround="Nothing was changed: the source's file and its tasks are as before. A replica that is still catching "
    f"up will have the transactions: repeat {_UPDATE} then. Else point the source's file to a server that has them "
    "(compare with its gtid_executed and gtid_purged; on MariaDB gtid_binlog_pos, and BINLOG_GTID_POS(<first file>, "
    f"4)). If there is none, {COPY_FROM_ANOTHER_SERVER}.",
)
MOVE_WOULD_LOSE = _define(
    20054,
    "source-move-would-lose",
    scope=Scope.SOURCE,
    message="source {source}: {host}:{port} no longer has what follows {position}, which its tasks need and only the "
    "relay log of the current worker still holds: {reason}",
    workaround="Nothing was moved. Let the tasks catch up there (query-status; resume paused ones) and repeat the "
    "command.",
)
MOVE_AFTER_LOSS = _define(
    20056,
    "source-move-after-binlog-loss",
    scope=Scope.SOURCE,
    message="source {source}: the relay of worker {worker} has stopped, because the source does not continue the "
    "binlog that was read: {error}; the relay log of another worker would begin anew and not show this",
    workaround="Nothing was moved. Repeat the command when the relay runs again. {instruction}",
)
NO_BINLOG = _define(
    20109,
    "source-writes-no-binlog",
    scope=Scope.SOURCE,
    message="the source ({server}) has no binary log",
    workaround="Start the source with log_bin, binlog_format=ROW and binlog_row_image=FULL; then `dmctl resume-task "
    "<task> -s <source>` for each task that is paused.",
)
