"""Sends each lane on another machine only the events that it needs.

A lane on the worker's machine reads the relay log's files. To another machine every byte would be sent once per lane,
and decoded by each of them. Here a block is decoded once, and the lanes together receive about the size of the binlog.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from shardmerge.proto.log import get_logger
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.relay.model import BlockData
from shardmerge.worker.replicate.lane.lane_change import LaneChange, LanePlans, LaterPlans
from shardmerge.worker.rules.stage.row_stage import as_decoded, staged_targets
from shardmerge.worker.rules.table_window import WindowCursor

log = get_logger()

_MOST_BYTES = 64 << 20
"""Held for lanes that come later; they receive whole blocks when it is not enough."""

Opened = Callable[[RelayOffset], bytes]
"""Returns the format description of the events from a group end on."""

_Place = tuple[RelayOffset, RelayOffset]


class LaneShares:
    """The events of blocks by lane, for the lanes of one job. Thread-safe.

    The first lane that reaches a block splits it, and the shares of the others are held until they ask for them. Blocks
    are split in the order of the relay log, by the plans that the lanes have there: like the lanes it changes them at
    barriers, where all lanes wait, and at the edges of windows. Where anything else happens, a lane gets the whole
    block, of which it picks its rows itself.
    """

    def __init__(self, lanes: int, plans: LanePlans, opened: Opened, begin: RelayOffset | None = None) -> None:
        """``plans``: those with which the lanes begin. ``begin``: earlier blocks are not split."""
        self._lanes, self._opened, self._begin = lanes, opened, begin
        self._lock = threading.Lock()
        self._decoder = BlockDecoder(self._resolve, bucket=Bucket(0, lanes), filters=True)
        self._next: RelayOffset | None = None
        self._held: OrderedDict[_Place, list[bytes | None]] = OrderedDict()
        self._held_bytes = 0
        self._is_useless = False
        self._use(plans)

    def of(self, lane: int, block: BlockData) -> bytes:
        """The events of ``block`` that ``lane`` needs; perhaps all of them."""
        if not _is_plain(block) or (self._begin is not None and block.start < self._begin):
            return block.events
        with self._lock:
            place = (block.start, block.end)
            held = self._held.get(place)
            if held is not None:
                return self._taken(place, held, lane, block)
            if self._is_useless or (self._next is not None and block.start < self._next):
                return block.events
            parts = self._split(block)
            if parts is None:
                return block.events
            self._hold(place, parts, lane)
            return parts[lane]

    def change(self, made: bytes) -> None:
        """The lanes continue after a barrier with the plans of this change (LaneChange.to_bytes). Called for each lane;
        the first call counts."""
        change = LaneChange.from_bytes(made)
        with self._lock:
            if change.number == self._current.changes + 1:
                self._use(change.apply(self._current))
                self._decoder.forget()

    # --- under the lock

    def _split(self, block: BlockData) -> list[bytes] | None:
        try:
            if block.start != self._next:
                self._decoder.open(self._opened(block.start))
            self._pass_edges(block.start)
            parts = self._decoder.split_by_lane(block.events, self._lanes)
        except Exception as error:  # noqa: BLE001 - whatever it is, the lanes find it too, and report it
            # The decoder must not be used any more.
            log.info("lanes receive whole blocks", block=str(block.start), reason=str(error))
            self._is_useless = True
            return None
        self._next = block.end
        return parts

    def _taken(self, place: _Place, held: list[bytes | None], lane: int, block: BlockData) -> bytes:
        part = held[lane]
        if part is None:
            return block.events
        held[lane] = None
        self._held_bytes -= len(part)
        if not any(each is not None for each in held):
            del self._held[place]
        return part

    def _hold(self, place: _Place, parts: list[bytes], lane: int) -> None:
        """Hold the shares of the other lanes, and drop the oldest ones if there are too many."""
        held: list[bytes | None] = list(parts)
        held[lane] = None
        self._held[place] = held
        self._held_bytes += sum(len(part) for part in held if part is not None)
        while self._held_bytes > _MOST_BYTES and len(self._held) > 1:
            _, dropped = self._held.popitem(last=False)
            self._held_bytes -= sum(len(part) for part in dropped if part is not None)

    def _use(self, plans: LanePlans) -> None:
        self._current = plans
        self._plans = dict(plans.plans)
        self._windows, self._later = WindowCursor(plans.windows), LaterPlans(plans.later)
        self._staged = staged_targets((*plans.plans.values(), *(item.plan for item in plans.later)))

    def _pass_edges(self, start: RelayOffset) -> None:
        """Open and close windows, and use later plans, as the lanes do (worker/replicate/lane/row_collector.py)."""
        changed = self._windows.advance(start)
        later = self._later.reached(start)
        self._plans.update(later)
        if changed or later:
            self._decoder.forget_tables(changed.union(later))

    def _resolve(self, schema: str, table: str) -> TablePlan | None:
        if not self._windows.is_open((schema, table)):
            return None
        plan = self._plans.get((schema, table))
        if plan is None and self._current.scope.holds(schema, table):
            # The lanes stop here, and report the table.
            raise _UnknownTable(f"{schema}.{table}")
        if plan is None or plan.target_name not in self._staged:
            return plan
        return as_decoded(plan)


class _UnknownTable(Exception):
    """A table of the task without a plan."""


def _is_plain(block: BlockData) -> bool:
    """Whether a block has whole groups of the relay log's own bytes. Only then a lane need not count its events."""
    return (
        not block.places
        and block.ends_group
        and block.group_start == block.start
        and block.first_event == 0
        and len(block.events) == block.end.byte - block.start.byte
    )
