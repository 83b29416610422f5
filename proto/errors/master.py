"""Master and etcd errors: codes 60001–60999.

60001–60099 etcd · 60101–60199 masters and members · 60201–60299 sources and placement ·
60301–60399 tasks · 60401–60499 stored configurations and their secrets ·
60801–60899 gRPC between the programs · 60901 the unexpected.
"""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.snapshot import COPY_AGAIN
from shardmerge.proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="master")

ETCD_UNAVAILABLE = _define(
    60001,
    "etcd-unavailable",
    scope=Scope.INTERNAL,
    message="etcd at {endpoints} does not answer: {reason}",
    workaround="Check that etcd runs, has a leader and is reachable from here; the daemons continue without it and "
    "reconnect by themselves.",
    retryable=True,
)
ETCD_REFUSED = _define(
    60002,
    "etcd-refused",
    scope=Scope.INTERNAL,
    message="etcd at {endpoints} refused a request: {reason}",
    workaround="Space exceeded: compact, defragment and disarm the alarm. Too many operations: start etcd "
    "with a higher --max-txn-ops. Permission: give this user the /shardmerge/ prefix.",
)
LEASE_LOST = _define(
    60003,
    "etcd-lease-lost",
    scope=Scope.INTERNAL,
    message="the etcd lease {lease} has ended; what was registered under it is gone",
    workaround="Nothing to do: the daemon registers again by itself. If it repeats, the machine or etcd is "
    "too slow for the keep-alive TTL; raise it.",
    retryable=True,
)
BAD_RECORD = _define(
    60004,
    "etcd-bad-record",
    scope=Scope.INTERNAL,
    message="etcd record {key} cannot be read: {reason}",
    workaround="It was written by a newer version or by hand. Upgrade this program, or restore the record; "
    "`etcdctl get {key}` shows it.",
)
CONFLICT = _define(
    60005,
    "etcd-conflict",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="{what} was changed by another command at the same time; nothing was written",
    workaround="Look at the current state and repeat the command.",
    retryable=True,
)

NOT_LEADER = _define(
    60101,
    "not-leader",
    scope=Scope.INTERNAL,
    level=Level.LOW,
    message="master {master} is not the leader; the leader is {leader} at {address}",
    workaround="Ask the leader; dmctl does so by itself.",
    retryable=True,
)
NO_LEADER = _define(
    60102,
    "no-leader",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="master {master} is not the leader, and no leader is elected at the moment",
    workaround="Wait a few seconds; if it stays so, check etcd and the masters' logs.",
    retryable=True,
)
NAME_TAKEN = _define(
    60103,
    "name-taken",
    scope=Scope.CONFIG,
    message="{kind} {name} is already registered from {address}",
    workaround="Give every daemon its own --name; after an unclean end of the other one wait until its lease "
    "has expired.",
)
EVICT_ALONE = _define(
    60104,
    "evict-alone",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="master {master} is the only one: no other master could lead",
    workaround="Start another dm-master first; list-member --master shows those that are alive.",
)
MEMBER_ALIVE = _define(
    60105,
    "member-alive",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{kind} {name} is alive",
    workaround="Stop it first; it is forgotten when its lease ends (a worker's source when another worker takes it, or "
    "by offline-member).",
)

