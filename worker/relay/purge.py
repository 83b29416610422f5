"""Which segments may go: pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from worker.position import RelayOffset, SourcePosition
from worker.relay.files import FIRST_BYTE
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


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one segment holds: everything from ``begin`` to ``end``, places at the source.

    ``floor``: the lowest segment that whoever reads this one may need: prepared transactions that end in it.
    """

    number: int
    begin: SourcePosition
    end: SourcePosition
    floor: int


class Why(enum.Enum):
    """Why the oldest segment that is left holds some of what was to go. NONE: it does not."""

    NONE = enum.auto()
    FILE = enum.auto()  # it holds some of the file, too
    WRITTEN = enum.auto()  # it is written to
    PREPARED = enum.auto()  # a transaction in it is prepared and ends later, or not yet
    NEEDED = enum.auto()  # a checkpoint lies in it or before it
    UNKNOWN = enum.auto()  # what checkpoints need is not known yet
    READ = enum.auto()  # someone reads it now


@dataclass(frozen=True, slots=True)
class Choice:
    """``keep``: number of the oldest segment to keep; 0: there is none yet."""

    keep: int
    why: Why


@dataclass(frozen=True, slots=True)
class Purged:
    """What was removed: so many segments with so many bytes of events. ``begin``: where the relay log begins now,
    ``why`` no later; ``needed``: the lowest checkpoint, None for none."""

    segments: int
    size: int
    begin: SourcePosition
    why: Why
    needed: RelayOffset | None


def knows_file(file: str, head: SourcePosition) -> bool:
    """Whether ``file`` is one of the files of the server at hand up to where the relay log is, ``head``.

    What lies before the relay log counts: it is purged already.
    """
    name, dot, number = file.rpartition(".")
    if not (name and dot and number.isascii() and number.isdigit()):
        return False
    return name == head.file.rpartition(".")[0] and int(number) <= head.file_order()[0]


def first_from_file(
    stretches: Sequence[Stretch], file: str, server_from: int, needed: RelayOffset | None, read: int | None
) -> Choice:
    """What to keep when everything before the source's binlog ``file`` is to go.

    ``stretches``: all segments, oldest first; from number ``server_from`` on they are of the server whose file it is,
    those before it are older than any of its files. ``needed``: the lowest checkpoint, with what it needs of segments
    before its own (I7); a place below all segments: not known. ``read``: the lowest segment that is being read; each
    None for nothing. A segment goes as a whole or not at all; the last one stays.
    """
    wanted = SourcePosition(file, FIRST_BYTE).file_order()
    for stretch in stretches:
        why = _reason(stretch, wanted, server_from, needed, read, oldest=stretches[0].number)
        if why is not None:
            # Prepared transactions that end in this one may lie in what was to go.
            return (
                Choice(stretch.floor, Why.PREPARED) if stretch.floor < stretch.number else Choice(stretch.number, why)
            )
    return Choice(stretches[-1].number, Why.WRITTEN) if stretches else Choice(0, Why.NONE)


def _reason(
    stretch: Stretch,
    wanted: tuple[int, int],
    server_from: int,
    needed: RelayOffset | None,
    read: int | None,
    *,
    oldest: int,
) -> Why | None:
    """Why a segment stays; None: it may go."""
    if stretch.number >= server_from:
        if stretch.begin.file_order() >= wanted:
            return Why.NONE
        if stretch.end.file_order() > wanted:
            return Why.FILE
    if needed is not None and stretch.number >= needed.segment:
        return Why.UNKNOWN if needed.segment < oldest else Why.NEEDED
    if read is not None and stretch.number >= read:
        return Why.READ
    return None


def kept_because(purged: Purged, file: str, tasks: Sequence[str]) -> str:
    """One phrase for people: why the relay log still holds some of what lies before ``file``; "" when it does not.

    ``tasks``: those that hold it back.
    """
    who = f"task {', '.join(tasks)}" if tasks else "a task"
    match purged.why:
        case Why.NONE:
            return ""
        case Why.FILE:
            return f"its oldest segment holds some of {file} too, and goes as a whole"
        case Why.WRITTEN:
            return "its oldest segment is still written to"
        case Why.PREPARED:
            return "a prepared (XA) transaction in its oldest segment is not over there"
        case Why.NEEDED:
            return f"{who} needs it from relay offset {purged.needed} on"
        case Why.UNKNOWN:
            return f"{who} has not said yet what it needs: it is starting, copies its snapshot or is paused"
        case Why.READ:
            return "it is being read now"
