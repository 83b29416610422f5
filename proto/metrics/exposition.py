"""Writes samples in Prometheus' text format.

The usual classes of the client library add `_total` to the name of every counter. DM has eleven counters without it,
and its dashboards and alerts name them so. Therefore samples become raw metrics here: such a counter is written twice,
under DM's name without a type, which `rate` and `increase` accept, and with `_total` as a counter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import CollectorRegistry

from shardmerge.proto.metrics.distribution import Distribution
from shardmerge.proto.metrics.family import Family, MetricKind, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Samples:
    """Has the method that the client library calls on a collector."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def exposition(samples: Iterable[Sample]) -> bytes:
    """The text of ``samples``, families in the order of their first sample."""
    by_family: dict[Family, list[Sample]] = {}
    for sample in samples:
        by_family.setdefault(sample.family, []).append(sample)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples([metric for family, found in by_family.items() for metric in _metrics(family, found)]))
    return generate_latest(registry)


def _metrics(family: Family, samples: Iterable[Sample]) -> Iterator[Metric]:
    if family.bare:
        found = list(samples)
        yield _metric(family, found, family.name, "unknown")
        yield _metric(family, found, f"{family.name}_total", "counter")
    else:
        yield _metric(family, samples, family.name, family.kind.value)


def _metric(family: Family, samples: Iterable[Sample], name: str, kind: str) -> Metric:
    # The library writes the name of a counter's metric with `_total` again.
    metric = Metric(name.removesuffix("_total") if kind == MetricKind.COUNTER.value else name, family.help, kind)
    for sample in samples:
        labels = dict(zip(family.labels, sample.labels, strict=True))
        if isinstance(sample.value, Distribution):
            _add_histogram(metric, family, labels, sample.value)
        else:
            metric.add_sample(name, labels, sample.value)
    return metric


def _add_histogram(metric: Metric, family: Family, labels: dict[str, str], value: Distribution) -> None:
    total = 0
    for bound, count in zip((*map(repr, family.buckets), "+Inf"), value.counts, strict=True):
        total += count
        metric.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, total)
    metric.add_sample(f"{family.name}_count", labels, total)
    metric.add_sample(f"{family.name}_sum", labels, value.sum)
