"""dmctl errors: codes 80001–80999."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="ctl")

USAGE = _define(
    80001,
    "usage",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{problem}",
    workaround="Look at `{command} --help`; nothing was sent to the master.",
)
MASTER_UNREACHABLE = _define(
    80002,
    "master-unreachable",
    scope=Scope.INTERNAL,
    message="no dm-master can be reached: {attempts}",
    workaround="Check that dm-master runs there and that this machine can reach it, or name the right address "
    "with --master-addr or DM_MASTER_ADDR.",
    retryable=True,
)
CONNECTION_LOST = _define(
    80003,
    "connection-lost",
    scope=Scope.INTERNAL,
    message="{command}: the connection to master {address} broke before it answered: {reason}",
    workaround="The master may have done it nevertheless: look with `dmctl query-status` or `dmctl "
    "operate-source show` before you repeat the command.",
    retryable=True,
)
DEADLINE_EXCEEDED = _define(
    80004,
    "deadline-exceeded",
    scope=Scope.INTERNAL,
    message="{command}: master {address} did not answer within {timeout}",
    workaround="The master may still be working: look with `dmctl query-status`, and give more time with "
    "--rpc-timeout (e.g. --rpc-timeout 30m).",
    retryable=True,
)
FILE_NOT_FOUND = _define(
    80005,
    "file-not-found",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{path}: there is no such file (looked in {directory})",
    workaround="Check the path; nothing was sent to the master.",
)
FILE_UNREADABLE = _define(
    80006,
    "file-unreadable",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{path}: {reason}",
    workaround="Give a readable file of UTF-8 text; nothing was sent to the master.",
)
NO_TASK_NAME = _define(
    80007,
    "no-task-name",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{path}:{line}: {reason}",
    workaround="Give a task file with `name: <task>` at its top level, or the task's name itself.",
)
BAD_CONFIG = _define(
    80008,
    "bad-dmctl-config",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{path}: {problem}",
    workaround="Correct the file (TOML with master-addr, rpc-timeout, secret-key-path and ssl-…) or leave --config "
    "out.",
)
NOT_SUPPORTED = _define(
    80009,
    "not-supported",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{what} is not supported by this version",
    workaround="{instead}",
)
SOME_FAILED = _define(
    80010,
    "some-failed",
    scope=Scope.INTERNAL,
    message="{command}: {failed} of {total} results are false: {which}",
    workaround="The answer lists every failure with its own code and what to do about it.",
)
CHECKS_FAILED = _define(
    80011,
    "checks-failed",
    scope=Scope.CONFIG,
    message="{command}: checks: {counts}; first {which}",
    workaround="Do what the answer describes for each failed check, or name the check under "
    "ignore-checking-items in the task file.",
)
REFUSED = _define(
    80012,
    "refused",
    scope=Scope.INTERNAL,
    message="{command}: the master answered: {answer}",
    workaround="Act on the master's answer; its log has the details.",
)
WAITING_IN_VAIN = _define(
    80013,
    "waiting-in-vain",
    scope=Scope.INTERNAL,
    message="task {task} on source {source} will not become {until}: it is {stage}{cause}",
    workaround="{way_out}",
)
INTERRUPTED = _define(
    80014,
    "interrupted",
    scope=Scope.INTERNAL,
    level=Level.LOW,
    message="dmctl was interrupted while it waited for the master",
    workaround="The master continues the command: look with `dmctl query-status` or `dmctl operate-source show`.",
)
MASTER_DIFFERS = _define(
    80015,
    "master-differs",
    scope=Scope.INTERNAL,
    message="the server at {address} does not know {command}",
    workaround="Check that this is the address of a dm-master (not of a dm-worker), and that it is as new as "
    "this dmctl.",
)
INTERNAL = _define(
    80016,
    "dmctl-bug",
    scope=Scope.INTERNAL,
    message="unexpected error in dmctl: {kind}: {reason}",
    workaround="Run the command again with --debug and report what it prints.",
)
EXPORT_INTO = _define(
    80017,
    "export-directory",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="config export: cannot write to {path}: {reason}",
    workaround="Give a directory that does not exist yet, or an empty one, with -p.",
)
IMPORT_FILE = _define(
    80018,
    "import-file",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="config import: {path}: {reason}",
    workaround="Correct the file, or remove it; nothing was sent to the master.",
)
IMPORT_DIFFERS = _define(
    80019,
    "import-differs",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="config import: {what} exists already, from another file than {path}",
    workaround="Nothing was changed. Remove the file, or make the two equal first (update-task for a task, "
    "operate-source for a source); `config task` and `config source` show what is stored.",
)
IMPORT_FAILED = _define(
    80020,
    "import-failed",
    scope=Scope.CONFIG,
    message="config import: {path} was refused: {reason}. {state}",
    workaround="{instruction}",
)
WRITE_FAILED = _define(
    80021,
    "file-not-written",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{path} cannot be written: {reason}",
    workaround="Give a path where this user may write a file.",
)
TABLE_NAME = _define(
    80022,
    "table-name",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{given} does not name one table",
    workaround="Write it as schema.table; a name that contains a dot or a backtick goes in backticks: "
    "`my.schema`.`table`.",
)
TLS_INIT = _define(
    80053,
    "tls-init",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="tls: {path}: {reason}",
    workaround="{instruction}",
)
