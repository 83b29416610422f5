"""The dashboard of a source and of its relay log."""

from __future__ import annotations

from deploy.grafana.model import SOURCE, Dashboard, Look, Panel, Query, Row, Unit

_OF = 'source_id=~"$source_id"'
_NAME = "{{source_id}}"
# DM's relay metrics name no source: another metric of the same worker does.
_NAMED = (
    f"* on (job, instance) group_left (source_id) group by (job, instance, source_id) (dm_source_connected{{{_OF}}})"
)


def _quantile(metric: str, share: float) -> Query:
    rates = f"sum by (job, instance, le) (rate({metric}_bucket[$__rate_interval])) {_NAMED}"
    return Query(f"histogram_quantile({share}, sum by (source_id, le) ({rates}))", f"{_NAME} {share:.0%}")


def _number(title: str, expression: str, unit: Unit) -> Panel:
    return Panel(title, (Query(expression, _NAME),), unit, Look.NUMBER, width=6, height=5)


def _errors(metric: str, text: str) -> Query:
    rates = f"sum by (job, instance) (increase({metric}_total[$__rate_interval])) {_NAMED}"
    return Query(f"sum by (source_id) ({rates})", f"{_NAME} {text}")


SOURCE_DASHBOARD = Dashboard(
    "source",
    "shardmerge: source and relay",
    (
        Row(
            "Now",
            (
                _number("Connected", f"max by (source_id) (dm_source_connected{{{_OF}}})", Unit.YES_NO),
                _number("Fetched everything", f"max by (source_id) (dm_relay_caught_up{{{_OF}}})", Unit.YES_NO),
                _number("Paused", f"max by (source_id) (dm_relay_paused{{{_OF}}})", Unit.YES_NO),
                _number(
                    "Until binlog may be lost",
                    f"min by (source_id) (dm_source_binlog_retention_left_seconds{{{_OF}}})",
                    Unit.SECONDS,
                ),
            ),
        ),
        Row(
            "Source",
            (
                Panel(
                    "Time until the source may delete binlog that is not fetched",
                    (
                        Query(f"min by (source_id) (dm_source_binlog_retention_left_seconds{{{_OF}}})", _NAME),
                        Query(
                            f"min by (source_id) (dm_source_binlog_expires_in_seconds{{{_OF}}})",
                            f"{_NAME} at the relay's speed",
                        ),
                        Query(f"max by (source_id) (dm_source_binlog_retention_seconds{{{_OF}}})", f"{_NAME} kept"),
                    ),
                    Unit.SECONDS,
                    note="Without the second line the relay keeps up.",
                ),
                Panel.of(
                    "Clocks ahead of the worker's",
                    f"max by (source_id, task, of) (dm_clock_difference_seconds{{{_OF}}})",
                    f"{_NAME} {{{{of}}}} {{{{task}}}}",
                    Unit.SECONDS,
                ),
                Panel.of(
                    "Time since the last event or heartbeat",
                    f"max by (source_id) (dm_source_silent_seconds{{{_OF}}})",
                    _NAME,
                    Unit.SECONDS,
                ),
                Panel.of(
                    "Binlog fetched",
                    f"sum by (source_id) (rate(dm_relay_written_bytes_total{{{_OF}}}[$__rate_interval]))",
                    _NAME,
                    Unit.BYTES_PER_SECOND,
                ),
                Panel.of(
                    "Lag of the relay in binlog files",
                    'max by (source_id) ((dm_relay_binlog_file{node="master"} - ignoring (node) '
                    f'dm_relay_binlog_file{{node="relay"}}) {_NAMED})',
                    _NAME,
                ),
                Panel.of(
                    "Worker of the source",
                    f"max by (source_id, worker) (dm_source_bound{{{_OF}}})",
                    f"{_NAME} {{{{worker}}}}",
                ),
            ),
        ),
        Row(
            "Relay log",
            (
                Panel.of("Size", f"max by (source_id) (dm_relay_disk_bytes{{{_OF}}})", _NAME, Unit.BYTES),
                Panel.of("Segment files", f"max by (source_id) (dm_relay_files{{{_OF}}})", _NAME),
                Panel.of(
                    "File system",
                    f"sum by (source_id, type) (dm_relay_space {_NAMED})",
                    f"{_NAME} {{{{type}}}}",
                    Unit.BYTES,
                ),
                Panel.of(
                    "Time until the disk is full",
                    f"min by (source_id) (dm_relay_disk_full_in_seconds{{{_OF}}})",
                    _NAME,
                    Unit.SECONDS,
                    note="A gap: it does not become fuller, or that is not known.",
                ),
                Panel(
                    "Time of a write",
                    (_quantile("dm_relay_write_duration", 0.5), _quantile("dm_relay_write_duration", 0.99)),
                    Unit.SECONDS,
                ),
                Panel(
                    "Size of a write",
                    (_quantile("dm_relay_write_size", 0.5), _quantile("dm_relay_write_size", 0.99)),
                    Unit.BYTES,
                ),
                Panel(
                    "Errors",
                    (
                        _errors("dm_relay_read_error_count", "read"),
                        _errors("dm_relay_write_error_count", "write"),
                        _errors("dm_relay_data_corruption", "damaged events"),
                        _errors("dm_relay_exit_with_error_count", "interruptions"),
                    ),
                ),
            ),
        ),
    ),
    (SOURCE,),
)
