"""Row events that an operator skips: identified by their exact position, recorded row by row. Pure.

A row event's position is its end in the source's binlog, as errors show it. Every lane skips its own rows of the event:
those that it had not committed when the operator issued the override.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.events import HEADER_SIZE, EventType
from shardmerge.worker.binlog.little_endian import event_end, event_size
from shardmerge.worker.core.lane_hash import Bucket, lane_of
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import JoinedLiterals, Literals, RowChange
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from shardmerge.worker.core.table_plan import TablePlan

Skips = frozenset[StoredOverride]
"""Of row events: ``pos`` is the end of the event."""

_TYPE_AT = 4
_ROWS = frozenset(
    {
        *range(EventType.WRITE_ROWS_V1, EventType.DELETE_ROWS_V1 + 1),
        *range(EventType.WRITE_ROWS_V2, EventType.DELETE_ROWS_V2 + 1),
        EventType.PARTIAL_UPDATE_ROWS,
        *range(EventType.WRITE_ROWS_COMPRESSED_V1, EventType.DELETE_ROWS_COMPRESSED + 1),
    }
)


def skip_places(ops: Iterable[StoredOverride]) -> Skips:
    """The positions that an operator's overrides skip. (A skip of a statement names its group: no row event ends where
    a group begins.)"""
    return frozenset(op for op in ops if op.kind is OverrideKind.SKIP)


def skips_in_block(skips: Skips, place: SourcePosition, events: bytes) -> frozenset[int]:
    """The ends of the row events among ``events``, in the file of ``place``, that are to be skipped."""
    wanted = frozenset(skip.pos for skip in skips if skip.is_in(place) and skip.pos.to_bytes(8, "little")[:4] in events)
    if not wanted:
        return wanted
    ends: set[int] = set()
    at = 0
    while at + HEADER_SIZE <= len(events):
        if events[at + _TYPE_AT] in _ROWS:
            ends.add(event_end(events, at))
        at += max(event_size(events, at), 1)
    return wanted & ends


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """One skipped row, or a lane's side of one.

    ``operation``: insert, update, delete. ``before``, ``after``: its images as text, "" for none; ``note``: why there
    are none. ``position``: of its event. ``removed_key``, ``added_key``: the row's key before and after the change; b""
    for none, and for an update that keeps its key.
    """

    plan: TablePlan
    operation: str
    before: str
    after: str
    note: str
    position: SourcePosition
    removed_key: JoinedLiterals = b""
    added_key: JoinedLiterals = b""


def lane_part(change: RowChange, position: SourcePosition, bucket: Bucket) -> SkippedRow | None:
    """The lane's part of ``change``; None: the lane has no part in it."""
    plan = change.plan
    before, after = change.before, change.after
    # An update that changes the key is a removal in one lane and an addition in another.
    before = before if before and _is_own(plan, before, bucket) else ()
    after = after if after and _is_own(plan, after, bucket) else ()
    if not before and not after:
        return None
    operation = change.kind.name.lower()
    went, came = _key(plan, before), _key(plan, after)
    if went == came:
        went = came = b""
    return SkippedRow(plan, operation, image_text(plan, before), image_text(plan, after), "", position, went, came)


def _key(plan: TablePlan, image: Literals) -> JoinedLiterals:
    return b",".join(image[index] for index in plan.key) if image else b""


def _is_own(plan: TablePlan, image: Literals, bucket: Bucket) -> bool:
    return lane_of(plan, tuple(image[index] for index in plan.key), bucket.lanes) == bucket.lane


def image_text(plan: TablePlan, image: Literals) -> str:
    """A row as the target would have it: its columns with their SQL literals."""
    return ", ".join(_pairs(plan, image))


def _pairs(plan: TablePlan, image: Literals) -> Iterator[str]:
    for item, literal in zip(plan.columns, image, strict=False):
        yield f"`{item.target_name}` = {literal.decode('utf-8', 'backslashreplace')}"


def with_event_position(error: ShardmergeError, file: str, event_end: int) -> ShardmergeError:
    """An error that the decoder raised about a row event, with the event's position as operators see it."""
    values = error.values
    place = SourcePosition(file, event_end)
    if values.get("position", "").isdigit():
        return error.spec(**{**values, "position": SourcePosition(file, int(values["position"]))})
    if values.get("at") == "" and event_end:
        return error.spec(**{**values, "at": f", in the rows at {place}", "position": place})
    return error