SOURCE_EXISTS = _define(
    60201,
    "source-exists",
    scope=Scope.CONFIG,
    message="source {source} exists already",
    workaround="operate-source show lists the sources; operate-source stop removes one.",
)
SOURCE_UNKNOWN = _define(
    60202,
    "source-unknown",
    scope=Scope.CONFIG,
    message="source {source} does not exist",
    workaround="Create it with operate-source create; operate-source show lists the sources.",
)
SOURCE_IN_USE = _define(
    60203,
    "source-in-use",
    scope=Scope.CONFIG,
    message="source {source} has running or paused tasks: {tasks}",
    workaround="Stop those tasks on this source first (stop-task -s {source}).",
)
WORKER_UNKNOWN = _define(
    60205,
    "worker-unknown",
    scope=Scope.CONFIG,
    message="worker {worker} is not registered",
    workaround="list-member --worker shows the workers that are alive.",
)
WORKER_NOT_FREE = _define(
    60206,
    "worker-not-free",
    scope=Scope.CONFIG,
    message="worker {worker} already holds source {source}",
    workaround="Choose a free worker; list-member --worker shows them.",
)
NO_WORKER = _define(
    60207,
    "no-worker",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="no worker is alive that could check source {source}",
    workaround="Start a dm-worker and look at list-member --worker. operate-source create needs none: the first free "
    "worker checks the source, and operate-source show reports the result.",
)
SOURCE_UNBOUND = _define(
    60208,
    "source-unbound",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="source {source} is bound to no live worker",
    workaround="`dmctl list-member --worker` shows the workers. The source is bound to the next free one by itself: "
    "wait for one that is starting, or start another dm-worker.",
    retryable=True,
)
SOURCE_CHECK_FAILED = _define(
    60209,
    "source-check-failed",
    scope=Scope.SOURCE,
    message="source {source} cannot be used: {reason}",
    workaround="{instruction}",
)
BAD_PLACEMENT = _define(
    60210,
    "bad-placement",
    scope=Scope.INTERNAL,
    message="a placement was not carried out because it would break a rule: {reason}",
    workaround="This is a bug: please report it with the output of list-member. Bound sources continue.",
)
SOURCE_UPDATE_FIXED = _define(
    60220,
    "source-update-fixed-key",
    scope=Scope.CONFIG,
    message="source {source}: {key} cannot change from {before} to {after} while the source has tasks: {tasks}",
    workaround="Nothing was changed. Put it back, or stop those tasks on this source first (stop-task -s {source}), "
    "update the source, and start them again.",
)
SOURCE_DISABLED = _define(
    60221,
    "source-disabled",
    scope=Scope.CONFIG,
    message="source {source} is disabled (`enable: false` in its file)",
    workaround="Set `enable: true` in its file and run operate-source update.",
)
SOURCE_SWITCH_LOCKED = _define(
    60222,
    "source-switch-while-locked",
    scope=Scope.CONFIG,
    message="source {source} cannot be read from another server while shard tables are parked at sharding DDLs: "
    "{locks}",
    workaround="Nothing was changed. Let them continue first: shard-ddl-lock shows what they wait for, shard-ddl-lock "
    "unlock releases them without those; then operate-source update.",
)
RELAY_ALWAYS_ON = _define(
    60223,
    "relay-always-on",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="the relay log of source {source} cannot be stopped: every task of the source reads the binlog from it",
    workaround="pause-relay -s {source} stops the fetching until resume-relay; purge-relay frees disk space; to stop "
    "using the source, stop-task and operate-source stop, or `enable: false` in its file.",
)

