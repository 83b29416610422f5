"""DM's metrics of dm-master, dm-worker, relay, dump and load, and of the libraries that DM's dashboards show."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.metrics.distribution import DURATIONS, SIZES
from shardmerge.proto.metrics.family import Exporter, Family, Kind, Origin

_family = partial(Family, origin=Origin.DM)
_counter = partial(_family, kind=Kind.COUNTER)
_gauge = partial(_family, kind=Kind.GAUGE)
_seconds = partial(_family, kind=Kind.HISTOGRAM, buckets=DURATIONS, unit="seconds")
_of_master = partial(_family, exporter=Exporter.MASTER)
_library = partial(Family, kind=Kind.GAUGE, origin=Origin.DM_LIBRARY)

_TASK = ("task", "source_id")
_NO_FILES = "There are no dump files and no engine between source and target: chunks go through memory."
_NO_VALIDATOR = "There is no continuous validator: `dmctl compare` compares every row and repairs."

# --- dm-master

WORKER_STATE = _of_master(
    "dm_master_worker_state",
    Kind.GAUGE,
    "State of a worker as the leader knows it: 0 offline with a source, 1 free, 2 bound to a source.",
    ("worker",),
)
MASTER_CPU = _of_master(
    "dm_master_cpu_usage", Kind.GAUGE, "Processor time of the process since the scrape before, in percent of one core."
)
DDL_STATE = _of_master(
    "dm_master_ddl_state_number",
    Kind.GAUGE,
    "Locks of sharding DDLs: type is Un-synced (a shard table is missing) or Synced (all have reached the statement).",
    ("task", "type"),
)
SHARD_DDL_ERROR = _of_master(
    "dm_master_shard_ddl_error",
    Kind.COUNTER,
    "Failures of the leader to move a lock of a sharding DDL. All of them count as the type of DM that fits, InfoPut - "
    "HandleLockError; the other types stay 0.",
    ("task", "type"),
)
WORKER_EVENT_ERROR = _of_master(
    "dm_master_worker_event_error",
    Kind.COUNTER,
    "Failures to handle an event of a worker.",
    ("type",),
    absent="Masters handle no events of workers: they read all records again after each change.",
)
START_LEADER = _of_master(
    "dm_master_start_leader_counter", Kind.COUNTER, "How often this master has become the leader since it started."
)

# --- dm-worker

TASK_STATE = _gauge(
    "dm_worker_task_state",
    help="Stage of a subtask: 1 New, 2 Running, 3 Paused, 4 Stopped, 5 Finished. The series ends when the task is "
    "stopped. None while the worker has no lease in etcd, unless an error has paused it: another worker may run it.",
    labels=(*_TASK, "worker"),
)
OPERATE_ERROR = _counter(
    "dm_worker_operate_error",
    help="Operations on tasks that failed.",
    labels=("worker", "type"),
    absent="Workers receive no operations: they follow records in etcd. A failed run is in dm_task_failures_total.",
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
RELAY_SUB_DIR = _gauge(
    "dm_relay_sub_dir_index",
    help="Number of the sub-directory of the relay log.",
    labels=("node", "uuid"),
    absent="A relay log has no numbered sub-directories: it continues after a fail-over of the source.",
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
    Kind.HISTOGRAM,
    "Bytes of one write to the relay log, which may hold several events.",
    unit="bytes",
    buckets=SIZES,
)
RELAY_WRITE_DURATION = _seconds(
    "dm_relay_write_duration", help="Time of one write to the relay log, which may hold several events."
)
RELAY_READ_DURATION = _seconds(
    "dm_relay_read_binlog_duration",
    help="Time to read one event from the source.",
    absent="The relay reads as many events at once as have arrived: the time of one would be the source's idle time.",
)
RELAY_TRANSFORM_DURATION = _seconds(
    "dm_relay_read_transform_duration",
    help="Time to parse one event of the source.",
    absent="The relay stores events as they are and parses headers only.",
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

# --- validator

_validator = partial(_gauge, labels=_TASK, absent=_NO_VALIDATOR)
VALIDATOR_ERRORS = _validator("dm_validator_validator_error_count", help="Rows that differ.")
VALIDATOR_POS_LATENCY = _validator(
    "dm_validator_validator_logpos_latency", help="Bytes behind the syncer.", unit="bytes"
)
VALIDATOR_FILE_LATENCY = _validator("dm_validator_validator_logfile_latency", help="Binlog files behind the syncer.")
VALIDATOR_POS = _validator("dm_validator_validator_binlog_pos", help="Position in the binlog file.")
VALIDATOR_FILE = _validator("dm_validator_validator_binlog_file", help="Number of the binlog file.")

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
LIGHTNING_WORKERS = _library(
    "lightning_idle_workers",
    help="Idle workers of a pool.",
    labels=("name",),
    absent="There are no pools: chunk readers are Spark tasks, see dm_worker_spark_slots.",
)
LIGHTNING_ENCODER = _library("lightning_kv_encoder", help="Encoders.", labels=("type",), absent=_NO_FILES)
LIGHTNING_ENGINE = _library("lightning_importer_engine", help="Engines.", labels=("type",), absent=_NO_FILES)
LIGHTNING_READ_BYTES = _library(
    "lightning_row_read_bytes_sum",
    help="Bytes read.",
    absent="Bytes are counted where they are sent: dm_snapshot_bytes_done.",
)
LIGHTNING_DELIVER_BYTES = _library(
    "lightning_block_deliver_bytes_sum",
    help="Bytes delivered to an engine.",
    absent="There is no engine: dm_snapshot_bytes_done has the bytes of the statements sent to the target.",
)
GO_ROUTINES = _library(
    "go_goroutines",
    help="Goroutines. DM's dashboards read the values of their variables k8s_cluster and tidb_cluster from it.",
    absent="The daemons are written in Python. Set both labels as external labels in Prometheus, and let the "
    "dashboards read them from dm_worker_task_state.",
)

FAMILIES = (
    WORKER_STATE,
    MASTER_CPU,
    DDL_STATE,
    SHARD_DDL_ERROR,
    WORKER_EVENT_ERROR,
    START_LEADER,
    TASK_STATE,
    OPERATE_ERROR,
    WORKER_CPU,
    DUMP_EXIT,
    LOAD_EXIT,
    RELAY_POS,
    RELAY_FILE,
    RELAY_SUB_DIR,
    RELAY_SPACE,
    RELAY_CORRUPTION,
    RELAY_WRITE_SIZE,
    RELAY_WRITE_DURATION,
    RELAY_READ_DURATION,
    RELAY_TRANSFORM_DURATION,
    RELAY_WRITE_ERROR,
    RELAY_READ_ERROR,
    RELAY_EXIT,
    VALIDATOR_ERRORS,
    VALIDATOR_POS_LATENCY,
    VALIDATOR_FILE_LATENCY,
    VALIDATOR_POS,
    VALIDATOR_FILE,
)
LIBRARY_FAMILIES = (
    DUMP_ROWS,
    DUMP_TOTAL_ROWS,
    LIGHTNING_CHUNKS,
    LIGHTNING_TABLES,
    LIGHTNING_WORKERS,
    LIGHTNING_ENCODER,
    LIGHTNING_ENGINE,
    LIGHTNING_READ_BYTES,
    LIGHTNING_DELIVER_BYTES,
    GO_ROUTINES,
)
