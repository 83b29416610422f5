"""Defines the benchmark's results: the figures' names, their goals, the table and the JSON line. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure is good at ``least`` or more, or at ``most`` or less; None: no bound on that side."""

    least: float | None = None
    most: float | None = None

    def holds(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        if self.least is not None:
            return f"≥ {number(self.least)}"
        return "" if self.most is None else f"≤ {number(self.most)}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table; the name of the figure ends with its unit."""

    name: str
    meaning: str
    goal: Goal = Goal()


FIGURES: tuple[Figure, ...] = (
    Figure("start_worker_cpu_s", "processor seconds of a worker and its JVM until it is ready; medians", Goal(most=8)),
    Figure("start_worker_s", "seconds until a worker is ready", Goal(most=8)),
    Figure("start_master_cpu_s", "processor seconds of a master until it answers", Goal(most=1)),
    Figure("start_dmctl_cpu_s", "processor seconds of `dmctl list-member`", Goal(most=0.3)),
    Figure("full_rows_per_s", "history: rows of all sources / seconds from start-task to the last chunk"),
    Figure("ceiling_load_rows_per_s", "the target alone: LOAD DATA LOCAL from memory, as many connections"),
    Figure("full_ratio", "full / ceiling_load", Goal(least=0.72)),
    Figure("first_row_s", "seconds from start-task to the first row committed at the target", Goal(most=5)),
    Figure("drain_changes_per_s", "backlog, skewed ids: row changes / seconds from resume-task", Goal(least=75_000)),
    Figure("drain_uniform_changes_per_s", "backlog, uniform ids", Goal(least=55_000)),
    Figure("ceiling_apply_rows_per_s", "the target alone: random REPLACE, 8,000 rows a transaction, from memory"),
    Figure("drain_ratio", "drain_uniform / ceiling_apply (whose ids are uniform too)", Goal(least=0.6)),
    Figure("lag_p50_ms", "commit at a source to visible at the target, one insert at a time", Goal(most=10)),
    Figure("lag_p99_ms", "", Goal(most=40)),
    Figure("lag1k_p50_ms", "the same beside 1,000 row changes/s", Goal(most=20)),
    Figure("lag1k_p99_ms", ""),
    Figure("lag_locked_p50_ms", "a table beside one that waits before a sharding DDL"),
    Figure("lag_locked_p99_ms", "", Goal(most=100)),
    Figure("lag_locked_largest_ms", ""),
    Figure("lag_unlocked_p50_ms", "the same table right before"),
    Figure("lag_unlocked_p99_ms", ""),
    Figure("lag_unlocked_largest_ms", ""),
    Figure("decode_images_per_s", "row images to SQL literals, one core", Goal(least=1_500_000)),
    Figure("relay_mb_per_s", "binlog to relay log, one core", Goal(least=150)),
    Figure("rss_worker_jvm_mb", "largest resident set of a worker's JVM, MiB", Goal(most=700)),
    Figure("rss_lane_mb", "largest resident set of a lane's process, MiB", Goal(most=200)),
    Figure("rss_master_mb", "largest resident set of the master, MiB"),
    Figure("rules_plain_history_rows_per_s", "history by a task without rules but routes and partition id"),
    Figure("rules_ruled_history_rows_per_s", "the same, with event and expression filters and two levels of routes"),
    Figure("rules_ruled_history_ratio", "with rules / without", Goal(least=0.9)),
    Figure("rules_plain_drain_changes_per_s", "the same backlog by both; the median of the rounds"),
    Figure("rules_ruled_drain_changes_per_s", ""),
    Figure("rules_ruled_drain_ratio", "with rules / without", Goal(least=0.9)),
    Figure("rules_references_history_rows_per_s", "with a second column that `references` maps"),
    Figure("rules_references_history_ratio", "the target keeps larger values in an index, too"),
    Figure("rules_references_drain_changes_per_s", ""),
    Figure("rules_references_drain_ratio", ""),
    Figure("rules_references_lanes_cpu_ratio", "processor seconds of lanes: with / without", Goal(most=1.02)),
    Figure("rules_server_history_rows_per_s", "with an expression that the target evaluates"),
    Figure("rules_server_history_ratio", ""),
    Figure("rules_server_drain_changes_per_s", ""),
    Figure("rules_server_drain_ratio", ""),
    Figure("rules_transform_history_rows_per_s", "with a transform: a computed column and a filter, by Spark SQL"),
    Figure("rules_transform_history_ratio", ""),
    Figure("rules_transform_drain_changes_per_s", ""),
    Figure("rules_transform_drain_ratio", ""),
    Figure("pre_created_created_rows_per_s", "history into a table that the task creates; the median"),
    Figure("pre_created_empty_rows_per_s", "into an existing empty table, defer-indexes: empty"),
    Figure("pre_created_never_rows_per_s", "into an existing empty table, defer-indexes: never"),
    Figure("pre_created_empty_to_never", "", Goal(least=1.4)),
    Figure("pre_created_empty_to_created", "", Goal(least=0.9)),
    Figure("shard_ddl_pessimistic_column_s", "last ALTER of the most shard tables to the column", Goal(most=2)),
    Figure("shard_ddl_pessimistic_rows_s", "last ALTER to the last row inserted after them", Goal(most=10)),
    Figure("shard_ddl_pessimistic_growth", "cost per statement: most shard tables / fewest", Goal(most=1.5)),
    Figure("shard_ddl_optimistic_column_s", "", Goal(most=2)),
    Figure("shard_ddl_optimistic_rows_s", "", Goal(most=10)),
    Figure("shard_ddl_optimistic_growth", "", Goal(most=1.5)),
    Figure("shard_ddl_pessimistic_column_p50_ms", "the last shard table's ALTER to the column", Goal(most=300)),
    Figure("shard_ddl_pessimistic_column_p95_ms", "", Goal(most=1000)),
    Figure("shard_ddl_pessimistic_row_p50_ms", "from then to the first row that waited", Goal(most=300)),
    Figure("shard_ddl_pessimistic_row_p95_ms", ""),
    Figure("shard_ddl_pessimistic_queued_ms", "each of several ALTERs of all shard tables", Goal(most=500)),
    Figure("shard_ddl_optimistic_column_p50_ms", "the last shard table's ALTER to the column", Goal(most=300)),
    Figure("shard_ddl_optimistic_column_p95_ms", "", Goal(most=1000)),
    Figure("shard_ddl_optimistic_row_p50_ms", "from then to the first row that waited", Goal(most=300)),
    Figure("shard_ddl_optimistic_row_p95_ms", ""),
    Figure("shard_ddl_optimistic_queued_ms", "each of several ALTERs of all shard tables", Goal(most=500)),
    Figure("shard_tables_create_growth", "a new shard table: among the most / among the fewest", Goal(most=1.5)),
    Figure("shard_tables_rename_growth", "", Goal(most=1.5)),
    Figure("shard_tables_swap_growth", "a swap as of gh-ost", Goal(most=1.5)),
    Figure("shard_tables_update_growth", "update-task that doubles the shard tables, per table", Goal(most=1.5)),
    Figure("shard_tables_status_ms", "query-status and shard-ddl-lock, at the master", Goal(most=500)),
    Figure("shard_tables_worker_kib", "resident set of a worker's own process, KiB per shard table", Goal(most=20)),
    Figure("scraping_history_ratio", "rows/s with metrics scraped every 5 s / without; medians", Goal(least=0.98)),
    Figure("scraping_drain_ratio", "changes/s of the uniform backlog: with / without", Goal(least=0.98)),
    Figure("scraping_lag_p50_ms", "lag p50 with scrapes - without", Goal(most=1)),
    Figure("composite_keys_delete_ratio", "commit of one deleted row: key (id, text) / key id", Goal(most=1.3)),
    Figure("composite_keys_batch_ratio", "commit of 1,000 deleted rows: key (id, text) / key id"),
    Figure("lag_floor_ms", "insert at the source, the same transaction at the target, one client: p50"),
)

Values = Mapping[str, float | None]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of ``values`` that at least ``share`` percent of them do not exceed (nearest rank).

    It never interpolates between two measured values. ``share``: above 0, up to 100. Raises ValueError when there are
    no values.
    """
    if not values:
        raise ValueError("no values")
    if not 0 < share <= 100:
        raise ValueError(f"no percentile: {share}")
    return sorted(values)[math.ceil(len(values) * share / 100) - 1]


def ratio(part: float | None, whole: float | None) -> float | None:
    """Return part / whole; None when one of them was not measured."""
    return None if part is None or not whole else part / whole


def number(value: float) -> str:
    """Return the number as text for people: at least three significant digits, no needless ones."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(values: Values) -> str:
    """Return one line per figure: name, value, goal, whether it is reached, meaning; "-" if it was not measured."""
    lines = [("figure", "value", "goal", "", "meaning")]
    for figure in FIGURES:
        value = values.get(figure.name)
        goal = str(figure.goal)
        reached = "" if value is None or not goal else ("ok" if figure.goal.holds(value) else "MISSED")
        lines.append((figure.name, "-" if value is None else number(value), goal, reached, figure.meaning))
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "\n".join(
        f"{name:<{widths[0]}}  {value:>{widths[1]}}  {goal:>{widths[2]}}  {reached:<{widths[3]}}  {meaning}".rstrip()
        for name, value, goal, reached, meaning in lines
    )


def json_line(values: Values, more: Mapping[str, object]) -> str:
    """Return every figure by name (null: not measured), then ``more`` under that name."""
    found: dict[str, Any] = {figure.name: _rounded(values.get(figure.name)) for figure in FIGURES}
    found["more"] = {name: _rounded(value) if isinstance(value, float) else value for name, value in more.items()}
    return json.dumps(found)


def _rounded(value: float | None) -> float | int | None:
    if value is None:
        return None
    return round(value) if abs(value) >= 1000 else round(value, 3)
