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
                Panel("Leader", (Query("dm_leader", "{{instance}}"),)),
                Panel(
                    "Begins of leading",
                    (Query("increase(dm_master_start_leader_counter_total[$__rate_interval])", "{{instance}}"),),
                ),
                Panel("Age of the records", (Query("dm_records_age_seconds", "{{instance}}"),), Unit.SECONDS),
                Panel("Revision of the records", (Query("dm_records_revision", "{{instance}}"),)),
                Panel(
                    "Moves of sources",
                    (
                        Query(
                            "sum by (kind) (increase(dm_source_placements_total[$__rate_interval]))",
                            "{{kind}}",
                        ),
                    ),
                ),
                Panel(
                    "Calls",
                    (
                        Query(
                            "sum by (method, code) (rate(dm_api_requests_total[$__rate_interval]))",
                            "{{method}} {{code}}",
                        ),
                    ),
                    Unit.PER_SECOND,
                ),
                Panel(
                    "Time of a call",
                    (
                        Query(
                            "sum by (method) (rate(dm_api_request_seconds_total[$__rate_interval])) / sum by (method) "
                            "(rate(dm_api_requests_total[$__rate_interval]))",
                            "{{method}}",
                        ),
                    ),
                    Unit.SECONDS,
                ),
                Panel("Sources", (Query("sum by (state) (dm_sources)", "{{state}}"),), stacked=True),
                Panel(
                    "Subtasks as they should be",
                    (Query("sum by (task, expected) (dm_subtasks)", "{{task}} {{expected}}"),),
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
                Panel("Lease in etcd", (Query("dm_worker_registered", "{{instance}}"),)),
                Panel(
                    "Slots of Spark",
                    (Query("dm_worker_spark_slots", "{{instance}} {{state}}"),),
                    stacked=True,
                ),
                Panel(
                    "Spark runs",
                    (
                        Query("dm_worker_spark_up", "{{instance}}"),
                        Query("dm_worker_spark_restarts_total", "{{instance}}, restarts in place"),
                    ),
                ),
                Panel(
                    "Slots of the executors",
                    (Query("dm_worker_spark_executor_slots", "{{instance}}"),),
                ),
                Panel("Memory of the JVM", (Query("dm_worker_jvm_resident_memory_bytes", "{{instance}}"),), Unit.BYTES),
                Panel("Heap of the JVM", (Query("dm_worker_jvm_heap_bytes", "{{instance}} {{type}}"),), Unit.BYTES),
                Panel(
                    "Clocks of workers ahead of the leader's",
                    (Query("max by (worker) (dm_worker_clock_difference_seconds)", "{{worker}}"),),
                    Unit.SECONDS,
                ),
            ),
        ),
        Row(
            "Daemons",
            (
                Panel("Ready", (Query("dm_ready", _NAME),)),
                Panel("Time left of the lease", (Query("dm_lease_left_seconds", _NAME),), Unit.SECONDS),
                Panel(
                    "Oldest round of a loop",
                    (Query("max by (job, instance) (dm_loop_age_seconds)", _NAME),),
                    Unit.SECONDS,
                ),
                Panel("Processors", (Query("rate(process_cpu_seconds_total[$__rate_interval])", _NAME),)),
                Panel("Memory", (Query("process_resident_memory_bytes", _NAME),), Unit.BYTES),
                Panel("Open files", (Query("process_open_fds / process_max_fds", _NAME),), Unit.SHARE),
                Panel("Time to collect the metrics", (Query("dm_metrics_collect_seconds", _NAME),), Unit.SECONDS),
                Panel(
                    "Time until a certificate ends",
                    (
                        Query(
                            "min by (job, instance, use) (dm_certificate_expiry_timestamp_seconds) - time()",
                            f"{_NAME} {{{{use}}}}",
                        ),
                    ),
                    Unit.SECONDS,
                ),
                Panel("Time since the start", (Query("time() - process_start_time_seconds", _NAME),), Unit.SECONDS),
            ),
        ),
    ),
)
