"""The dashboard of a task: lag, rows, lanes, history, locks."""

from __future__ import annotations

from deploy.grafana.model import SOURCE_OF_TASK, TASK, Dashboard, Look, Panel, Query, Row, Unit

_OF = 'task=~"$task",source_id=~"$source_id"'
_NAME = "{{task}} {{source_id}}"
_LANE = f"{_NAME} lane {{{{lane}}}}"
_LANE_RATE = f"sum by (task, source_id, lane) (rate(dm_lane_rows_total{{{_OF}}}[5m]))"


def _quantile(metric: str, share: float) -> Query:
    expression = (
        f"histogram_quantile({share}, sum by (task, source_id, le) (rate({metric}_bucket{{{_OF}}}[$__rate_interval])))"
    )
    return Query(expression, f"{_NAME} {share:.0%}")


def _number(title: str, expression: str, unit: Unit, warn: float | None = None, alarm: float | None = None) -> Panel:
    query = Query(expression, _NAME)
    return Panel(title, (query,), unit, Look.NUMBER, width=4, height=5, warn=warn, alarm=alarm)


_NOW = Row(
    "Now",
    (
        _number("Stage", f"dm_worker_task_state{{{_OF}}}", Unit.STAGE),
        _number("Lag", f"max by (task, source_id) (dm_task_lag_seconds{{{_OF}}})", Unit.SECONDS, 60, 300),
        _number("Remaining time", f"dm_syncer_remaining_time{{{_OF}}}", Unit.SECONDS),
        _number("Since progress", f"dm_task_seconds_since_progress{{{_OF}}}", Unit.SECONDS),
        _number("Failures in a row", f"dm_task_auto_resume_attempts{{{_OF}}}", Unit.COUNT, 1, 6),
        _number("Held rows", f"dm_task_quarantined_rows{{{_OF}}}", Unit.COUNT, None, 1),
    ),
)
_LAG = Row(
    "Lag",
    (
        Panel.of(
            "Lag and its basis",
            f"dm_task_lag_seconds{{{_OF}}}",
            f"{_NAME} ({{{{basis}}}})",
            Unit.SECONDS,
            note="A gap: the lag was not known. 0 only while everything is applied.",
        ),
        Panel(
            "From commit to commit",
            (_quantile("dm_syncer_replication_lag", 0.5), _quantile("dm_syncer_replication_lag", 0.99)),
            Unit.SECONDS,
        ),
        Panel.of(
            "Time of the lanes by cause",
            f"sum by (cause) (rate(dm_lane_seconds_total{{{_OF}}}[$__rate_interval])) / scalar(sum(dm_lanes{{{_OF}}}))",
            "{{cause}}",
            Unit.SHARE,
            note="The largest part limits the task: target and gather mean the target, read the relay log.",
            stacked=True,
        ),
        Panel.of("Not applied", f"dm_task_bytes_behind{{{_OF}}}", _NAME, Unit.BYTES),
        Panel.of("Age of the checkpoint", f"dm_task_checkpoint_age_seconds{{{_OF}}}", _NAME, Unit.SECONDS),
        Panel.of("Time since progress", f"dm_task_seconds_since_progress{{{_OF}}}", _NAME, Unit.SECONDS),
    ),
)
_ROWS = Row(
    "Rows",
    (
        Panel.of(
            "Row changes by kind",
            f"sum by (kind) (rate(dm_lane_rows_total{{{_OF}}}[$__rate_interval]))",
            "{{kind}}",
            Unit.PER_SECOND,
            stacked=True,
        ),
        Panel.of(
            "Row changes by target table",
            f"topk(10, sum by (target_schema, target_table) "
            f"(rate(dm_syncer_finished_jobs_total{{{_OF}}}[$__rate_interval])))",
            "{{target_schema}}.{{target_table}}",
            Unit.PER_SECOND,
        ),
        Panel.of(
            "Changes per written row",
            f"sum by (task, source_id) (rate(dm_lane_rows_total{{{_OF}}}[$__rate_interval])) / "
            f"sum by (task, source_id) (rate(dm_lane_written_rows_total{{{_OF}}}[$__rate_interval]))",
            _NAME,
            note="Above 1: several changes of one key became one row.",
        ),
        Panel.of(
            "Transactions at the target",
            f"sum by (task, source_id) (rate(dm_lane_transactions_total{{{_OF}}}[$__rate_interval]))",
            _NAME,
            Unit.PER_SECOND,
        ),
        Panel(
            "Time of a transaction at the target",
            (_quantile("dm_syncer_txn_duration_time", 0.5), _quantile("dm_syncer_txn_duration_time", 0.99)),
            Unit.SECONDS,
        ),
        Panel(
            "Row changes and the rate that the target allows",
            (
                Query(f"sum by (task) (rate(dm_lane_rows_total{{{_OF}}}[$__rate_interval]))", "{{task}}"),
                Query(f"sum by (task) (dm_syncer_ideal_qps{{{_OF}}})", "{{task}} possible"),
            ),
            Unit.PER_SECOND,
        ),
    ),
)
_LANES = Row(
    "Lanes and their skew",
    (
        Panel.of("Lag of each lane", f"dm_lane_lag_seconds{{{_OF}}}", _LANE, Unit.SECONDS),
        Panel.of(
            "Skew of the rows",
            f"max by (task, source_id) ({_LANE_RATE}) / avg by (task, source_id) ({_LANE_RATE})",
            _NAME,
            note="The busiest lane divided by the average: 1 is even. A high value means that one table or one key has "
            "most of the changes.",
        ),
        Panel.of(
            "Rows of each lane",
            f"sum by (task, source_id, lane) (rate(dm_lane_rows_total{{{_OF}}}[$__rate_interval]))",
            _LANE,
            Unit.PER_SECOND,
        ),
        Panel.of(
            "Share of each lane's time at the target",
            f'rate(dm_lane_seconds_total{{{_OF},cause="target"}}[$__rate_interval])',
            _LANE,
            Unit.SHARE,
        ),
        Panel.of("Not applied by each lane", f"dm_lane_bytes_behind{{{_OF}}}", _LANE, Unit.BYTES),
        Panel.of("Lanes", f"dm_lanes{{{_OF}}}", _NAME),
    ),
)
_HISTORY = Row(
    "History",
    (
        Panel.of(
            "Copied rows", f"dm_snapshot_rows_done{{{_OF}}} / dm_snapshot_rows_planned{{{_OF}}}", _NAME, Unit.SHARE
        ),
        Panel.of("Time until it is copied", f"dm_snapshot_eta_seconds{{{_OF}}}", _NAME, Unit.SECONDS),
        Panel.of("Rows per second", f"deriv(dm_snapshot_rows_done{{{_OF}}}[5m])", _NAME, Unit.PER_SECOND),
        Panel(
            "Chunks",
            (
                Query(f"dm_snapshot_chunks_done{{{_OF}}}", f"{_NAME} done"),
                Query(f"dm_snapshot_chunks_planned{{{_OF}}}", f"{_NAME} planned"),
            ),
        ),
        Panel.of("Bytes written", f"dm_snapshot_bytes_done{{{_OF}}}", _NAME, Unit.BYTES),
        Panel.of(
            "Time of the readers by cause",
            f"sum by (cause) (rate(dm_snapshot_reader_seconds_total{{{_OF}}}[$__rate_interval])) / "
            f"scalar(sum(rate(dm_snapshot_reader_seconds_total{{{_OF}}}[$__rate_interval])))",
            "{{cause}}",
            Unit.SHARE,
            note="The largest part limits the copy: read the source, write the target, throttle a limit of the task.",
            stacked=True,
        ),
        Panel.of("Tables that join", f"dm_task_joining_tables{{{_OF}}} > 0", f"{_NAME} {{{{phase}}}}"),
    ),
)
_DDL = Row(
    "Locks of sharding DDLs, errors",
    (
        Panel.of("Locks", 'sum by (task, stage) (dm_ddl_locks{task=~"$task"})', "{{task}} {{stage}}"),
        Panel.of(
            "Age of the oldest lock",
            'max by (task) (dm_ddl_lock_age_seconds{task=~"$task"}) * on (task) group_left (lock) max by '
            "(task, lock) (dm_ddl_lock_oldest)",
            "{{lock}}",
            Unit.SECONDS,
        ),
        Panel(
            "Locks whose shard tables wait at different statements",
            (
                Query(
                    'max by (task) (dm_ddl_lock_conflicts{task=~"$task"})',
                    "{{task}}",
                ),
                Query(
                    'max by (task, lock, source_id, table) (dm_ddl_lock_conflict_oldest{task=~"$task"})',
                    "{{lock}}: {{source_id}} {{table}}",
                ),
            ),
        ),
        Panel.of(
            "Sources at the locks", 'sum by (task, state) (dm_ddl_lock_sources{task=~"$task"})', "{{task}} {{state}}"
        ),
        Panel.of(
            "Differences found by the last comparison",
            f"sum by (task, source_id, kind) (dm_compare_differences{{{_OF}}})",
            f"{{{{kind}}}} {_NAME}",
        ),
        Panel(
            "The last comparison",
            (
                Query(f"sum by (task, source_id) (dm_compare_rows{{{_OF}}})", "rows read"),
                Query(
                    f"time() - max by (task, source_id) (dm_compare_finished_timestamp_seconds{{{_OF}}})",
                    "time since it",
                    Unit.SECONDS,
                ),
            ),
            look=Look.TABLE,
        ),
        Panel.of(
            "Failed runs by error code",
            f"sum by (task, source_id, code) (increase(dm_task_failures_total{{{_OF}}}[$__rate_interval]))",
            f"{{{{code}}}} {_NAME}",
        ),
        Panel.of("Fencing token", f"dm_task_epoch{{{_OF}}}", _NAME),
        Panel.of("Held rows", f"dm_task_quarantined_rows{{{_OF}}}", _NAME),
    ),
)

TASK_DASHBOARD = Dashboard(
    "task", "shardmerge: task", (_NOW, _LAG, _ROWS, _LANES, _HISTORY, _DDL), (TASK, SOURCE_OF_TASK)
)
