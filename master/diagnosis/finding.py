"""A finding: one cause of a delay, what it is about, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from shardmerge.proto import diagnose_pb2 as pb
from shardmerge.proto.listed_names import listed

STOPPED = 100.0
"""Weight of a cause for which nothing of a source is applied."""

LOCKED = 90.0
"""Weight of a lock that a lane at the target, or a copy at the source, waits for."""

PARKED = 80.0
"""Weight of a DDL lock: the rows of some tables wait."""

SCANNED = 78.0
"""Weight of a statement that reads a whole table for a few rows."""

HELD = 70.0
"""Weight of rows that are held: the target lacks them."""

BUSY = 60.0
"""Weight of a cause that takes all of the lanes' time; a part of the time has a part of it."""

NOTE = 10.0
"""Weight of what is no problem."""


@dataclass(frozen=True, slots=True)
class Finding:
    """See Finding in proto/diagnose.proto. ``text`` does not name the source."""

    id: str
    weight: float
    text: str
    actions: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict[str, float])
    names: Mapping[str, str] = field(default_factory=dict[str, str])

    def of(self, source: str) -> Finding:
        return replace(self, sources=(source,))

    def to_proto(self) -> pb.Finding:
        message = pb.Finding(
            id=self.id, sources=self.sources, weight=round(self.weight, 1), text=self.text, actions=self.actions
        )
        message.figures.update(self.figures)
        message.names.update(self.names)
        return message


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By weight, the largest first. Findings that differ only in their sources are one."""
    merged: dict[tuple[object, ...], Finding] = {}
    for each in findings:
        key = (each.id, each.text, each.actions, tuple(sorted(each.names.items())))
        known = merged.get(key)
        if known is None:
            merged[key] = each
            continue
        sources = (*known.sources, *(name for name in each.sources if name not in known.sources))
        merged[key] = replace(known, sources=sources, weight=max(known.weight, each.weight))
    return tuple(sorted(merged.values(), key=lambda each: (-each.weight, each.id, each.sources)))


def seconds(value: float) -> str:
    """A duration in a sentence: "0.4 s", "31 s", "12m", "3h 20m"."""
    if value < 10:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f}m"
    return f"{int(value) // 3600}h {int(value) % 3600 // 60:02d}m"


def percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def some(items: Iterable[str]) -> str:
    """Some names, and how many more there are."""
    return listed(tuple(items), 3)
