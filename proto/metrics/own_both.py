"""Our metrics of a process, which both daemons export."""

from __future__ import annotations

from functools import partial

from shardmerge.proto.metrics.family import Exporter, Family, MetricKind

_gauge = partial(Family, kind=MetricKind.GAUGE, exporter=Exporter.BOTH)

BUILD = _gauge(
    "dm_build_info", help="Always 1; the labels name the daemon and its version.", labels=("daemon", "version")
)
LOOP_AGE = _gauge(
    "dm_loop_age_seconds",
    help="Time since a loop of the daemon last began a round. /livez fails when one is too old.",
    labels=("loop",),
    unit="seconds",
)
LEASE_LEFT = _gauge(
    "dm_lease_left_seconds",
    help="Time until the daemon's lease in etcd ends unless it is renewed; 0 without one. It is renewed every third of "
    "its time.",
    unit="seconds",
)
READY = _gauge("dm_ready", help="1 if /readyz answers 200, else 0.")
COLLECT_SECONDS = _gauge(
    "dm_metrics_collect_seconds", help="Time that it took to collect these metrics.", unit="seconds"
)
CERTIFICATE_END = _gauge(
    "dm_certificate_expiry_timestamp_seconds",
    help="When the first certificate of a use ends, in Unix seconds: use is own (ssl-cert of the daemon), etcd, source "
    "or target (shown there), or one of these with -ca (trusted there; ca: between the daemons). Absent without a "
    "certificate.",
    labels=("use",),
    unit="seconds",
)
START_TIME = _gauge("process_start_time_seconds", help="Start of the process, in Unix seconds.", unit="seconds")
CPU_SECONDS = Family(
    "process_cpu_seconds_total",
    MetricKind.COUNTER,
    "Processor time of the process.",
    unit="seconds",
    exporter=Exporter.BOTH,
)
RESIDENT = _gauge("process_resident_memory_bytes", help="Resident memory of the process.", unit="bytes")
OPEN_FILES = _gauge("process_open_fds", help="Open file descriptors of the process.")
MAX_FILES = _gauge("process_max_fds", help="File descriptors that the process may open.")
THREADS = _gauge("process_threads", help="Threads of the process.")

FAMILIES = (
    BUILD,
    LOOP_AGE,
    LEASE_LEFT,
    READY,
    COLLECT_SECONDS,
    CERTIFICATE_END,
    START_TIME,
    CPU_SECONDS,
    RESIDENT,
    OPEN_FILES,
    MAX_FILES,
    THREADS,
)
