"""Pre-check errors about resources of the servers and the worker: connections, disks, slots, clocks, binlogs.

See proto/errors/check.py.
"""

from __future__ import annotations

from functools import partial

from shardmerge.proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="check")
CONNECTIONS_TOO_FEW = _define(
    12026,
    "connections-too-few",
    scope=Scope.SOURCE,
    message="{server}: the task opens up to {needed} connections ({parts}), {limit} allows {allowed}",
    workaround="{way_out}",
)
CONNECTIONS_TAKEN = _define(
    12027,
    "connections-nearly-taken",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="{server}: the task opens up to {needed} connections ({parts}), and {used} of max_connections {allowed} "
    "are taken now",
    workaround="{way_out}",
)
TARGET_VERSION = _define(
    12034,
    "target-version-unsupported",
    scope=Scope.TARGET,
    message="the target's server version {version} is not supported",
    workaround="Use MySQL 5.7 or newer, MariaDB 10.2 or newer, or TiDB 6.2 or newer.",
)
TARGET_UNTESTED = _define(
    12035,
    "target-version-untested",
    scope=Scope.TARGET,
    level=Level.LOW,
    message="the target's server version {version} was not tested",
    workaround="Nothing to do; compare the target after the copy.",
)
TARGET_DISK = _define(
    12036,
    "target-disk-too-small",
    scope=Scope.TARGET,
    message="the target's data directory {path} has {free} free, and the source's tables hold about {expected}",
    workaround="Give the target's server more disk, or copy fewer tables.",
)
BINLOG_RETENTION = _define(
    12043,
    "binlog-retention-short",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: {kept}, and the copy may take about {needed}",
    workaround="The relay log stores the binlog from the start on, so that nothing is lost while the worker runs. But "
    "a worker that is down for longer than the source keeps its binlogs, or one that takes over the source during the "
    "copy, must fetch them again from the copy's start: {way_out}",
)
GTID_HOLES = _define(
    12044,
    "gtid-set-has-holes",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="source {source}: {whose} has holes: {holes}",
    workaround="{way_out}",
)
GTID_UNKNOWN = _define(
    12045,
    "gtid-unknown-to-source",
    scope=Scope.SOURCE,
    message="source {source}: {key} {gtid_set} names {missing}, which the source never executed",
    workaround="Give the set that the data at the target corresponds to, as SELECT @@GLOBAL.gtid_executed (MariaDB: "
    "@@GLOBAL.gtid_current_pos) showed it at this source or at a server that it replicates with.",
)
CLOCK_SKEW = _define(
    12052,
    "clocks-differ",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="{differences} ({limit} s are allowed)",
    workaround="Let all machines follow one time server (chrony, ntpd). No row depends on the clocks, and lag figures "
    "allow for the source's; --start-time and stop-at are times of the source's clock.",
)
SPARK_SLOTS = _define(
    12053,
    "spark-slots-too-few",
    scope=Scope.CONFIG,
    message="worker {worker}: {purpose} take at least {needed} Spark slots at the same time, and {free} of {total} are "
    "free",
    workaround="Set spark.master to local[{wanted}] or more in the worker's file (spark.cores.max elsewhere) and "
    "restart it, or lower syncers.worker-count.",
)
SPARK_SLOTS_TIGHT = _define(
    12054,
    "spark-slots-tight",
    scope=Scope.CONFIG,
    level=Level.LOW,
    message="worker {worker}: {free} of {total} Spark slots are free, enough for the task; to copy with all its chunk "
    "readers, also tables that join while it replicates (update-task, a new shard table), takes {needed}",
    workaround="Set spark.master to local[{wanted}] or more in the worker's file. Until then a copy has as many chunk "
    "readers as slots are free, and more when slots become free; lanes of joining tables are tried again until there "
    "are slots for them.",
)
SPARK_AWAY = _define(
    12055,
    "spark-away",
    scope=Scope.INTERNAL,
    message="worker {worker}: its Spark driver is gone",
    workaround="The worker ends by itself, and its supervisor must start it again: see its log.",
)
RELAY_DISK = _define(
    12056,
    "relay-disk-too-small",
    scope=Scope.SOURCE,
    message="worker {worker}: {directory} has {free} free; while the copy lasts, about {seconds}, the source's binlog "
    "grows by about {growth} ({rate} an hour)",
    workaround="Move relay-dir to a larger disk: nothing of the relay log can be purged before the copy has ended.",
)
RELAY_DISK_SHORT = _define(
    12057,
    "relay-disk-short",
    scope=Scope.SOURCE,
    level=Level.MEDIUM,
    message="worker {worker}: {directory} has {free} free, {reason}",
    workaround="{way_out}",
)
