"""Sends each lane on another machine only the events that it needs.

A lane on the worker's machine reads the relay log's files. To another machine every byte would be sent once per lane,
and decoded by each of them. Here a block is decoded once, and the lanes together receive about the size of the binlog.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.log import get_logger
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.relay.model import BlockData
from shardmerge.worker.replicate.lane.lane_change import LaneChange, LanePlans
from shardmerge.worker.replicate.lane.plan_cursor import PlanCursor
from shardmerge.worker.rules.stage.row_stage import as_decoded, staged_targets

log = get_logger()

_MOST_BYTES = 64 << 20
"""Held for lanes that come later; they receive whole blocks when it is not enough."""

Opened = Callable[[RelayOffset], bytes]
"""Returns the format description of the events from a group end on."""

_END = RelayOffset(1 << 62, 0)


@dataclass(slots=True)
class _Held:
    """The shares of events up to ``end``, by lane; None: taken."""

    end: RelayOffset
    parts: list[bytes | None]

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts if part is not None)


class LaneShares:
    """The events of blocks by lane, for the lanes of one job. Thread-safe.

    The first lane that reaches a block splits it, and the shares of the others are held until they ask for them. Blocks
    are split in the order of the relay log, by the plans that the lanes have there: like the lanes it changes them at
    barriers, where all lanes wait, and at the edges of windows. Where anything else happens, a lane gets the whole
    block, of which it picks its rows itself.
    """

    def __init__(
        self, source: str, lanes: int, plans: LanePlans, opened: Opened, begin: RelayOffset | None = None
    ) -> None:
        """``source``: its name, for errors. ``plans``: those with which the lanes begin. ``begin``: earlier blocks are
        not split."""
        self._source = source
        self._lanes, self._opened, self._begin = lanes, opened, begin
        self._lock = threading.Lock()
        self._decoder = BlockDecoder(self._resolve, source=source, bucket=Bucket(0, lanes), filters=True)
        self._next: RelayOffset | None = None
        self._held: OrderedDict[RelayOffset, _Held] = OrderedDict()
        self._held_bytes = 0
        self._is_useless = False
        self._cursor = PlanCursor(plans)
        self._staged = _staged(plans)

    def of(self, lane: int, block: BlockData) -> bytes:
        """The events of ``block`` that ``lane`` needs; perhaps all of them."""
        if not _is_plain(block) or (self._begin is not None and block.start < self._begin):
            return block.events
        # Near the head of the relay log each lane gets other blocks, which begin and end between any two groups.
        made: list[bytes] = []
        at = block.start
        with self._lock:
            while at < block.end:
                held = self._held.get(at)
                if held is not None and held.end <= block.end:
                    part = self._take(at, held, lane)
                    made.append(_raw(block, at, held.end) if part is None else part)
                    at = held.end
                elif self._is_useless or (self._next is not None and at < self._next):
                    stop = min(block.end, self._next_held(at))
                    made.append(_raw(block, at, stop))
                    at = stop
                else:
                    made.append(self._split_rest(block, at, lane))
                    break
        return made[0] if len(made) == 1 else b"".join(made)

    def change(self, made: bytes) -> None:
        """The lanes continue after a barrier with the plans of this change (LaneChange.to_bytes). Called for each lane;
        the first call counts."""
        change = LaneChange.from_bytes(made)
        with self._lock:
            before = self._cursor.current
            if change.number == before.changes + 1:
                after = change.apply(before)
                self._cursor.use(after)
                self._staged = _staged(after)
                self._decoder.forget()

    # --- under the lock

    def _split_rest(self, block: BlockData, at: RelayOffset, lane: int) -> bytes:
        """Split what no lane has reached before, from ``at`` to the block's end; the share of ``lane``."""
        events = _raw(block, at, block.end)
        try:
            if at != self._next:
                self._decoder.open(self._opened(at))
            changed, _ = self._cursor.pass_edges(at)
            if changed:
                self._decoder.forget_tables(changed)
            parts = self._decoder.split_by_lane(events, self._lanes)
        except Exception as error:  # noqa: BLE001 - whatever it is, the lanes find it too, and report it
            # The decoder must not be used any more.
            log.info("lanes receive whole blocks", block=str(at), reason=str(error))
            self._is_useless = True
            return events
        self._next = block.end
        if parts is None:
            return events
        self._hold(at, _Held(block.end, [part if number != lane else None for number, part in enumerate(parts)]))
        return parts[lane]

    def _take(self, at: RelayOffset, held: _Held, lane: int) -> bytes | None:
        """The share of ``lane``, which is held no longer; None if it was taken before."""
        part, held.parts[lane] = held.parts[lane], None
        if part is not None:
            self._held_bytes -= len(part)
            if all(each is None for each in held.parts):
                del self._held[at]
        return part

    def _hold(self, at: RelayOffset, held: _Held) -> None:
        """Hold the shares of the other lanes, and drop the oldest ones if there are too many."""
        self._held[at] = held
        self._held_bytes += held.size
        while self._held_bytes > _MOST_BYTES and len(self._held) > 1:
            _, dropped = self._held.popitem(last=False)
            self._held_bytes -= dropped.size

    def _next_held(self, at: RelayOffset) -> RelayOffset:
        """Where the next shares after ``at`` begin that are held, or where nothing is split yet."""
        starts = list(self._held)  # ascending: blocks are split in order
        place = bisect_right(starts, at)
        return starts[place] if place < len(starts) else (self._next or _END)

    def _resolve(self, schema: str, table: str) -> TablePlan | None:
        # Of a table without a plan: the lanes stop there, and report it with the position.
        plan = self._cursor.plan_of(
            schema,
            table,
            lambda: errors.replicate.TABLE_UNKNOWN(
                source=self._source, schema=schema, table=table, position=self._next
            ),
        )
        return as_decoded(plan) if plan is not None and plan.target_name in self._staged else plan


def _staged(plans: LanePlans) -> frozenset[str]:
    return staged_targets((*plans.plans.values(), *(item.plan for item in plans.later)))


def _is_plain(block: BlockData) -> bool:
    """Whether a block has whole groups of the relay log's own bytes. Only then a lane need not count its events."""
    return (
        not block.places
        and block.ends_group
        and block.group_start == block.start
        and block.first_event == 0
        and len(block.events) == block.end.byte - block.start.byte
    )


def _raw(block: BlockData, start: RelayOffset, end: RelayOffset) -> bytes:
    """The block's own events between two group ends."""
    if start == block.start and end == block.end:
        return block.events
    return block.events[start.byte - block.start.byte : end.byte - block.start.byte]
