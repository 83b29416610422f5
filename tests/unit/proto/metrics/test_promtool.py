"""Prometheus' own check accepts every metric, apart from what DM's names and labels break."""

from __future__ import annotations

import subprocess

from shardmerge.proto.metrics.catalogue import CATALOGUE
from shardmerge.proto.metrics.distribution import Distribution
from shardmerge.proto.metrics.exposition import exposition
from shardmerge.proto.metrics.family import Family, MetricKind, Origin, Sample

_TYPE_IN_NAME = "metric name should not include type"
_CAMEL_CASE = "label names should be written in 'snake_case'"
_OF_DM = {
    "dm_master_start_leader_counter": _TYPE_IN_NAME,
    "dm_master_start_leader_counter_total": _TYPE_IN_NAME,
    "dm_syncer_replication_lag_gauge": _TYPE_IN_NAME,
    "dm_syncer_added_jobs_total": _CAMEL_CASE,
    "dm_syncer_finished_jobs_total": _CAMEL_CASE,
    "dm_syncer_replication_transaction_batch": _CAMEL_CASE,
}
"""What the check dislikes of the metrics that must have DM's names and labels."""


def _sample(family: Family) -> Sample:
    value = Distribution.empty(family.buckets) if family.kind is MetricKind.HISTOGRAM else 1
    return family.sample(value, **dict.fromkeys(family.labels, "x"))


def test_prometheus_accepts_every_metric() -> None:
    text = exposition(_sample(family) for family in CATALOGUE.values() if not family.absent)
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False, timeout=60)
    found = dict(line.split(" ", 1) for line in done.stderr.decode().splitlines())
    assert found.keys() == _OF_DM.keys(), found
    assert [name for name, complaint in found.items() if not complaint.startswith(_OF_DM[name])] == []
    ours = {family.name for family in CATALOGUE.values() if family.origin is Origin.OWN}
    assert not ours & found.keys()
