"""Decides which segments of a relay log may be removed. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.log.files import FIRST_BYTE
from shardmerge.worker.relay.model import PurgePolicy


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

    ``segments``: the closed ones, oldest first. A segment is removed when every older one is, no checkpoint
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


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The range of one segment: everything from ``begin`` to ``end``, positions at the source.

    ``floor``: the lowest segment that a reader of this one may need: it has prepared transactions that end here.
    """

    number: int
    begin: SourcePosition
    end: SourcePosition
    floor: int


class HeldBecause(enum.Enum):
    """The reason why the oldest remaining segment has events that were to be removed. NONE: it has none."""

    NONE = enum.auto()
    FILE = enum.auto()  # it also has events of the file
    WRITTEN = enum.auto()  # it is the segment that is being written
    PREPARED = enum.auto()  # a transaction in it is prepared and ends later, or not yet
    NEEDED = enum.auto()  # a checkpoint is in it or before it
    UNKNOWN = enum.auto()  # the needs of checkpoints are not known yet
    READ = enum.auto()  # it is being read


@dataclass(frozen=True, slots=True)
class PurgeDecision:
    """``keep``: number of the oldest segment to keep; 0: there is no segment yet. ``why``: see HeldBecause."""

    keep: int
    why: HeldBecause


@dataclass(frozen=True, slots=True)
class Purged:
    """The result of a purge: the number of removed segments and the bytes of their events. ``begin``: the present begin
    of the relay log, ``why``: the reason why it is not later; ``needed``: the lowest checkpoint, None for none."""

    segments: int
    size: int
    begin: SourcePosition
    why: HeldBecause
    needed: RelayOffset | None


def knows_file(file: str, head: SourcePosition) -> bool:
    """Whether ``file`` is one of the current server's files up to ``head``, the end of the relay log.

    Files before the relay log's begin count: they are purged already.
    """
    name, dot, number = file.rpartition(".")
    if not (name and dot and number.isascii() and number.isdigit()):
        return False
    return name == head.file.rpartition(".")[0] and int(number) <= head.file_order()[0]


def first_from_file(
    ranges: Sequence[SegmentRange], file: str, server_from: int, needed: RelayOffset | None, read: int | None
) -> PurgeDecision:
    """Decides which segments to keep when everything before the source's binlog ``file`` is to be removed.

    ``ranges``: all segments, oldest first; from number ``server_from`` on they are from the server of the file,
    the earlier ones are older than any of its files. ``needed``: the lowest checkpoint, including the earlier segments
    that it needs (I7); an offset below all segments: unknown. ``read``: the lowest segment that is being read; each
    None for nothing. A segment is removed as a whole or not at all; the last one is kept.
    """
    wanted = SourcePosition(file, FIRST_BYTE).file_order()
    for segment_range in ranges:
        why = _reason(segment_range, wanted, server_from, needed, read, oldest=ranges[0].number)
        if why is not None:
            # Earlier segments may have prepared transactions that end in this one.
            return (
                PurgeDecision(segment_range.floor, HeldBecause.PREPARED)
                if segment_range.floor < segment_range.number
                else PurgeDecision(segment_range.number, why)
            )
    return PurgeDecision(ranges[-1].number, HeldBecause.WRITTEN) if ranges else PurgeDecision(0, HeldBecause.NONE)


def _reason(
    segment_range: SegmentRange,
    wanted: tuple[int, int],
    server_from: int,
    needed: RelayOffset | None,
    read: int | None,
    *,
    oldest: int,
) -> HeldBecause | None:
    """The reason to keep a segment; None: it may be removed."""
    if segment_range.number >= server_from:
        if segment_range.begin.file_order() >= wanted:
            return HeldBecause.NONE
        if segment_range.end.file_order() > wanted:
            return HeldBecause.FILE
    if needed is not None and segment_range.number >= needed.segment:
        return HeldBecause.UNKNOWN if needed.segment < oldest else HeldBecause.NEEDED
    if read is not None and segment_range.number >= read:
        return HeldBecause.READ
    return None


def kept_because(purged: Purged, file: str, tasks: Sequence[str]) -> str:
    """A phrase for users: why the relay log still has events from before ``file``; "" when it does not.

    ``tasks``: the tasks that need them.
    """
    who = f"task {', '.join(tasks)}" if tasks else "a task"
    match purged.why:
        case HeldBecause.NONE:
            return ""
        case HeldBecause.FILE:
            return f"its oldest segment also has events of {file}, and segments are removed as a whole"
        case HeldBecause.WRITTEN:
            return "its oldest segment is still written to"
        case HeldBecause.PREPARED:
            return "a prepared (XA) transaction in its oldest segment has not ended in that segment"
        case HeldBecause.NEEDED:
            return f"{who} needs it from relay offset {purged.needed} on"
        case HeldBecause.UNKNOWN:
            return f"{who} has not reported yet what it needs: it is starting, copies its snapshot or is paused"
        case HeldBecause.READ:
            return "it is being read now"
