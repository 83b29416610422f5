"""DM's metrics of dm-master, dm-worker, relay, dump and load, and of the libraries that DM's dashboards show."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.metrics.distribution import DURATIONS, SIZES
from shardmerge.proto.metrics.family import Exporter, Family, MetricKind, Origin

_family = partial(Family, origin=Origin.DM)
_counter = partial(_family, kind=MetricKind.COUNTER)
_gauge = partial(_family, kind=MetricKind.GAUGE)
_seconds = partial(_family, kind=MetricKind.HISTOGRAM, buckets=DURATIONS, unit="seconds")
_of_master = partial(_family, exporter=Exporter.MASTER)
_library = partial(Family, kind=MetricKind.GAUGE, origin=Origin.DM_LIBRARY)

_TASK = ("task", "source_id")

# --- dm-master

WORKER_STATE = _of_master(
    "dm_master_worker_state",
    MetricKind.GAUGE,
    "State of a worker as the leader knows it: 0 offline with a source, 1 free, 2 bound to a source.",
    ("worker",),
)
MASTER_CPU = _of_master(
    "dm_master_cpu_usage",
    MetricKind.GAUGE,
    "Processor time of the process since the scrape before, in percent of one core.",
)
DDL_STATE = _of_master(
    "dm_master_ddl_state_number",
    MetricKind.GAUGE,
    "Locks of sharding DDLs: type is Un-synced (a shard table is missing) or Synced (all have reached the statement).",
    ("task", "type"),
)
SHARD_DDL_ERROR = _of_master(
    "dm_master_shard_ddl_error",
    MetricKind.COUNTER,
    "Failures of the leader to move a lock of a sharding DDL. All of them count as the type of DM that fits, InfoPut - "
    "HandleLockError; the other types stay 0.",
    ("task", "type"),
)
START_LEADER = _of_master(
    "dm_master_start_leader_counter",
    MetricKind.COUNTER,
    "How often this master has become the leader since it started.",
)

# --- dm-worker

TASK_STATE = _gauge(
    "dm_worker_task_state",
    help="Stage of a subtask: 1 New, 2 Running, 3 Paused, 4 Stopped, 5 Finished. The series ends when the task is "
    "stopped. None while the worker has no lease in etcd, unless an error has paused it: another worker may run it.",
    labels=(*_TASK, "worker"),
)
WORKER_CPU = _gauge(
    "dm_worker_cpu_usage",
    help="Processor time of the process since the scrape before, in percent of one core; without Spark's processes.",
)

# --- dump and load: one unit here

DUMP_EXIT = _counter(
    "dm_dumpling_exit_with_error_count",
    help="Runs of the snapshot unit that ended with an error of the source; resumable_err: whether the worker tries "
    "again by itself.",
    labels=(*_TASK, "resumable_err"),
)
LOAD_EXIT = _counter(
    "dm_loader_exit_with_error_count",
    help="Runs of the snapshot unit that ended with another error than one of the source; resumable_err: whether the "
    "worker tries again by itself.",
    labels=(*_TASK, "resumable_err"),
)

# --- relay

RELAY_POS = _gauge(
    "dm_relay_binlog_pos",
    help="Position in the binlog file: node is master (the end of the source's binlog) or relay (the relay log).",
    labels=("node",),
)
RELAY_FILE = _gauge(
    "dm_relay_binlog_file",
    help="Number of the binlog file: node is master (the end of the source's binlog) or relay (the relay log).",
    labels=("node",),
)
RELAY_SPACE = _gauge(
    "dm_relay_space",
    help="The file system of the relay log: type is capacity or available.",
    labels=("type",),
    unit="bytes",
)
RELAY_CORRUPTION = _counter(
    "dm_relay_data_corruption", help="Events from the source that were damaged. None of them is stored."
)
RELAY_WRITE_SIZE = _family(
    "dm_relay_write_size",
    MetricKind.HISTOGRAM,
    "Bytes of one write to the relay log, which may hold several events.",
    unit="bytes",
    buckets=SIZES,
)
RELAY_WRITE_DURATION = _seconds(
    "dm_relay_write_duration", help="Time of one write to the relay log, which may hold several events."
)
RELAY_WRITE_ERROR = _counter("dm_relay_write_error_count", help="Failures to write the relay log, such as a full disk.")
RELAY_READ_ERROR = _counter(
    "dm_relay_read_error_count",
    help="Failures to read the source's binlog; the relay connects again after most of them.",
)
RELAY_EXIT = _counter(
    "dm_relay_exit_with_error_count",
    help="Errors that interrupted the relay; resumable_err: whether it continues by itself.",
    labels=("resumable_err",),
)

# --- libraries

DUMP_ROWS = _library(
    "dumpling_dump_finished_rows", help="Rows of the history that are committed at the target.", labels=_TASK
)
DUMP_TOTAL_ROWS = _library(
    "dumpling_dump_estimate_total_rows",
    help="Rows of the history: an estimate until a table is copied, then its exact number.",
    labels=_TASK,
)
LIGHTNING_CHUNKS = _library(
    "lightning_chunks",
    help="Chunks of the history: state is estimated (planned so far) or finished (committed at the target).",
    labels=("state", *_TASK),
)
LIGHTNING_TABLES = _library(
    "lightning_tables",
    help="Shard tables whose history is copied: state is pending or completed.",
    labels=("state", *_TASK),
)

FAMILIES = (
    WORKER_STATE,
    MASTER_CPU,
    DDL_STATE,
    SHARD_DDL_ERROR,
    START_LEADER,
    TASK_STATE,
    WORKER_CPU,
    DUMP_EXIT,
    LOAD_EXIT,
    RELAY_POS,
    RELAY_FILE,
    RELAY_SPACE,
    RELAY_CORRUPTION,
    RELAY_WRITE_SIZE,
    RELAY_WRITE_DURATION,
    RELAY_WRITE_ERROR,
    RELAY_READ_ERROR,
    RELAY_EXIT,
)
LIBRARY_FAMILIES = (
    DUMP_ROWS,
    DUMP_TOTAL_ROWS,
    LIGHTNING_CHUNKS,
    LIGHTNING_TABLES,
)