TASK_EXISTS = _define(
    60301,
    "task-exists",
    scope=Scope.CONFIG,
    message="task {task} already runs on source(s) {sources}",
    workaround="Use resume-task for a paused task, update-task to change its tables or settings while it runs.",
)
TASK_UNKNOWN = _define(
    60302,
    "task-unknown",
    scope=Scope.CONFIG,
    message="task {task} does not exist",
    workaround="query-status lists the tasks.",
)
SUBTASK_UNKNOWN = _define(
    60303,
    "subtask-unknown",
    scope=Scope.CONFIG,
    message="task {task} does not run on source {source}",
    workaround="query-status {task} lists its sources.",
)
SOURCE_NOT_IN_TASK = _define(
    60304,
    "source-not-in-task",
    scope=Scope.CONFIG,
    message="the file of task {task} does not name source {source}",
    workaround="Add it to mysql-instances, or leave it out of -s.",
)
STAGE_NOT_REACHED = _define(
    60305,
    "stage-not-reached",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="source {source}: {who} has not reported {what} within {seconds} s (last seen: {seen})",
    workaround="The decision is stored and takes effect later; follow it with `dmctl query-status -s {source}`.",
    retryable=True,
)
COMMAND_REPLACED = _define(
    60326,
    "command-replaced",
    scope=Scope.INTERNAL,
    level=Level.LOW,
    message="source {source}: while the command waited for stage {stage} of task {task}, another command decided "
    "stage {later}",
    workaround="The other command holds, and nothing is lost. `dmctl query-status {task} -s {source}` shows the stage. "
    "If the task must have the stage of this command, give it again.",
)
TASK_DIFFERS = _define(
    60306,
    "task-differs",
    scope=Scope.CONFIG,
    message="task {task} runs on source(s) {sources} with another configuration than this file",
    workaround="Use the same file to start it on further sources; update-task applies changes to the running task.",
)
PRECHECK_FAILED = _define(
    60307,
    "pre-check-failed",
    scope=Scope.CONFIG,
    message="task {task}: {count} pre-check(s) failed; nothing was started",
    workaround="Correct what the check results name, or list the items in ignore-checking-items.",
)
BAD_REQUEST = _define(
    60308,
    "bad-request",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{reason}",
    workaround="See dmctl help for the command.",
)
UPDATE_SOURCES = _define(
    60309,
    "update-without-source",
    scope=Scope.CONFIG,
    message="task {task} runs on source(s) {sources}, which this file does not name",
    workaround="Name them in mysql-instances; to end the task there, use stop-task {task} -s SOURCE first.",
)
UPDATE_FIXED = _define(
    60310,
    "update-fixed-key",
    scope=Scope.CONFIG,
    message="task {task}: {key} cannot be changed by an update (it is {before}, in the file {after})",
    workaround="Nothing was changed. Restore the old value. To change it, stop the task and start it with the other "
    "file: `dmctl "
    "stop-task {task}`, `dmctl start-task <file>`. Where that needs a new copy of all rows: `dmctl start-task <file> "
    "--remove-meta`.",
)
UPDATE_FULL = _define(
    60311,
    "update-of-full-task",
    scope=Scope.CONFIG,
    message="task {task} has task-mode full: it has no stream that further tables could join",
    workaround="Copy them with a task of their own.",
)

BINLOG_NO_ERROR = _define(
    60312,
    "binlog-no-error",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="source '{source}' has no error: task {task} has not stopped at a statement there",
    workaround="Give the position of the statement: -b FILE:POS, as in the binlog of the source. If a shard table is "
    "parked at a statement, shard-ddl-lock {task} shows the position.",
)
BINLOG_NOTHING_SAID = _define(
    60313,
    "binlog-nothing-said",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="task {task}, source {source}: there is no override for the statement at {position}",
    workaround="`binlog list` shows the overrides.",
)
UPDATE_SHARD_MODE = _define(
    60314,
    "update-of-shard-mode-while-locked",
    scope=Scope.CONFIG,
    message="task {task}: shard-mode cannot change from {before} to {after} while shard tables are parked at sharding "
    "DDLs: {locks}",
    workaround="Nothing was changed. Let them continue first: shard-ddl-lock {task} shows what they wait for, "
    "shard-ddl-lock unlock releases them without those; then update-task.",
)
BINLOG_NAME_PLACE = _define(
    60315,
    "binlog-name-place",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="task {task}, source {source} has stopped at rows, not at a statement: {error}",
    workaround="Rows are skipped only by their exact position: give `-b {place}` to lose the rows of that event.",
)
RECORDS_OF_SOME_SOURCES = _define(
    60316,
    "records-of-some-sources",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="stop-task --remove-meta removes the records of all sources of one task, not of single sources or of "
    "several tasks",
    workaround="Nothing was changed. To remove the records of all sources of one task: `dmctl stop-task {task} "
    f"--remove-meta`, without -s. To {COPY_AGAIN}.",
)
RECORDS_NOT_REMOVED = _define(
    60317,
    "records-not-removed",
    scope=Scope.TARGET,
    message="task {task} is stopped, but its records at the target may still be there: {reason}",
    workaround="Nothing at the target was changed in part. Correct what is named, then `dmctl stop-task <file> "
    "--remove-meta` again: with the task's file it works for a stopped task, too. `dmctl start-task <file>` continues "
    "from records that are still there.",
)
RECORDS_OF_NEWER_START = _define(
    60318,
    "records-of-newer-start",
    scope=Scope.TARGET,
    message="task {task}, source {source}: its records at the target are those of a start with epoch {found}, after "
    "the stop with epoch {epoch}",
    workaround="Nothing was removed. `dmctl query-status {task}` shows whether the task was started again meanwhile; "
    "then stop it first. If it was not, another installation uses the same meta-schema.",
)

