"""Our metrics of dm-worker. A value that is not known has no series: it is never exported as 0."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.metrics.family import Family, MetricKind

_gauge = partial(Family, kind=MetricKind.GAUGE)
_counter = partial(Family, kind=MetricKind.COUNTER)

_TASK = ("task", "source_id")
_LANE = (*_TASK, "lane")

# --- subtasks

LAG = _gauge(
    "dm_task_lag_seconds",
    help="Lag of a subtask. basis is event (the age of the oldest transaction that is not "
    "applied), idle (everything is applied and the source sends its heartbeats: 0), heartbeat (everything that "
    "arrived is applied, but the source sends nothing, not even heartbeats: the time since the last one) or retry (a "
    "run is tried again, or a lane or the source does not answer: the time since all was applied that the source had "
    "written). Absent while it is not known.",
    labels=(*_TASK, "basis"),
    unit="seconds",
)
BYTES_BEHIND = _gauge(
    "dm_task_bytes_behind",
    help="Bytes of the source's binlog that the slowest lane has not applied. Absent while it is not known.",
    labels=_TASK,
    unit="bytes",
)
SYNCED = _gauge(
    "dm_task_synced",
    help="1 if everything that the source has written is applied, else 0, also while that is not known.",
    labels=_TASK,
)
PROGRESS_AGE = _gauge(
    "dm_task_seconds_since_progress",
    help="Time since a lane moved its checkpoint or a chunk was committed; since the worker has the subtask, or it was "
    "resumed, if that was later. It also grows while the source is idle.",
    labels=_TASK,
    unit="seconds",
)
CHECKPOINT_AGE = _gauge(
    "dm_task_checkpoint_age_seconds",
    help="Time since the slowest lane moved its checkpoint; 0 while everything is applied. After a loss of the worker "
    "about so much work is repeated.",
    labels=_TASK,
    unit="seconds",
)
EPOCH = _gauge(
    "dm_task_epoch",
    help="Fencing token of the subtask's run: an older run cannot commit any more.",
    labels=_TASK,
)
RUNS = _counter(
    "dm_task_runs_total",
    help="Runs of the subtask at this worker by their end: outcome is finished, stopped or failed.",
    labels=(*_TASK, "outcome"),
)
FAILURES = _counter(
    "dm_task_failures_total",
    help="Runs that failed, by the code of the error; docs/reference/errors.md explains each. Without a failure there "
    "is no series.",
    labels=(*_TASK, "code"),
)
FENCED = _counter(
    "dm_task_fenced_commits_total",
    help="Commits of an older run that the target refused because of its epoch, as far as this worker has seen them.",
    labels=_TASK,
)
RESUME_ATTEMPTS = _gauge(
    "dm_task_auto_resume_attempts",
    help="Failures in a row after which the worker has tried again, or will try again, by itself; 0 when a run has "
    "lasted for 5 minutes.",
    labels=_TASK,
)
RESUME_IN = _gauge(
    "dm_task_auto_resume_in_seconds",
    help="Time until the worker tries again by itself; absent if it does not wait for that.",
    labels=_TASK,
    unit="seconds",
)
PAUSED_BY = _gauge(
    "dm_task_paused",
    help="1 while the subtask is paused: by is operator or error. A subtask that an operator has paused after an error "
    "counts as paused by the operator.",
    labels=(*_TASK, "by"),
)
QUARANTINED = _gauge(
    "dm_task_quarantined_rows",
    help="Keys whose changes are held because the target refuses a row (docs/how-to/quarantine.md).",
    labels=_TASK,
)
JOINING = _gauge(
    "dm_task_joining_tables",
    help="Shard tables that are joining the running subtask: phase is starting, copying, following or failed.",
    labels=(*_TASK, "phase"),
)
COMPARING = _gauge(
    "dm_compare_running", help="1 while `dmctl compare` compares the subtask's rows, else 0.", labels=_TASK
)
COMPARE_FINISHED = _gauge(
    "dm_compare_finished_timestamp_seconds",
    help="When the last complete `dmctl compare` of all rows of the subtask ended, in Unix seconds; absent before the "
    "first.",
    labels=_TASK,
    unit="seconds",
)
COMPARE_ROWS = _gauge(
    "dm_compare_rows",
    help="Rows of the subtask's shard tables that the last complete `dmctl compare` has read, those of a table in the "
    "last one with this table. Tables without a key, which dmctl compares as a whole, are not counted.",
    labels=_TASK,
)
COMPARE_DIFFERENCES = _gauge(
    "dm_compare_differences",
    help="Differences that the last complete `dmctl compare` has found, those of a table in the last one with this "
    "table: kind is missing, extra, different, unjudged (the row changed again and again), orphan (absent before the "
    "first with --references) or repaired (of the others, with --repair).",
    labels=(*_TASK, "kind"),
)

# --- lanes

LANES = _gauge("dm_lanes", help="Lanes of the subtask that run now.", labels=_TASK)
LANE_SECONDS = _counter(
    "dm_lane_seconds_total",
    help="Time of a lane by what it was spent on: idle (the source has nothing new), read (waiting for the relay "
    "log), gather (it has rows, and collects more for as long as its last commit took), decode (decode rows and apply "
    "the rules), target (transactions at the target), retry (pauses and attempts after an error), barrier (waiting at "
    "a DDL), start (connecting).",
    labels=(*_LANE, "cause"),
    unit="seconds",
)
LANE_ROWS = _counter(
    "dm_lane_rows_total",
    help="Row changes of committed transactions: kind is insert, update or delete. A change of a key counts as a "
    "delete and an insert.",
    labels=(*_LANE, "kind"),
)
LANE_WRITTEN = _counter(
    "dm_lane_written_rows_total",
    help="Rows written to the target: several changes of one key in a transaction are one. dm_lane_rows_total divided "
    "by this is the compaction ratio.",
    labels=_LANE,
)
LANE_STATEMENTS = _counter(
    "dm_lane_statements_total", help="Statements with rows that were sent to the target.", labels=_LANE
)
LANE_TRANSACTIONS = _counter("dm_lane_transactions_total", help="Transactions committed at the target.", labels=_LANE)
LANE_BEHIND = _gauge(
    "dm_lane_bytes_behind",
    help="Bytes of the relay log that the lane has not applied. Absent while it is not known.",
    labels=_LANE,
    unit="bytes",
)
LANE_AGE = _gauge(
    "dm_lane_lag_seconds",
    help="Age of the oldest transaction that the lane has not applied; 0 if it has applied all of the relay log. "
    "Absent while it is not known.",
    labels=_LANE,
    unit="seconds",
)

# --- snapshot

CHUNKS_PLANNED = _gauge(
    "dm_snapshot_chunks_planned", help="Chunks of the history that are planned so far.", labels=_TASK
)
CHUNKS_DONE = _gauge("dm_snapshot_chunks_done", help="Chunks of the history that are committed.", labels=_TASK)
ROWS_PLANNED = _gauge(
    "dm_snapshot_rows_planned",
    help="Rows of the history: an estimate until a table is copied, then its exact number.",
    labels=_TASK,
)
ROWS_DONE = _gauge("dm_snapshot_rows_done", help="Rows of the history that are committed.", labels=_TASK)
BYTES_DONE = _gauge(
    "dm_snapshot_bytes_done",
    help="Bytes of the statements with which the history was written to the target.",
    labels=_TASK,
    unit="bytes",
)
SNAPSHOT_ETA = _gauge(
    "dm_snapshot_eta_seconds",
    help="Time until the history is copied, by the speed of the last 30 seconds; 0 once it is. Absent while it cannot "
    "be estimated.",
    labels=_TASK,
    unit="seconds",
)
READER_SECONDS = _counter(
    "dm_snapshot_reader_seconds_total",
    help="Time of the readers of histories, all of the subtask's together, by what it was spent on: read (chunks at "
    "the source, and the changes made meanwhile), write (statements at the target), throttle (a limit of the task lets "
    "no chunk begin), wait (no chunk is planned yet). Tables that join a running task count, too.",
    labels=(*_TASK, "cause"),
    unit="seconds",
)

# --- relay and source

CONNECTED = _gauge(
    "dm_source_connected",
    help="1 while the source's binlog is fetched without an error, else 0.",
    labels=("source_id",),
)
SOURCE_SILENT = _gauge(
    "dm_source_silent_seconds",
    help="Time since an event or a heartbeat of the source last arrived. A source sends a heartbeat every second while "
    "it has no events to send. Absent until the first one.",
    labels=("source_id",),
    unit="seconds",
)
RELAY_BYTES = _gauge("dm_relay_disk_bytes", help="Size of the relay log.", labels=("source_id",), unit="bytes")
RELAY_FILES = _gauge("dm_relay_files", help="Segment files of the relay log.", labels=("source_id",))
RELAY_WRITTEN = _counter(
    "dm_relay_written_bytes_total",
    help="Bytes of the source's binlog that were written to the relay log.",
    labels=("source_id",),
    unit="bytes",
)
RELAY_PAUSED = _gauge(
    "dm_relay_paused", help="1 while the relay is paused by pause-relay, else 0.", labels=("source_id",)
)
RELAY_CAUGHT_UP = _gauge(
    "dm_relay_caught_up",
    help="1 if the relay log has everything that the source has written, else 0, also while that is not known.",
    labels=("source_id",),
)
RETENTION = _gauge(
    "dm_source_binlog_retention_seconds",
    help="How long the source keeps its binlog: by its limit for the age of files, or by its limit for their size at "
    "the speed of the last hour, whichever is shorter. Absent without such a limit.",
    labels=("source_id",),
    unit="seconds",
)
RETENTION_LEFT = _gauge(
    "dm_source_binlog_retention_left_seconds",
    help="Time until the source may delete binlog that the relay has not fetched, if the relay fetched nothing more. "
    "Absent if the source keeps binlog without a limit.",
    labels=("source_id",),
    unit="seconds",
)
BINLOG_EXPIRES = _gauge(
    "dm_source_binlog_expires_in_seconds",
    help="Time until the source may delete binlog that is not fetched, at the relay's speed of the last 10 minutes; "
    "equal to dm_source_binlog_retention_left_seconds while the relay is paused or cannot fetch. Absent while the "
    "relay keeps up.",
    labels=("source_id",),
    unit="seconds",
)
RELAY_FULL = _gauge(
    "dm_relay_disk_full_in_seconds",
    help="Time until the disk of the relay log is full, at the speed at which its free space became less in the last "
    "hour. Segments that no task needs count as free space. Absent while that is not known, while the disk does not "
    "become fuller, and if it is further away than six times the measured time.",
    labels=("source_id",),
    unit="seconds",
)
CLOCK_DIFFERENCE = _gauge(
    "dm_clock_difference_seconds",
    help="By how much a clock is ahead of the worker's, without the time that the answer took: of is source or target "
    "(of a task). Absent while the server does not answer, or so slowly that a second may be the answer's time.",
    labels=("source_id", "task", "of"),
    unit="seconds",
)

# --- the worker

REGISTERED = _gauge("dm_worker_registered", help="1 while the worker holds its lease in etcd, else 0.")
BOUND = _gauge("dm_worker_bound", help="1 while the worker has a source, else 0.")
SPARK_SLOTS = _gauge("dm_worker_spark_slots", help="Slots of Spark: state is used or free.", labels=("state",))
SPARK_EXECUTOR_SLOTS = _gauge(
    "dm_worker_spark_executor_slots",
    help="Slots of the executors that a Spark cluster provides now; absent for Spark within the worker.",
)
SPARK_UP = _gauge("dm_worker_spark_up", help="1 while the Spark driver can run jobs, else 0.")
SPARK_RESTARTS = _counter(
    "dm_worker_spark_restarts_total",
    help="Restarts of the worker in place because its Spark driver was lost. The process and its start time stay.",
)
JVM_RESIDENT = _gauge(
    "dm_worker_jvm_resident_memory_bytes", help="Resident memory of the JVM of the Spark driver.", unit="bytes"
)
JVM_HEAP = _gauge(
    "dm_worker_jvm_heap_bytes",
    help="Heap of the JVM of the Spark driver: type is used, committed (taken from the system) or max. Absent if "
    "Spark's driver runs elsewhere.",
    labels=("type",),
    unit="bytes",
)
MERGED_TABLES = _gauge(
    "dm_metrics_merged_tables",
    help="Target tables without series of their own: their changes are counted as target_table=_other.",
    labels=_TASK,
)

FAMILIES = (
    LAG,
    BYTES_BEHIND,
    SYNCED,
    PROGRESS_AGE,
    CHECKPOINT_AGE,
    EPOCH,
    RUNS,
    FAILURES,
    FENCED,
    RESUME_ATTEMPTS,
    RESUME_IN,
    PAUSED_BY,
    QUARANTINED,
    JOINING,
    COMPARING,
    COMPARE_FINISHED,
    COMPARE_ROWS,
    COMPARE_DIFFERENCES,
    LANES,
    LANE_SECONDS,
    LANE_ROWS,
    LANE_WRITTEN,
    LANE_STATEMENTS,
    LANE_TRANSACTIONS,
    LANE_BEHIND,
    LANE_AGE,
    CHUNKS_PLANNED,
    CHUNKS_DONE,
    ROWS_PLANNED,
    ROWS_DONE,
    BYTES_DONE,
    SNAPSHOT_ETA,
    READER_SECONDS,
    CONNECTED,
    SOURCE_SILENT,
    RELAY_BYTES,
    RELAY_FILES,
    RELAY_WRITTEN,
    RELAY_PAUSED,
    RELAY_CAUGHT_UP,
    RETENTION,
    RETENTION_LEFT,
    BINLOG_EXPIRES,
    RELAY_FULL,
    CLOCK_DIFFERENCE,
    REGISTERED,
    BOUND,
    SPARK_SLOTS,
    SPARK_EXECUTOR_SLOTS,
    SPARK_UP,
    SPARK_RESTARTS,
    JVM_RESIDENT,
    JVM_HEAP,
    MERGED_TABLES,
)
