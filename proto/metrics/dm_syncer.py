"""DM's metrics of the replicate unit (its subsystem "syncer"), with DM's names and labels."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.metrics.distribution import DURATIONS, LAGS, STEPS
from shardmerge.proto.metrics.family import Family, MetricKind, Origin

_family = partial(Family, origin=Origin.DM)
_counter = partial(_family, kind=MetricKind.COUNTER)
_gauge = partial(_family, kind=MetricKind.GAUGE)
_seconds = partial(_family, kind=MetricKind.HISTOGRAM, buckets=DURATIONS, unit="seconds")

_TASK = ("task", "source_id")
_WORKER = ("task", "worker", "source_id")
_JOBS = ("type", "task", "queueNo", "source_id", "worker", "target_schema", "target_table")

ADDED_JOBS = _counter(
    "dm_syncer_added_jobs_total",
    help="Row changes of committed transactions, by type and target table. Equal to dm_syncer_finished_jobs_total: a "
    "lane has no queue between both.",
    labels=_JOBS,
)
FINISHED_JOBS = _counter(
    "dm_syncer_finished_jobs_total",
    help="Row changes of committed transactions, by type and target table; queueNo is the lane. A change of a key "
    "counts as a delete and an insert.",
    labels=_JOBS,
)
IDEAL_QPS = _gauge(
    "dm_syncer_ideal_qps",
    help="Row changes per second that the lanes would reach if they did nothing but write to the target.",
    labels=_WORKER,
)
BINLOG_POS = _gauge(
    "dm_syncer_binlog_pos",
    help="Position in the binlog file: node is master (the end of the source's binlog) or syncer (the slowest lane).",
    labels=("node", *_TASK),
)
BINLOG_FILE = _gauge(
    "dm_syncer_binlog_file",
    help="Number of the binlog file: node is master (the end of the source's binlog) or syncer (the slowest lane).",
    labels=("node", *_TASK),
)
TXN_DURATION = _seconds(
    "dm_syncer_txn_duration_time",
    help="Time of one transaction at the target, from its first statement to the answer to COMMIT.",
    labels=_WORKER,
)
EXIT_WITH_ERROR = _counter(
    "dm_syncer_exit_with_error_count",
    help="Runs of the replicate unit that ended with an error; resumable_err: whether the worker tries again by "
    "itself.",
    labels=(*_TASK, "resumable_err"),
)
REPLICATION_LAG = _gauge(
    "dm_syncer_replication_lag_gauge",
    help="Age of the oldest transaction of the source that is not applied. Absent while it is not known, never 0 "
    "during a backlog.",
    labels=(*_TASK, "worker"),
    unit="seconds",
)
REPLICATION_LAG_HISTOGRAM = _family(
    "dm_syncer_replication_lag",
    MetricKind.HISTOGRAM,
    "Time from the commit at the source to the commit at the target, of the last transaction in each commit of a lane.",
    (*_TASK, "worker"),
    "seconds",
    buckets=LAGS,
)
REMAINING_TIME = _gauge(
    "dm_syncer_remaining_time",
    help="Time until the source is caught up with, by the speed of the last seconds. Absent while it cannot be "
    "estimated.",
    labels=(*_TASK, "worker"),
    unit="seconds",
)
SHARD_LOCK_RESOLVING = _gauge(
    "dm_syncer_shard_lock_resolving", help="1 while a lock of a sharding DDL of the task exists, else 0.", labels=_TASK
)
FINISHED_TRANSACTIONS = _counter(
    "dm_syncer_finished_transaction_total",
    help="Transactions that the lanes have committed at the target.",
    labels=_WORKER,
)
TRANSACTION_BATCH = _family(
    "dm_syncer_replication_transaction_batch",
    MetricKind.HISTOGRAM,
    "Size of a transaction at the target: type is rows (row changes) or statements; queueNo is the lane.",
    ("worker", *_TASK, "queueNo", "type"),
    buckets=STEPS,
)
CHECKPOINT_INTERVAL = _family(
    "dm_syncer_flush_checkpoints_time_interval",
    MetricKind.HISTOGRAM,
    "Time between two commits of a lane: each of them moves its checkpoint.",
    ("worker", *_TASK),
    "seconds",
    buckets=STEPS,
)

FAMILIES = (
    ADDED_JOBS,
    FINISHED_JOBS,
    IDEAL_QPS,
    BINLOG_POS,
    BINLOG_FILE,
    TXN_DURATION,
    EXIT_WITH_ERROR,
    REPLICATION_LAG,
    REPLICATION_LAG_HISTOGRAM,
    REMAINING_TIME,
    SHARD_LOCK_RESOLVING,
    FINISHED_TRANSACTIONS,
    TRANSACTION_BATCH,
    CHECKPOINT_INTERVAL,
)
