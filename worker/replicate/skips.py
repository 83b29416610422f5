"""Row events that an operator has told to pass over: found by exactly their place, row by row recorded. Pure.

A row event's place is its end in the source's binlog, as errors name it. Every lane passes over its own rows of the
event: those that it had not committed when the word was said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from proto.errors import ShardmergeError
from proto.state_pb2 import BinlogOp
from worker.binlog.events import EventType
from worker.binlog.little import event_end, event_size
from worker.plan import TablePlan
from worker.position import SourcePosition
from worker.replicate.placement import Bucket, lane_of
from worker.rows import Joined, Literals, RowChange

Skips = frozenset[tuple[str, str, int]]
"""Places (server, file, end) of row events to pass over; server "": of whichever has the place."""

_HEADER = 19
_TYPE_AT = 4
_ROWS = frozenset(
    {
        *range(EventType.WRITE_ROWS_V1, EventType.DELETE_ROWS_V1 + 1),
        *range(EventType.WRITE_ROWS_V2, EventType.DELETE_ROWS_V2 + 1),
        EventType.PARTIAL_UPDATE_ROWS,
        *range(EventType.WRITE_ROWS_COMPRESSED_V1, EventType.DELETE_ROWS_COMPRESSED + 1),
    }
)


def skips_of(ops: Iterable[BinlogOp]) -> Skips:
    """What of the operator's words may be about row events. (A skip of a statement names its group: no row event ends
    where a group begins.)"""
    return frozenset((op.server, op.file, op.pos) for op in ops if op.kind == BinlogOp.KIND_SKIP)


def named_in(skips: Skips, place: SourcePosition, events: bytes) -> frozenset[int]:
    """The ends of those of ``events``, of the file of ``place``, that are to be passed over, if they are of rows."""
    wanted = frozenset(
        pos
        for server, name, pos in skips
        if name == place.file and (not server or not place.server or server == place.server)
        if pos.to_bytes(8, "little")[:4] in events
    )
    if not wanted:
        return wanted
    ends: set[int] = set()
    at = 0
    while at + _HEADER <= len(events):
        if events[at + _TYPE_AT] in _ROWS:
            ends.add(event_end(events, at))
        at += max(event_size(events, at), 1)
    return wanted & ends


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """One row, or a lane's side of one, that was passed over.

    ``operation``: insert, update, delete. ``before``, ``after``: its images as text, "" for none; ``note``: why there
    are none. ``position``: of its event. ``went``, ``came``: the key that the row leaves, or has from then on; b"" for
    none, and for an update that keeps its key.
    """

    plan: TablePlan
    operation: str
    before: str
    after: str
    note: str
    position: SourcePosition
    went: Joined = b""
    came: Joined = b""


def own_part(change: RowChange, position: SourcePosition, bucket: Bucket) -> SkippedRow | None:
    """What of ``change`` would have been the lane's; None: nothing."""
    plan = change.plan
    before, after = change.before, change.after
    # An update that changes the key is a removal in one lane and a coming in another.
    before = before if before and _is_own(plan, before, bucket) else ()
    after = after if after and _is_own(plan, after, bucket) else ()
    if not before and not after:
        return None
    operation = change.kind.name.lower()
    went, came = _key(plan, before), _key(plan, after)
    if went == came:
        went = came = b""
    return SkippedRow(plan, operation, image_text(plan, before), image_text(plan, after), "", position, went, came)


def _key(plan: TablePlan, image: Literals) -> Joined:
    return b",".join(image[index] for index in plan.key) if image else b""


def _is_own(plan: TablePlan, image: Literals, bucket: Bucket) -> bool:
    return lane_of(plan, tuple(image[index] for index in plan.key), bucket.lanes) == bucket.lane


def image_text(plan: TablePlan, image: Literals) -> str:
    """A row as the target would have it: its columns with their SQL literals."""
    return ", ".join(_pairs(plan, image))


def _pairs(plan: TablePlan, image: Literals) -> Iterator[str]:
    for item, literal in zip(plan.columns, image, strict=False):
        yield f"`{item.target_name}` = {literal.decode('utf-8', 'backslashreplace')}"


def located(error: ShardmergeError, file: str, event_end: int) -> ShardmergeError:
    """An error that the decoder raised about a row event, with the event's place as it is named to an operator."""
    values = error.values
    place = SourcePosition(file, event_end)
    if values.get("position", "").isdigit():
        return error.spec(**{**values, "position": SourcePosition(file, int(values["position"]))})
    if values.get("at") == "" and event_end:
        return error.spec(**{**values, "at": f", in the rows at {place}", "position": place})
    return error
