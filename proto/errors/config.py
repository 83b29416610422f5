"""Configuration and rules errors: codes 10001–11999."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="config")

NOT_YAML = _define(
    10001,
    "not-yaml",
    scope=Scope.CONFIG,
    message="{finding}",
    workaround="Correct the YAML there (indentation, quotes, a tab), then repeat the command.",
)
INVALID = _define(
    10002,
    "invalid-configuration",
    scope=Scope.CONFIG,
    message="{finding}{more}",
    workaround="Change the named keys, then repeat the command; nothing was started.",
)
NOT_SUPPORTED = _define(
    10003,
    "not-supported-yet",
    scope=Scope.CONFIG,
    message="{finding}{more}",
    workaround="Ignoring these keys would change what happens to the data, so the file is refused. "
    "Remove them; the message names what to use instead of each.",
)
UNREADABLE = _define(
    10004,
    "configuration-unreadable",
    scope=Scope.CONFIG,
    message="cannot read {file}: {reason}",
    workaround="Give the path of a UTF-8 file that this user may read.",
)
SECRET_MISSING = _define(
    10005,
    "secret-missing",
    scope=Scope.CONFIG,
    message="{finding}{more}",
    workaround="Set the environment variable where dm-master runs and start it again, or write the value itself.",
)

ID_OVERFLOW = _define(
    11001,
    "id-overflow",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table}.{column} = {value} does not fit the {bits} bits that "
    "`partition id` leaves for the original id{at}",
    workaround='Widen the original id by giving "" for an unused part of the mapping\'s arguments, or '
    "leave the table out of the task; nothing was written for this row.",
)
PATTERN = _define(
    11002,
    "bad-pattern",
    scope=Scope.CONFIG,
    message="task {task}: {rule}: pattern {pattern}: {reason}",
    workaround="Patterns are names with ?, [a-z], [!a-z] and one * at the end, or ~ and a regular expression.",
)
AMBIGUOUS_ROUTE = _define(
    11003,
    "ambiguous-route",
    scope=Scope.CONFIG,
    message="source {source}: {schema}.{table} matches the routes {rules}, none of which is more "
    "specific than the others",
    workaround="Narrow the patterns so that one route is the most specific for this table, or ignore "
    "the table in the block-allow-list; stop-task and start-task with the new file.",
)
AMBIGUOUS_MAPPING = _define(
    11004,
    "ambiguous-column-mapping",
    scope=Scope.CONFIG,
    message="source {source}: {schema}.{table}.{column} matches the column mappings {rules}, none "
    "of which is more specific than the others",
    workaround="Narrow the patterns so that one mapping is the most specific for this column, then "
    "stop-task and start-task with the new file.",
)
MAPPED_COLUMN_MISSING = _define(
    11005,
    "mapped-column-missing",
    scope=Scope.CONFIG,
    message="source {source}: column mapping {rule} names column {column}, which {schema}.{table} "
    "does not have or only generates",
    workaround="Correct the rule's column, or narrow its table-pattern to tables that have it.",
)
MAPPED_COLUMN_TYPE = _define(
    11006,
    "mapped-column-type",
    scope=Scope.CONFIG,
    message="source {source}: column mapping {rule} ({expression}) does not work on "
    "{schema}.{table}.{column} of type {type}",
    workaround="`partition id` maps integer columns; `add prefix` and `add suffix` map CHAR, VARCHAR and TEXT.",
)
PARTITION_NAME = _define(
    11007,
    "partition-name",
    scope=Scope.CONFIG,
    message="source {source}: column mapping {rule}: {schema}.{table}: {reason}",
    workaround="A name must be the prefix itself (number 0), or prefix, separator and a number that "
    "fits: 0-127 for schemas, 0-255 for tables. Correct the arguments, or narrow the rule's patterns.",
)
PARTITION_CLASH = _define(
    11008,
    "partition-clash",
    scope=Scope.CONFIG,
    message="source {source}: {first} and {second} go to {target} with the same partition number "
    "for {columns}: their ids would collide",
    workaround="Give the mapping a part that distinguishes the two (schema prefix or table prefix), or "
    "rename one of them: numbers 1 and 01 are the same number, and a name that is only the prefix has "
    "number 0.",
)
START_UNREADABLE = _define(
    10008,
    "start-unreadable",
    scope=Scope.CONFIG,
    message="{given} is no start of replication",
    workaround='Give a time ("2026-01-02 03:04:05" in the source\'s time zone, or with an offset: '
    '"2026-01-02T03:04:05+02:00"), earliest or latest. A binlog position or a GTID set goes into the task file\'s '
    "`meta`.",
)
STOP_UNREADABLE = _define(
    10009,
    "stop-unreadable",
    scope=Scope.CONFIG,
    message="{given} is no end of replication",
    workaround='Give a binlog position ("mysql-bin.000003:4711"), a GTID set, or a time ("2026-01-02 03:04:05" in the '
    'source\'s time zone, or with an offset: "2026-01-02T03:04:05+02:00").',
)
START_OF_SNAPSHOT = _define(
    10010,
    "start-of-snapshot",
    scope=Scope.CONFIG,
    message="task {task}: a start time is given, but task-mode: {mode} begins with a snapshot of the current rows",
    workaround="Use task-mode: incremental, or leave the start time out.",
)
STOP_OF_FULL = _define(
    10011,
    "stop-of-full",
    scope=Scope.CONFIG,
    message="task {task}: an end of replication is given, but task-mode: full does not replicate",
    workaround="Use task-mode: all or incremental, or leave the end out.",
)
NOT_TOML = _define(
    10012,
    "not-toml",
    scope=Scope.CONFIG,
    message="{finding}",
    workaround="Correct the TOML there (quotes, brackets, a key given twice), then start the process again.",
)
TOO_LARGE = _define(
    10013,
    "configuration-too-large",
    scope=Scope.CONFIG,
    message="{finding}{more}",
    workaround="Check that this is the right file; patterns name thousands of tables in one line.",
)
LOG_FILE = _define(
    10014,
    "log-file-unusable",
    scope=Scope.CONFIG,
    message="log-file {file} cannot be written: {reason}",
    workaround="Create its directory, let the daemon's user write there, or remove log-file.",
)
SECRET_UNREADABLE = _define(
    10015,
    "secret-unreadable",
    scope=Scope.CONFIG,
    message="{finding}{more}",
    workaround="Copy the masters' key file to the path in this message, or set secret-key-path to it (dmctl, masters "
    "and workers need the same key), or encrypt the value again with `dmctl encrypt`.",
)
SECRET_OF_ANOTHER_SERVER = _define(
    10050,
    "secret-of-another-server",
    scope=Scope.CONFIG,
    message="{finding}{more}",
    workaround="Write the value into the file again, as plain text or as the output of `dmctl encrypt`, and repeat the "
    "command; for a stored one `dmctl operate-source update FILE` or `dmctl update-task FILE`. If no operator has "
    "changed the account, the address or the TLS keys, another program has written to etcd: see who has access to it.",
)
SECRET_KEY_MISSING = _define(
    10016,
    "secret-key-missing",
    scope=Scope.CONFIG,
    message="{finding}{more}",
    workaround="Copy the masters' key file (by default ~/.local/state/shardmerge/secret.key on a master's machine) to "
    "that path, mode 0600; or set secret-key-path in the daemon's file, or the flag of that name, to a copy of it and "
    "restart the process.",
)
SECRET_KEY_UNUSABLE = _define(
    10017,
    "secret-key-unusable",
    scope=Scope.CONFIG,
    message="the key file {path} cannot be used: {reason}",
    workaround="Make one with `dmctl encrypt --new-key FILE`; the users of dmctl, dm-master and dm-worker must be "
    "able to read it.",
)
HOST_NOT_ALLOWED = _define(
    10018,
    "host-not-allowed",
    scope=Scope.CONFIG,
    message="{finding}{more}",
    workaround="No connection was made. Correct host, or add its network to allowed-networks in the files of dm-master "
    "and dm-worker and restart them.",
)
VARIABLE_NOT_ALLOWED = _define(
    10019,
    "variable-not-allowed",
    scope=Scope.CONFIG,
    message="{finding}{more}",
    workaround="Rename the variable, or add a prefix of its name to env-prefixes in the files of all dm-masters and "
    "restart them. Other variables are refused because a caller that may send a file could otherwise have the value of "
    "any variable sent to a server of its choice.",
)
OPEN_ADDRESS = _define(
    10048,
    "address-open-to-others",
    scope=Scope.CONFIG,
    message="{finding}{more}",
    workaround="Set ssl-ca, ssl-cert and ssl-key (`dmctl tls init` makes the files; docs/how-to/tls.md); or listen on "
    "127.0.0.1; or set insecure: true if every user of the network may control this cluster and read its data.",
)
SPARK_MASTER = _define(
    10049,
    "spark-master-not-supported",
    scope=Scope.CONFIG,
    message="a worker cannot run on the Spark that {key}: {value} names: it needs a Spark driver in its own process",
    workaround="Set master under `spark` in the worker's file to local[N] (Spark inside of the worker) or "
    "spark://HOST:PORT (a standalone cluster) or yarn, and remove spark.remote, spark.api.mode and the variable "
    "SPARK_REMOTE. k8s://… is accepted too, but was never run. Spark Connect (sc://…) is not supported. "
    "docs/how-to/spark-cluster.md describes clusters.",
)
EXTRACT_CLASH = _define(
    11010,
    "extracted-column-clash",
    scope=Scope.CONFIG,
    message="source {source}: the route of {schema}.{table} adds the column {column}, and the table has a column of "
    "that name already",
    workaround="Give the extracted column another name, or drop or rename the column of the shard table.",
)
EXPRESSION_COLUMN = _define(
    11009,
    "expression-column-missing",
    scope=Scope.CONFIG,
    message="source {source}: {rule}: {expression} names {column}, which is no column of {schema}.{table}, or one that "
    "the table only generates",
    workaround="Name a stored column; put a text between single quotes. With a corrected task file: "
    "update-task, or stop-task and start-task.",
)
EXPRESSION_REFUSED = _define(
    11011,
    "expression-refused",
    scope=Scope.CONFIG,
    message="source {source}: {rule}: {expression} cannot be used: {reason}",
    workaround="Rules must give the same result for a row at any time: write the expression with columns, constants "
    "and functions of these only.",
)
ID_OF_NOBODY = _define(
    11012,
    "id-of-no-shard-table",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="{file}: no column mapping `partition id` makes the id {id}",
    workaround="Give the file that the task runs with, and an id as the target table has it.",
)
TRANSFORM_REFUSED = _define(
    11013,
    "transform-refused",
    scope=Scope.CONFIG,
    message="source {source}: transform {rule} cannot be used for {schema}.{table}: {reason}",
    workaround="Correct projection and filter (Spark SQL over one row of the table; docs/reference/rules.md, "
    "Transforms), or the function, its columns and output (the same page, Transforms in Python), then start-task; for "
    "a running task: update-task, where tables that are merged already keep their transform (a rule of its own for "
    "this one), else stop-task and start-task.",
)
MODULE_NOT_ALLOWED = _define(
    11021,
    "transform-module-not-allowed",
    scope=Scope.CONFIG,
    message="source {source}: transform {rule} of {schema}.{table} names module {module}, which the worker's file does "
    "not allow",
    workaround="Nothing was imported. If you trust the module, add it to the file of every dm-worker, "
    "`transform-modules: [{module}]`, install it where Spark runs its tasks, and restart the workers; then start-task "
    "or resume-task. Otherwise take the transform out of the task file.",
)
TRACING_MISSING = _define(
    11022,
    "tracing-not-installed",
    scope=Scope.CONFIG,
    message="trace-endpoint is set, but the Python module {module} is not installed",
    workaround="Run `pip install 'shardmerge[tracing]'` in the daemon's environment, or remove trace-endpoint.",
)
REFERENCE_SHARD = _define(
    11014,
    "referred-shard-table-unclear",
    scope=Scope.CONFIG,
    message="source {source}: reference {reference}: {schema}.{table}: {reason}",
    workaround="Name the shard table to which this one refers: add shard-table (for example users_*, where * is "
    "the digits at the end of this table's name), and shard-schema if it is in another schema, to the entry of "
    "`references`; or correct `to`. `dmctl rules <file>` shows the result for each table.",
)
REFERENCE_CLASH = _define(
    11015,
    "reference-and-mapping-differ",
    scope=Scope.CONFIG,
    message="source {source}: {schema}.{table}.{column} is mapped by a column mapping or another reference, and "
    "differently by reference {reference}",
    workaround="Keep one of them. A column that refers to another table's ids needs the reference: the numbers in its "
    "values are those of the other table.",
)
