"""Worker and Spark errors: codes 70001–70999."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="worker")

SPARK_TASK_LOST = _define(
    70001,
    "spark-task-lost",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="a Spark task of {job} ended without a result: {reason}",
    workaround="The worker starts it again by itself. If it repeats, look at the worker's log and Spark's UI.",
    retryable=True,
)
SPARK_LOST = _define(
    70002,
    "spark-driver-lost",
    scope=Scope.INTERNAL,
    message="the Spark driver's JVM is gone: {reason}",
    workaround="The worker restarts itself in place. If it repeats, look for the kernel's out-of-memory killer and "
    "raise spark.driver.memory.",
    retryable=True,
)
SPARK_START_FAILED = _define(
    70003,
    "spark-start-failed",
    scope=Scope.CONFIG,
    message="Spark did not start: {reason}",
    workaround="Check that a Java 17+ runtime is installed (JAVA_HOME or java on PATH) and the `spark` section of the "
    "worker's configuration.",
)
NO_SLOTS = _define(
    70004,
    "spark-slots-exhausted",
    scope=Scope.CONFIG,
    message="{job} needs {needed} Spark slots, {free} of {total} are free",
    workaround="A copy needs one slot, lanes need all of theirs: the run is tried again until they are free. Raise the "
    "number in the worker's spark.master (e.g. local[64]; spark.cores.max elsewhere), or lower the task's "
    "syncers.worker-count.",
    retryable=True,
)
STREAM_LOST = _define(
    70005,
    "relay-stream-lost",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="lane {lane} lost its stream from worker {address}: {reason}",
    workaround="The worker starts the lanes again by itself.",
    retryable=True,
)
INTERNAL = _define(
    70006,
    "internal-error",
    scope=Scope.INTERNAL,
    message="unexpected {kind} in {where}: {reason}",
    workaround="This is a bug: report it with the worker's log around this time. Nothing uncommitted was kept.",
)
LANE_STOPPED = _define(
    70007,
    "lane-stopped",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="lane {lane} of task {task}, source {source} ended unexpectedly: {reason}",
    workaround="The worker starts the lanes again by itself.",
    retryable=True,
)
LEASE_LOST = _define(
    70008,
    "worker-lease-lost",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="worker {worker} lost its lease in etcd; its lanes were stopped",
    workaround="Check that etcd answers; the worker registers again and continues by itself.",
    retryable=True,
)
NOT_BOUND = _define(
    70009,
    "worker-not-bound",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="source {source} is no longer bound to worker {worker}",
    workaround="Nothing to do: another worker has it, or the source was stopped.",
    retryable=True,
)
DECODER_NOT_COMPILED = _define(
    70010,
    "decoder-not-compiled",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="the binlog decoder runs uncompiled on {where}: correct, but slow",
    workaround="Install shardmerge where a C compiler is available (pip install .) on every machine that runs Spark "
    "tasks.",
)
TLS_FILE = _define(
    70011,
    "tls-file-unusable",
    scope=Scope.CONFIG,
    message="{files}: cannot be used on this worker's machine: a file is missing, not readable for the worker's user, "
    "or no PEM file, or the key is encrypted or does not belong to the certificate; the worker's log has the reason",
    workaround="The log has a line 'TLS files cannot be used' at level info; for an executor of Spark on another "
    "machine it is in the executor's log. Put PEM files that the worker can read there, on every worker's machine, or "
    "correct the path under "
    "security in the source's file (`dmctl operate-source update <source-file>`) or the task's (`dmctl update-task "
    "<file>`); then `dmctl resume-task <task>`.",
)
TLS_CONTENT = _define(
    70016,
    "tls-content-unusable",
    scope=Scope.CONFIG,
    message="the value of {key} in the configuration cannot be used: {reason}",
    workaround="Give the PEM text of the certificate and of its key under security in the source's file "
    "(`dmctl operate-source update <source-file>`) or the task's (`dmctl update-task <file>`); then `dmctl "
    "resume-task <task>`.",
)
TLS_PEER_REFUSED = _define(
    70012,
    "tls-peer-refused",
    scope=Scope.CONFIG,
    message="the identity of the server at {host}:{port} cannot be verified: {reason}",
    workaround="Correct ssl-ca or cert-allowed-cn under security in the source's file (`dmctl operate-source update "
    "<source-file>`) or the "
    "task's (`dmctl update-task <file>`), or the server's certificate; nothing was sent to that server, no password "
    "either. Then "
    "`dmctl resume-task <task>`.",
)
TLS_NOT_OFFERED = _define(
    70013,
    "tls-not-offered",
    scope=Scope.CONFIG,
    message="the server at {host}:{port} offers no TLS, and the configuration asks for it",
    workaround="Give the server a certificate (ssl_cert, ssl_key) and a version (MySQL: tls_version), or remove "
    "security from the source's or the task's file: then the connection is in plain text. Nothing was sent to that "
    "server, no password either. Then `dmctl resume-task <task>`.",
)
PLACE_REFUSED = _define(
    70037,
    "committed-place-refused",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="lane {lane} of task {task}, source {source} reports relay offset {place} as committed, but the relay log "
    "does not reach that offset",
    workaround="Nothing was changed. A lane of an earlier relay log ends by itself. If the error persists, look for a "
    "program that pretends to be a lane of this worker.",
)
CONFIG_REFUSED = _define(
    70038,
    "request-config-refused",
    scope=Scope.CONFIG,
    level=Level.MEDIUM,
    message="the configuration in field {field} of the request cannot be read: {reason}",
    workaround="Send the file of the task or the source to a master of this version (update-task, operate-source "
    "update); the master sends the configuration to the workers.",
)
RELAY_UNREADABLE = _define(
    70014,
    "relay-log-unreadable",
    scope=Scope.INTERNAL,
    level=Level.MEDIUM,
    message="lane {lane} cannot read {start} to {end} from the relay log in {directory}: {reason}",
    workaround="The worker starts the lanes again by itself. If it repeats, check that folder's disk and permissions.",
    retryable=True,
)
SPARK_SETTING_REFUSED = _define(
    70027,
    "spark-setting-refused",
    scope=Scope.CONFIG,
    message="the worker does not start Spark with {key}: {value}: {reason}",
    workaround="Remove {key} from `spark` in the worker's file (SPARK_LOCAL_IP: from its environment), then start the "
    "worker. docs/reference/configuration.md lists the settings that are refused.",
)
SPARK_SECRET_MISSING = _define(
    70028,
    "spark-secret-missing",
    scope=Scope.CONFIG,
    message="Spark's processes at {master} authenticate with a shared secret, and the worker has none",
    workaround="Set spark.authenticate.secret under `spark` in the worker's file to the secret of the Spark cluster, "
    "and make the file readable for the worker's user only. The Spark cluster's master and workers must run with the "
    "same secret and spark.authenticate: true. Or let Spark run inside the worker: master: local[N].",
)
LOGIN_REFUSED = _define(
    70017,
    "login-refused",
    scope=Scope.CONFIG,
    message="{source}: the server at {host}:{port} requests the password of {user} by {method}, but {reason}; the "
    "password was not sent",
    workaround="Check host, port and password (MySQL also sends this request when the password is wrong). Then set "
    "`ssl-ca: FILE` under `security` in the source's file (`dmctl operate-source update <source-file>`) or the task's "
    "(`dmctl update-task <file>`), so that "
    "the server's certificate is verified. Or, for caching_sha2_password and for sha256_password without TLS, set "
    "`allow-public-key-retrieval: true` there; any program that answers at that address can then read the password. "
    "Or change the account's method to mysql_native_password or ed25519. Then `dmctl resume-task <task>`.",
)
ANSWER_REFUSED = _define(
    70018,
    "answer-refused",
    scope=Scope.CONFIG,
    message="{source}: the answer violates the MySQL protocol, or requests data that is never sent: {reason}",
    workaround="No password and no file was sent. Find out which program answers at that address: a proxy, another "
    "service, or an attacker who collects passwords. Correct host and port in the source's file (operate-source "
    "update) or the task's (`dmctl update-task <file>`), then `dmctl resume-task <task>`.",
)
ADDRESS_NOT_ALLOWED = _define(
    70019,
    "address-not-allowed",
    scope=Scope.CONFIG,
    message="{source}: {host}:{port} is not among the allowed-networks of dm-worker ({found}): no connection was made",
    workaround="Correct host in the source's file (`dmctl operate-source update <source-file>`) or the task's (`dmctl "
    "update-task <file>`); or add its "
    "network, or the host exactly as the file names it, to allowed-networks in the files of dm-worker and dm-master "
    "and restart them. Then `dmctl resume-task <task>`.",
)
SPARK_WORKER_ON_LOOPBACK = _define(
    70050,
    "spark-worker-on-loopback",
    scope=Scope.CONFIG,
    message="executors of {master} run on other machines, and the worker's advertise-addr {address} is reached from "
    "its own machine only",
    workaround="Set worker-addr and advertise-addr in the worker's file to an address that the executors reach, for "
    "example 10.0.0.2:8262, with ssl-ca, ssl-cert and ssl-key (docs/how-to/tls.md); then start the worker. Or let "
    "Spark run inside the worker: master: local[N].",
)
SPARK_VERSIONS_DIFFER = _define(
    70051,
    "spark-versions-differ",
    scope=Scope.CONFIG,
    message="{what} is {there} on the executor's host {host}, and {here} in the worker",
    workaround="Install the worker's versions of Python, pyspark, pyarrow and shardmerge on {host}, built from the "
    "same sources, or ship its environment with spark.archives (docs/how-to/spark-cluster.md); then start the worker.",
)
SPARK_CANNOT_REACH_WORKER = _define(
    70052,
    "spark-cannot-reach-worker",
    scope=Scope.CONFIG,
    message="the executor's host {host} cannot reach the worker at {address}: {reason}",
    workaround="Set advertise-addr in the worker's file to an address that {host} reaches, let worker-addr listen "
    "there, and open its port in firewalls. With TLS the files of ssl-ca, ssl-cert and ssl-key must exist on {host} "
    "at the same paths. Then start the worker.",
)
SPARK_NO_EXECUTOR = _define(
    70053,
    "spark-no-executor",
    scope=Scope.CONFIG,
    message="{master} has had no executor for this worker for {seconds} s; {cluster}",
    workaround="Start workers of the Spark cluster, or free cores and memory there: spark.executor.cores and "
    "spark.executor.memory of an executor must fit on one of its workers. If executors start and end again, their log "
    "(the Spark worker's folder work) has the reason: they must reach spark.driver.host, which is the host of the "
    "worker's advertise-addr by default. A worker that runs continues by itself; one that has not started is started "
    "again.",
    retryable=True,
)
SPARK_SLOTS_MISSING = _define(
    70054,
    "spark-slots-missing",
    scope=Scope.CONFIG,
    message="{master} provides {found} Spark slots, and {needed} are needed; {cluster}",
    workaround="Start more workers of the Spark cluster or free cores there, or lower spark.cores.max in the worker's "
    "file: it promises so many slots. A worker that runs continues by itself; one that has not started is started "
    "again.",
    retryable=True,
)
PACK_OUTPUT_REFUSED = _define(
    70055,
    "pack-output-refused",
    scope=Scope.CONFIG,
    message="the archive cannot be {path}: {reason}",
    workaround="Give another path to `dm-worker pack --output`, for example /opt/environment.tar.gz.",
)
PACK_PACKAGE_REFUSED = _define(
    70056,
    "pack-package-refused",
    scope=Scope.CONFIG,
    message="{package} cannot be packed: {reason}",
    workaround="Install it into the environment of dm-worker as a wheel (pip install), or correct the name in "
    "transform-modules or --module.",
)
PACK_FAILED = _define(
    70057,
    "pack-failed",
    scope=Scope.CONFIG,
    message="the archive {path} could not be written: {reason}",
    workaround="Correct what the message names, for example free space on the disk, and run the command again. An "
    "earlier archive at this path was not changed.",
)