MASTER_UNKNOWN = _define(
    60401,
    "master-unknown",
    scope=Scope.CONFIG,
    message="master {master} is not registered",
    workaround="list-member --master shows the masters that are alive.",
)
CONFIG_NOT_KEPT = _define(
    60402,
    "config-not-kept",
    scope=Scope.CONFIG,
    message="the configuration of {kind} {name} was not kept by the version that recorded it",
    workaround="A task: run update-task with its file. A source: stop and create it with its file. A daemon: "
    "start it with this version.",
)

SECRETS_REFUSED = _define(
    60433,
    "secrets-by-open-connection",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="passwords are sent only over a Unix socket or over TLS with client certificates, but this call came from "
    "{peer} in plain text",
    workaround="Run the command on the machine of dm-master with --master-addr {socket}; or set up TLS for masters, "
    "workers and dmctl (`dmctl tls init`, docs/how-to/tls.md).",
)
SECRET_KEY_DIFFERS = _define(
    60434,
    "secret-key-of-another-cluster",
    scope=Scope.CONFIG,
    message="the passwords in etcd were encrypted with another key than the one in {path}",
    workaround="Copy the key file of a dm-master that has led this cluster to {path}, mode 0600, or set "
    "secret-key-path to the copy. Until then this master does not lead.",
)
SECRET_KEY_ABSENT = _define(
    60435,
    "secret-key-absent",
    scope=Scope.CONFIG,
    message="the passwords in etcd are encrypted, but {path} has no key; a new key could not decrypt them",
    workaround="Copy the key file of a dm-master that has led this cluster to {path}, mode 0600, or set "
    "secret-key-path to the copy. Until then this master does not lead.",
)
SOCKET_UNUSABLE = _define(
    60436,
    "master-socket-unusable",
    scope=Scope.CONFIG,
    message="master-socket {path}: {reason}",
    workaround="Set master-socket to a path of less than 108 bytes in a folder that only this user may enter (chmod "
    "0700). Each dm-master needs its own path.",
)

PEER_UNREACHABLE = _define(
    60801,
    "peer-unreachable",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="{peer} cannot be reached: {reason}",
    workaround="Check that it runs and that its advertised address can be reached from here.",
    retryable=True,
)
PEER_TIMEOUT = _define(
    60802,
    "peer-timeout",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="{peer} did not answer in time",
    workaround="Look at its log and load; the request may still take effect there.",
    retryable=True,
)
PEER_UNIMPLEMENTED = _define(
    60803,
    "peer-unimplemented",
    scope=Scope.INTERNAL,
    message="{peer} does not know this request: {reason}",
    workaround="Upgrade all programs to the same version; check that the address is the right daemon's.",
)
PEER_FAILED = _define(
    60804,
    "peer-failed",
    scope=Scope.INTERNAL,
    message="{peer} failed: {reason}",
    workaround="Look at its log.",
)
CANNOT_LISTEN = _define(
    60805,
    "cannot-listen",
    scope=Scope.CONFIG,
    message="cannot listen on {address}: {reason}",
    workaround="Give an address of this machine and a free port; :PORT listens on every interface. `ss -ltnp` shows "
    "which process uses a port.",
)

CALL_TOO_MANY = _define(
    60826,
    "too-many-calls",
    scope=Scope.INTERNAL,
    level=Level.LOW,
    message="{program} refuses {method}: {what}",
    workaround="Repeat the command when other calls have ended. If the error persists, find the other callers: "
    "{program} logs the addresses of refused calls.",
    retryable=True,
)
MESSAGE_TOO_LARGE = _define(
    60827,
    "message-too-large",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="{method}: the message is too large: {what}",
    workaround="Repeat the command with fewer files, sources or tables at once, or with a smaller file.",
)
MESSAGE_UNREADABLE = _define(
    60828,
    "message-unreadable",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="{method}: {what}",
    workaround="Use the dmctl or the proto files of this version, and check that the caller uses the right address.",
)
FIELD_REFUSED = _define(
    60829,
    "field-refused",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="field {field} of a request {method} {rule}; it is {value}",
    workaround="Correct the value and repeat the command. proto/*.proto describes the fields.",
)
PEER_REFUSED = _define(
    60830,
    "peer-refused",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="{peer} rejected the request: {reason}",
    workaround="If the message is too large, repeat the command with fewer files, sources or tables at once. If there "
    "are too many calls, repeat it when other calls have ended.",
)

