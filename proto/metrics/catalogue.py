"""All metrics by name, those that are not exported included."""

from __future__ import annotations

import csv
from pathlib import Path

from shardmerge.proto.metrics import dm_other, dm_syncer, own_both, own_master, own_worker
from shardmerge.proto.metrics.family import Exporter, Family, MetricKind, Origin


def _read_absent() -> tuple[Family, ...]:
    """The metrics of absent.tsv, which DM or its libraries have and these daemons have not."""
    with Path(__file__).with_name("absent.tsv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Family(
                row["name"],
                MetricKind(row["kind"]),
                row["help"],
                tuple(filter(None, row["labels"].split(","))),
                row["unit"],
                Origin(row["origin"]),
                Exporter(row["exporter"]),
                absent=row["absent"],
            )
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        )


_ABSENT = _read_absent()
DM = (*dm_other.FAMILIES, *dm_syncer.FAMILIES, *(each for each in _ABSENT if each.origin is Origin.DM))
DM_LIBRARIES = (*dm_other.LIBRARY_FAMILIES, *(each for each in _ABSENT if each.origin is Origin.DM_LIBRARY))
OWN = (*own_worker.FAMILIES, *own_master.FAMILIES, *own_both.FAMILIES)

CATALOGUE: dict[str, Family] = {family.name: family for family in (*DM, *DM_LIBRARIES, *OWN)}
