"""DM's metrics of the replicate unit (its subsystem "syncer"), with DM's names and labels."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.metrics.distribution import DURATIONS, LAGS, SIZES, STEPS, exponential, linear
from shardmerge.proto.metrics.family import Family, Kind, Origin

_family = partial(Family, origin=Origin.DM)
_counter = partial(_family, kind=Kind.COUNTER)
_gauge = partial(_family, kind=Kind.GAUGE)
_seconds = partial(_family, kind=Kind.HISTOGRAM, buckets=DURATIONS, unit="seconds")

_TASK = ("task", "source_id")
_WORKER = ("task", "worker", "source_id")
_JOBS = ("type", "task", "queueNo", "source_id", "worker", "target_schema", "target_table")

_IN_BLOCKS = (
    "Lanes decode blocks of events in compiled code and take no time of a single event: dm_lane_seconds_total has the "
    "time of each activity."
)

READ_BINLOG_DURATION = _seconds(
    "dm_syncer_read_binlog_duration", help="Time to read one binlog event.", labels=_TASK, absent=_IN_BLOCKS
)
BINLOG_EVENT_SIZE = _family(
    "dm_syncer_binlog_event_size",
    Kind.HISTOGRAM,
    "Size of a binlog event.",
    _WORKER,
    "bytes",
    buckets=SIZES,
    absent="Lanes decode blocks of events in compiled code and observe no single event: dm_relay_written_bytes_total "
    "has the bytes.",
)
BINLOG_TRANSFORM_COST = _seconds(
    "dm_syncer_binlog_transform_cost",
    help="Time to transform one binlog event, by stage.",
    labels=("stage", *_WORKER),
    absent=_IN_BLOCKS,
)
CONFLICT_DETECT_DURATION = _seconds(
    "dm_syncer_conflict_detect_duration",
    help="Time to look for a conflict between rows of different queues.",
    labels=_TASK,
    absent="There are no conflicts to detect: a key always belongs to the same lane.",
)
ADD_JOB_DURATION = _seconds(
    "dm_syncer_add_job_duration",
    help="Time to put a job into a queue.",
    labels=("type", "task", "queueNo", "source_id"),
    absent="Lanes have no queues of jobs: each decodes its own rows.",
)
DISPATCH_BINLOG_DURATION = _seconds(
    "dm_syncer_dispatch_binlog_duration",
    help="Time to dispatch the rows of one binlog event.",
    labels=("type", *_TASK),
    absent="Nothing is dispatched: each lane reads all events and keeps its own rows.",
)
SKIP_BINLOG_DURATION = _family(
    "dm_syncer_skip_binlog_duration",
    Kind.HISTOGRAM,
    "Time to skip one binlog event.",
    ("type", *_TASK),
    "seconds",
    buckets=exponential(5e-7, 2, 25),
    absent=_IN_BLOCKS,
)
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
QUEUE_SIZE = _gauge(
    "dm_syncer_queue_size",
    help="Jobs in a queue.",
    labels=("task", "queue_id", "source_id"),
    absent="Lanes have no queues of jobs: dm_lane_bytes_behind has what a lane has not applied.",
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
BINLOG_EVENT_ROW = _family(
    "dm_syncer_binlog_event_row",
    Kind.HISTOGRAM,
    "Rows in a binlog event.",
    ("worker", *_TASK),
    buckets=linear(0, 100, 101),
    absent="Lanes decode blocks of events in compiled code and observe no single event; 102 series for each subtask "
    "would also be too many.",
)
TXN_DURATION = _seconds(
    "dm_syncer_txn_duration_time",
    help="Time of one transaction at the target, from its first statement to the answer to COMMIT.",
    labels=_WORKER,
)
QUERY_DURATION = _seconds(
    "dm_syncer_query_duration_time",
    help="Time of one query at the target.",
    labels=_WORKER,
    absent="A lane sends the statements of a small transaction together: there is no time of a single one. "
    "dm_syncer_txn_duration_time has the time of the transaction.",
)
STMT_DURATION = _seconds(
    "dm_syncer_stmt_duration_time",
    help="Time of one statement at the target, by type.",
    labels=("type", "task"),
    absent="A lane sends the statements of a small transaction together: there is no time of a single one. "
    "dm_syncer_txn_duration_time has the time of the transaction.",
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
    Kind.HISTOGRAM,
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
UNSYNCED_TABLES = _gauge(
    "dm_syncer_unsynced_table_number",
    help="Shard tables that have not reached a sharding DDL.",
    labels=("task", "table", "source_id"),
    absent="A worker knows its own tables only: dm_ddl_lock_sources of dm-master counts sources that lack tables.",
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
    Kind.HISTOGRAM,
    "Size of a transaction at the target: type is rows (row changes) or statements; queueNo is the lane.",
    ("worker", *_TASK, "queueNo", "type"),
    buckets=STEPS,
)
CHECKPOINT_INTERVAL = _family(
    "dm_syncer_flush_checkpoints_time_interval",
    Kind.HISTOGRAM,
    "Time between two commits of a lane: each of them moves its checkpoint.",
    ("worker", *_TASK),
    "seconds",
    buckets=STEPS,
)

FAMILIES = (
    READ_BINLOG_DURATION,
    BINLOG_EVENT_SIZE,
    BINLOG_TRANSFORM_COST,
    CONFLICT_DETECT_DURATION,
    ADD_JOB_DURATION,
    DISPATCH_BINLOG_DURATION,
    SKIP_BINLOG_DURATION,
    ADDED_JOBS,
    FINISHED_JOBS,
    IDEAL_QPS,
    QUEUE_SIZE,
    BINLOG_POS,
    BINLOG_FILE,
    BINLOG_EVENT_ROW,
    TXN_DURATION,
    QUERY_DURATION,
    STMT_DURATION,
    EXIT_WITH_ERROR,
    REPLICATION_LAG,
    REPLICATION_LAG_HISTOGRAM,
    REMAINING_TIME,
    UNSYNCED_TABLES,
    SHARD_LOCK_RESOLVING,
    FINISHED_TRANSACTIONS,
    TRANSACTION_BATCH,
    CHECKPOINT_INTERVAL,
)