INTERNAL = _define(
    60901,
    "internal-error",
    scope=Scope.INTERNAL,
    message="{program}: unexpected {kind} in {method}",
    workaround="This is a bug: please report it with the log of {program}, which holds the traceback.",
)
SOURCE_PASSWORD_NEEDED = _define(
    60224,
    "source-password-needed",
    scope=Scope.CONFIG,
    message="source {source}: the file changes the address ({before} -> {after}), and its password is {given}: no "
    "connection was made",
    workaround="Nothing was changed. `dmctl operate-source update <source-file> --ask-password` asks for the password "
    "without echo (in a script: one line of standard input), and sends it instead of what the file has: a caller that "
    "moves a source to another server must know its password. The file may keep the reference or the encrypted text, "
    "which the masters accept again after the change. Or write the password as plain text into the file that you send. "
    "The masters store it encrypted in both cases.",
)

RENAME_NOTHING = _define(
    60319,
    "rename-target-nothing",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="task {task}: by the file every target table has the name that it has: there is nothing to rename",
    workaround="Nothing was changed. Give the new `target-table` in the routes of the file, and repeat the command.",
)
RENAME_NOT_ALONE = _define(
    60320,
    "rename-target-not-alone",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="task {task}: the file does not just give one target table a new name: {reason}",
    workaround="Nothing was changed. Change only the target of the routes of one target table, the same for all of its "
    "shard tables, and make other changes with an `update-task` of their own. `dmctl update-task <file> "
    "--move-tables` copies the history into the new table.",
)
RENAME_EXISTS = _define(
    60321,
    "rename-target-exists",
    scope=Scope.TARGET,
    message="task {task}: {before} cannot get the name {after}: the target has a table or view of this name",
    workaround="Nothing was changed. Give another name in the file; or remove or rename what has the name, if nothing "
    "needs it, and repeat the command.",
)
RENAME_BUSY = _define(
    60322,
    "rename-target-busy",
    scope=Scope.TARGET,
    message="task {task}: a target table cannot be renamed now: {reason}",
    workaround="Nothing was changed. `dmctl query-status {task}`, `dmctl shard-ddl-lock {task}` and `dmctl quarantine "
    "list {task}` show what is in progress. Repeat the command when it has ended. Where it does not end: docs/how-to/"
    "update-a-task.md describes the rename without this command.",
)
RENAME_SHARED = _define(
    60323,
    "rename-target-shared",
    scope=Scope.CONFIG,
    message="task {task}: another task has rows or records of {before} or {after}",
    workaround="Nothing was changed. The name would change for one of the tasks only. Stop both, rename the table and "
    "start both with the new name as docs/how-to/update-a-task.md describes it; or keep the name.",
)
RENAME_REFUSED = _define(
    60324,
    "rename-target-refused",
    scope=Scope.TARGET,
    message="task {task}: the target refused {statement}: {reason} (errno {errno})",
    workaround="Nothing was changed. The task's user needs ALTER and DROP on the table, CREATE and INSERT on the new "
    "name. A lock wait timeout: a transaction uses the table; end it. Then repeat the command.",
)
UPDATE_MOVES = _define(
    60325,
    "update-moves-tables",
    scope=Scope.CONFIG,
    message="task {task}: with this file {count} shard table(s) get another target table, e.g. {table} of source "
    "{source}: {after} instead of {before}; their history would be copied again, and {before} would stay as it is",
    workaround="Nothing was changed. If the name in the routes is a mistake, correct the file. `dmctl update-task "
    "<file> --dry-run` lists all changes. To rename the table at the target without a copy: `dmctl update-task <file> "
    "--rename-target`. To copy the history into the other table: `dmctl update-task <file> --move-tables`.",
)
