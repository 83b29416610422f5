"""Tests which panels of DM's dashboards have data here, and that each of the others has a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from ruamel.yaml import YAML

from deploy.grafana.expressions import SCRAPE_LABELS, exported
from shardmerge.proto.metrics.catalogue import CATALOGUE

_FILE = Path(__file__).with_name("dm_dashboards.yaml")
_ASKED = cast("dict[str, Any]", YAML(typ="safe", pure=True).load(_FILE.read_text(encoding="utf-8")))
_SUFFIXES = ("_bucket", "_count", "_sum")

# Metrics without data, and the panels that show nothing of them. The reason is in the catalogue, and in
# docs/reference/metrics.md under "DM: not exported".
WITHOUT_DATA: dict[str, dict[str, set[str]]] = {
    "professional": {
        "dm_master_worker_event_error": {"number of worker event error"},
        "dm_relay_read_binlog_duration": {"read binlog event duration"},
        "dm_syncer_add_job_duration": {"add job duration"},
        "dm_syncer_binlog_event_row": {"binlog event row number"},
        "dm_syncer_binlog_event_size": {"binlog event size"},
        "dm_syncer_binlog_transform_cost": {
            "binlog event QPS",
            "binlog event cost duration",
            "transform binlog event duration",
        },
        "dm_syncer_conflict_detect_duration": {"DML conflict detect duration"},
        "dm_syncer_dispatch_binlog_duration": {"dispatch binlog event duration"},
        "dm_syncer_query_duration_time": {"transaction/ddl query execution latency"},
        "dm_syncer_queue_size": {"DML queue remain length"},
        "dm_syncer_read_binlog_duration": {"read binlog event duration"},
        "dm_syncer_skip_binlog_duration": {"skip event duration", "skipped binlog event QPS"},
        "dm_syncer_stmt_duration_time": {"statement execution latency - 90"},
        "dm_syncer_unsynced_table_number": {"unsynced tables"},
        "dm_validator_validator_binlog_file": {"Validator Binlog Position (in file)"},
        "dm_validator_validator_binlog_pos": {"Validator Binlog Position (in byte)"},
        "dm_validator_validator_error_count": {"Validator Error Count"},
        "dm_validator_validator_logfile_latency": {"Validator Binlog Latency (in file)"},
        "dm_validator_validator_logpos_latency": {"Validator Binlog Latency (in byte)"},
        "dm_worker_operate_error": {
            "auto-resume error",
            "before any operate error",
            "pause error",
            "resume error",
            "source bound error",
            "start error",
            "stop error",
            "update error",
        },
        "lightning_block_deliver_bytes_sum": {"SQL process rate", "Total bytes for load unit"},
        "lightning_idle_workers": {"Idle workers"},
        "lightning_importer_engine": {"External resources"},
        "lightning_kv_encoder": {"External resources"},
        "lightning_row_read_bytes_sum": {"Total bytes for load unit"},
    },
    "standard": {
        "dm_syncer_query_duration_time": {"transaction/ddl query execution latency"},
        "lightning_block_deliver_bytes_sum": {"Total bytes for load unit"},
        "lightning_row_read_bytes_sum": {"Total bytes for load unit"},
    },
}


def _base(metric: str) -> str:
    for suffix in _SUFFIXES:
        if metric not in CATALOGUE and metric.removesuffix(suffix) in CATALOGUE:
            return metric.removesuffix(suffix)
    return metric


def _without_data(dashboard: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for panel in _ASKED[dashboard]["panels"]:
        for metric in panel["metrics"]:
            if metric not in exported():
                found.setdefault(_base(metric), set()).add(panel["panel"])
    return found


@pytest.mark.parametrize("dashboard", WITHOUT_DATA)
def test_the_panels_without_data_are_listed_with_a_reason(dashboard: str) -> None:
    found = _without_data(dashboard)
    assert found == WITHOUT_DATA[dashboard]
    for metric in found:
        assert CATALOGUE[metric].absent, metric


@pytest.mark.parametrize("dashboard", WITHOUT_DATA)
def test_the_other_panels_select_by_labels_that_exist(dashboard: str) -> None:
    for panel in _ASKED[dashboard]["panels"]:
        for metric, labels in panel["metrics"].items():
            if metric in exported():
                assert set(labels) <= {*exported()[metric].labels, *SCRAPE_LABELS}, panel["panel"]


@pytest.mark.parametrize("dashboard", WITHOUT_DATA)
def test_the_variables_have_values(dashboard: str) -> None:
    for metric, labels in _ASKED[dashboard]["variables"].items():
        if metric not in exported():
            assert CATALOGUE[_base(metric)].absent, metric
            continue
        # DM's data flow engine alone has jobs: without the label every choice is "all".
        assert set(labels) - {"job_id"} <= {*exported()[metric].labels, *SCRAPE_LABELS}, metric
