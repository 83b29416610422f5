"""Our metrics of dm-master. What the records in etcd hold is exported by the leader alone."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.metrics.family import Exporter, Family, MetricKind

_gauge = partial(Family, kind=MetricKind.GAUGE, exporter=Exporter.MASTER)

LEADER = _gauge("dm_leader", help="1 if this master is the leader, else 0. The sum over all masters should be 1.")
RECORDS_AGE = _gauge(
    "dm_records_age_seconds",
    help="Time since the leader last read the records in etcd, from which the other metrics are computed.",
    unit="seconds",
)
RECORDS_REVISION = _gauge(
    "dm_records_revision",
    help="Revision of etcd when the leader last read the records. A lower one than before: etcd has lost data.",
)
MASTERS = _gauge("dm_masters", help="Masters that are alive.")
WORKERS = _gauge("dm_workers", help="Workers that are alive: state is free or bound.", labels=("state",))
SOURCES = _gauge(
    "dm_sources",
    help="Sources: state is bound (to a live worker), unbound (no live worker has it) or disabled.",
    labels=("state",),
)
SUBTASKS = _gauge(
    "dm_subtasks",
    help="Subtasks by the stage that they should have: running or paused.",
    labels=("task", "expected"),
)
SOURCE_BOUND = _gauge(
    "dm_source_bound", help="1 if a live worker has the source, else 0.", labels=("source_id", "worker")
)
DDL_LOCKS = _gauge(
    "dm_ddl_locks",
    help="Locks of sharding DDLs: stage is gathering (shard tables are missing), executing or released.",
    labels=("task", "stage"),
)
DDL_LOCK_AGE = _gauge(
    "dm_ddl_lock_age_seconds",
    help="Age of the oldest lock of a sharding DDL of the task; absent without one.",
    labels=("task",),
    unit="seconds",
)
DDL_LOCK_OLDEST = _gauge(
    "dm_ddl_lock_oldest",
    help="Always 1: lock is the id of the oldest lock of a sharding DDL of the task. One series per task; absent "
    "without a lock.",
    labels=("task", "lock"),
)
DDL_CONFLICTS = _gauge(
    "dm_ddl_lock_conflicts",
    help="Locks of sharding DDLs whose shard tables wait at different statements (error 50101): a person must decide.",
    labels=("task",),
)
DDL_CONFLICT_OLDEST = _gauge(
    "dm_ddl_lock_conflict_oldest",
    help="Always 1: the oldest of the conflicts that dm_ddl_lock_conflicts counts. source_id and table are those of "
    "the shard table that was first to wait at another statement than the lock's. One series per task; absent without "
    "a conflict.",
    labels=("task", "lock", "source_id", "table"),
)
DDL_LOCK_SOURCES = _gauge(
    "dm_ddl_lock_sources",
    help="Sources at the locks of sharding DDLs: state is synced (all its shard tables have reached the statement) or "
    "unsynced.",
    labels=("task", "state"),
)
PLACEMENTS = Family(
    "dm_source_placements_total",
    MetricKind.COUNTER,
    "Changes of bindings by this leader: kind is bind, rebind (another worker takes over) or unbind. A source that "
    "gets its worker when it is created is not counted.",
    ("kind",),
    exporter=Exporter.MASTER,
)
WORKER_CLOCK = _gauge(
    "dm_worker_clock_difference_seconds",
    help="By how much the clock of a worker is ahead of the leader's, without the time that the answer took; measured "
    "every 10 seconds. Absent while the worker does not answer, or so slowly that a second may be the answer's time.",
    labels=("worker",),
    unit="seconds",
)
API_REQUESTS = Family(
    "dm_api_requests_total",
    MetricKind.COUNTER,
    "Calls of gRPC that this master has answered: code is the status of gRPC, such as OK or UNAVAILABLE.",
    ("method", "code"),
    exporter=Exporter.MASTER,
)
API_SECONDS = Family(
    "dm_api_request_seconds_total",
    MetricKind.COUNTER,
    "Time from the arrival of a gRPC call to the end of its answer, of all calls of the method together.",
    ("method",),
    "seconds",
    exporter=Exporter.MASTER,
)

FAMILIES = (
    LEADER,
    RECORDS_AGE,
    RECORDS_REVISION,
    MASTERS,
    WORKERS,
    SOURCES,
    SUBTASKS,
    SOURCE_BOUND,
    DDL_LOCKS,
    DDL_LOCK_AGE,
    DDL_CONFLICTS,
    DDL_CONFLICT_OLDEST,
    DDL_LOCK_OLDEST,
    DDL_LOCK_SOURCES,
    PLACEMENTS,
    WORKER_CLOCK,
    API_REQUESTS,
    API_SECONDS,
)
