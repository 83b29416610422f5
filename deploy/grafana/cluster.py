"""The dashboard of masters and workers."""

from __future__ import annotations

from deploy.grafana.model import Dashboard, Look, Panel, Query, Row, Unit

_NAME = "{{job}} {{instance}}"


def _number(title: str, expression: str, warn: float | None = None, alarm: float | None = None) -> Panel:
    return Panel(title, (Query(expression),), look=Look.NUMBER, width=4, height=4, warn=warn, alarm=alarm)


CLUSTER = Dashboard(
    "cluster",
    "shardmerge: cluster",
    (
        Row(
            "Now",
            (
                _number("Leaders (must be 1)", "sum(dm_leader)", alarm=2),
                _number("Masters", "max(dm_masters)"),
                _number("Free workers", 'sum(dm_workers{state="free"})'),
                _number("Workers with a source", 'sum(dm_workers{state="bound"})'),
                _number("Sources without a worker", 'sum(dm_sources{state="unbound"})', alarm=1),
                _number("Versions", "count(count by (version) (dm_build_info))", warn=2),
            ),
        ),
        Row(
            "Masters",
            (
                Panel.of("Leader", "dm_leader", "{{instance}}"),
                Panel.of(
                    "Begins of leading",
                    "increase(dm_master_start_leader_counter_total[$__rate_interval])",
                    "{{instance}}",
                ),
                Panel.of("Age of the records", "dm_records_age_seconds", "{{instance}}", Unit.SECONDS),
                Panel.of("Revision of the records", "dm_records_revision", "{{instance}}"),
                Panel.of(
                    "Moves of sources",
                    "sum by (kind) (increase(dm_source_placements_total[$__rate_interval]))",
                    "{{kind}}",
                ),
                Panel.of(
                    "Calls",
                    "sum by (method, code) (rate(dm_api_requests_total[$__rate_interval]))",
                    "{{method}} {{code}}",
                    Unit.PER_SECOND,
                ),
                Panel.of(
                    "Time of a call",
                    "sum by (method) (rate(dm_api_request_seconds_total[$__rate_interval])) / sum by (method) "
                    "(rate(dm_api_requests_total[$__rate_interval]))",
                    "{{method}}",
                    Unit.SECONDS,
                ),
                Panel.of("Sources", "sum by (state) (dm_sources)", "{{state}}", stacked=True),
                Panel.of(
                    "Subtasks as they should be", "sum by (task, expected) (dm_subtasks)", "{{task}} {{expected}}"
                ),
            ),
        ),
        Row(
            "Workers",
            (
                Panel(
                    "Workers",
                    (Query("max by (worker) (dm_master_worker_state)", "state (0 offline, 1 free, 2 bound)"),),
                    look=Look.TABLE,
                    rank="state (0 offline, 1 free, 2 bound)",
                ),
                Panel.of("Lease in etcd", "dm_worker_registered", "{{instance}}"),
                Panel.of("Slots of Spark", "dm_worker_spark_slots", "{{instance}} {{state}}", stacked=True),
                Panel(
                    "Spark runs",
                    (
                        Query("dm_worker_spark_up", "{{instance}}"),
                        Query("dm_worker_spark_restarts_total", "{{instance}}, restarts in place"),
                    ),
                ),
                Panel.of("Slots of the executors", "dm_worker_spark_executor_slots", "{{instance}}"),
                Panel.of("Memory of the JVM", "dm_worker_jvm_resident_memory_bytes", "{{instance}}", Unit.BYTES),
                Panel.of("Heap of the JVM", "dm_worker_jvm_heap_bytes", "{{instance}} {{type}}", Unit.BYTES),
                Panel.of(
                    "Clocks of workers ahead of the leader's",
                    "max by (worker) (dm_worker_clock_difference_seconds)",
                    "{{worker}}",
                    Unit.SECONDS,
                ),
            ),
        ),
        Row(
            "Daemons",
            (
                Panel.of("Ready", "dm_ready", _NAME),
                Panel.of("Time left of the lease", "dm_lease_left_seconds", _NAME, Unit.SECONDS),
                Panel.of("Oldest round of a loop", "max by (job, instance) (dm_loop_age_seconds)", _NAME, Unit.SECONDS),
                Panel.of("Processors", "rate(process_cpu_seconds_total[$__rate_interval])", _NAME),
                Panel.of("Memory", "process_resident_memory_bytes", _NAME, Unit.BYTES),
                Panel.of("Open files", "process_open_fds / process_max_fds", _NAME, Unit.SHARE),
                Panel.of("Time to collect the metrics", "dm_metrics_collect_seconds", _NAME, Unit.SECONDS),
                Panel.of(
                    "Time until a certificate ends",
                    "min by (job, instance, use) (dm_certificate_expiry_timestamp_seconds) - time()",
                    f"{_NAME} {{{{use}}}}",
                    Unit.SECONDS,
                ),
                Panel.of("Time since the start", "time() - process_start_time_seconds", _NAME, Unit.SECONDS),
            ),
        ),
    ),
)
