"""What of the history is removed: by age, by number within a group, and by number in all. Pure.

A group is a task, or a kind of entries of a task. Within a group the oldest are removed. If all groups together are too
many, the largest tasks lose first, all down to the same number: one task cannot remove the history of another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardmerge.proto import etcd_keys

DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """``group``: the most records of a group, ``total``: of all."""

    group: int
    total: int


ENTRIES = RecordLimits(group=2_000, total=50_000)
"""Of each kind of each task. proto/task_history/record.py bounds an entry to 2 KiB, so all take at most 100 MiB; most
have 300 to 500 bytes."""
BLOCKS = RecordLimits(group=2_000, total=10_000)
"""Of each task. A block has at most 24 samples, about 3 KiB, so all take at most 30 MiB."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A record of the history. ``at``: Unix seconds of its begin."""

    key: str
    task: str
    group: str
    at: float


def stored_entries(keys: Iterable[str]) -> list[Stored]:
    """The entries with these keys; keys that this version does not know are left out, and so left alone."""
    found: list[Stored] = []
    for key in keys:
        match etcd_keys.names(key, etcd_keys.HISTORY_ENTRIES):
            case (task, kind, name) if (begin := name.partition("-")[0]).isdecimal():
                found.append(Stored(key, task, kind, int(begin) / 1000))
            case _:
                pass
    return found


def stored_blocks(keys: Iterable[str]) -> list[Stored]:
    """The blocks of samples with these keys."""
    found: list[Stored] = []
    for key in keys:
        match etcd_keys.names(key, etcd_keys.HISTORY_SAMPLES):
            case (task, block) if (begin := block.partition("-")[0]).isdecimal():
                found.append(Stored(key, task, "", float(int(begin))))
            case _:
                pass
    return found


def to_remove(records: Sequence[Stored], now: float, days: float, bound: RecordLimits) -> list[str]:
    """The keys of the records that are older than ``days`` or more than ``bound``; the oldest of each task first."""
    oldest = now - days * DAY_SECONDS
    kept: dict[str, list[Stored]] = defaultdict(list)
    groups: dict[tuple[str, str], list[Stored]] = defaultdict(list)
    for record in records:
        if record.at >= oldest:
            groups[record.task, record.group].append(record)
    for (task, _), members in groups.items():
        kept[task] += _newest(members, bound.group)
    share = fair_share([len(members) for members in kept.values()], bound.total)
    stay = {record.key for members in kept.values() for record in _newest(members, share)}
    return [record.key for record in sorted(records, key=_age) if record.key not in stay]


def fair_share(counts: Sequence[int], total: int) -> int:
    """The largest number with which all of ``counts``, none taken as more than it, sum up to ``total`` at most; at
    least the largest count if they do anyway."""
    left = total
    for index, count in enumerate(sorted(counts)):
        share = left // (len(counts) - index)
        if count > share:
            return share
        left -= count
    return max(counts, default=0)


def _newest(members: Sequence[Stored], most: int) -> list[Stored]:
    return sorted(members, key=_age)[max(0, len(members) - most) :]


def _age(record: Stored) -> tuple[float, str]:
    return record.at, record.key
