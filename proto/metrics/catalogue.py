"""All metrics by name, those that are not exported included."""

from __future__ import annotations

from shardmerge.proto.metrics import dm_other, dm_syncer, own_both, own_master, own_worker
from shardmerge.proto.metrics.family import Family

DM = (*dm_other.FAMILIES, *dm_syncer.FAMILIES)
DM_LIBRARIES = dm_other.LIBRARY_FAMILIES
OWN = (*own_worker.FAMILIES, *own_master.FAMILIES, *own_both.FAMILIES)

CATALOGUE: dict[str, Family] = {family.name: family for family in (*DM, *DM_LIBRARIES, *OWN)}
