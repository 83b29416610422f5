"""The dashboard of all tasks, the worst one first."""

from __future__ import annotations

from deploy.grafana.model import Dashboard, Look, Panel, Query, Row, Unit

_BY = "max by (task, source_id)"
_RUNS = f"{_BY} (dm_worker_task_state) == 2"
_UNKNOWN = f"(({_RUNS} and {_BY} (dm_task_synced)) unless {_BY} (dm_task_lag_seconds))"
# Errors first, then what is not known, then the lag. A task without a lag is last, for example one that copies history.
_RANK = f"""\
1e12 * ({_BY} (dm_task_paused{{by="error"}}) == 1)
or 1e11 * {_UNKNOWN}
or {_BY} (dm_task_lag_seconds)
or 0 * {_BY} (dm_worker_task_state)"""


def _count(title: str, expression: str, warn: float | None = None, alarm: float | None = None) -> Panel:
    return Panel(
        title, (Query(f"{expression} or vector(0)"),), look=Look.NUMBER, width=4, height=4, warn=warn, alarm=alarm
    )


OVERVIEW = Dashboard(
    "overview",
    "shardmerge: overview",
    (
        Row(
            "Now",
            (
                _count("Running", f"count({_RUNS})"),
                _count("Paused by an error", f'count({_BY} (dm_task_paused{{by="error"}}) == 1)', alarm=1),
                _count("Paused by an operator", f'count({_BY} (dm_task_paused{{by="operator"}}) == 1)', warn=1),
                _count(
                    "Lag not known",
                    f"count({_UNKNOWN})",
                    alarm=1,
                ),
                _count("Sources without a worker", 'sum(dm_sources{state="unbound"})', alarm=1),
                _count("Held rows", f"sum({_BY} (dm_task_quarantined_rows))", alarm=1),
            ),
        ),
        Row(
            "Tasks, worst first",
            (
                Panel(
                    "Subtasks",
                    (
                        Query(_RANK, "rank"),
                        Query(f"{_BY} (dm_worker_task_state)", "stage", Unit.STAGE),
                        Query(f"{_BY} (dm_task_lag_seconds)", "lag", Unit.SECONDS),
                        Query(f"{_BY} (dm_task_bytes_behind)", "not applied", Unit.BYTES),
                        Query(f"{_BY} (dm_syncer_remaining_time)", "remaining", Unit.SECONDS),
                        Query(f"{_BY} (dm_task_seconds_since_progress)", "since progress", Unit.SECONDS),
                        Query(f"{_BY} (dm_task_auto_resume_attempts)", "failures in a row"),
                        Query(f"{_BY} (dm_task_quarantined_rows)", "held rows"),
                        Query("sum by (task, source_id) (rate(dm_lane_rows_total[$__rate_interval]))", "rows/s"),
                        Query(
                            f"{_BY} (dm_snapshot_rows_done) / {_BY} (dm_snapshot_rows_planned)", "history", Unit.SHARE
                        ),
                    ),
                    look=Look.TABLE,
                    note="Sorted: paused by an error, then lag not known, then by lag. An empty cell: the value is "
                    "not known or does not apply.",
                    width=24,
                    height=12,
                    rank="rank",
                ),
            ),
        ),
        Row(
            "Course",
            (
                Panel.of(
                    "The ten largest lags",
                    f"topk(10, {_BY} (dm_task_lag_seconds))",
                    "{{task}} {{source_id}}",
                    Unit.SECONDS,
                    note="A gap: the lag was not known.",
                ),
                Panel.of(
                    "Row changes",
                    "sum by (task) (rate(dm_lane_rows_total[$__rate_interval]))",
                    "{{task}}",
                    Unit.PER_SECOND,
                    stacked=True,
                ),
                Panel.of(
                    "Failed runs by error code",
                    "sum by (task, source_id, code) (increase(dm_task_failures_total[$__rate_interval]))",
                    "{{code}} {{task}} {{source_id}}",
                ),
                Panel.of(
                    "Rows of the history",
                    "sum by (task) (deriv(dm_snapshot_rows_done[5m]))",
                    "{{task}}",
                    Unit.PER_SECOND,
                ),
            ),
        ),
    ),
)
