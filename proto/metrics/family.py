"""What a metric is: its name, type, meaning, labels and unit; and one value of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from shardmerge.proto.metrics.distribution import Distribution


class MetricKind(enum.Enum):
    """The type of a metric, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Origin(enum.Enum):
    """Who defined the metric: TiDB DM, a library whose metrics DM's dashboards show, or this project."""

    DM = "DM"
    DM_LIBRARY = "a library of DM"
    OWN = "ours"


class Exporter(enum.Enum):
    """The daemon that exports a metric."""

    MASTER = "dm-master"
    WORKER = "dm-worker"
    BOTH = "both daemons"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with all of its series.

    ``help``: its meaning, one or two sentences. ``unit``: "seconds", "bytes" or "" for a number of things. ``absent``:
    why it is not exported, "": it is. ``buckets``: the upper bounds of an exported histogram. ``bare``: a counter
    of DM whose name does not end in `_total`; it is exported under both names.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    origin: Origin = Origin.OWN
    exporter: Exporter = Exporter.WORKER
    buckets: tuple[float, ...] = ()
    absent: str = ""

    @property
    def bare(self) -> bool:
        return self.kind is MetricKind.COUNTER and not self.name.endswith("_total")

    def sample(self, value: float | Distribution, **labels: str) -> Sample:
        """One value; ``labels`` must be those of the family."""
        if labels.keys() != set(self.labels) or self.absent:
            raise ValueError(f"{self.name} has the labels {self.labels}, not {tuple(labels)}")
        return Sample(self, tuple(labels[name] for name in self.labels), value)


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric. ``labels``: the values of the family's labels, in its order."""

    family: Family
    labels: tuple[str, ...]
    value: float | Distribution
