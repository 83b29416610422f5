"""Which segments may go: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worker.position import RelayOffset
from worker.relay.model import PurgePolicy


@dataclass(frozen=True, slots=True)
class OldSegment:
    """A closed segment. ``age_seconds`` since it was closed."""

    number: int
    size: int
    age_seconds: float


def first_to_keep(
    segments: Sequence[OldSegment], needed: RelayOffset | None, policy: PurgePolicy, free_bytes: int
) -> int | None:
    """The number of the oldest segment to keep; None: all.

    ``segments``: the closed ones, oldest first. A segment goes when every older one goes, no checkpoint
    needs it (``needed`` is the lowest, I7) and it is too old or space is short.
    """
    keep: int | None = None
    wanted = policy.remain_space_gib * (1 << 30)
    for segment in segments:
        if needed is not None and segment.number >= needed.segment:
            break
        expired = policy.expires_hours > 0 and segment.age_seconds > policy.expires_hours * 3600
        if not expired and free_bytes >= wanted:
            break
        free_bytes += segment.size
        keep = segment.number + 1
    return keep
