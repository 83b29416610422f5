"""Leaves out the changes that the snapshot's chunks already hold (I5)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from shardmerge.proto import relay_pb2
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.row_change import RowChange
from shardmerge.worker.snapshot.handover import Handover


class WatermarkFilter:
    """Filters one lane's changes, block by block in the order of the relay log.

    ``handover``: what the chunks hold; None: every watermark is cleared.
    """

    def __init__(self, handover: Handover | None) -> None:
        self._handover = handover

    def concerns(self, block: relay_pb2.Block) -> bool:
        """Whether keys of this block may still lie before their chunk's high watermark."""
        if self._handover is not None and RelayOffset.from_proto(block.start) >= self._handover.done_at:
            self._handover = None
        return self._handover is not None

    def counted(self, changes: list[RowChange], block: relay_pb2.Block) -> list[RowChange]:
        """Only the changes of this block that the snapshot does not already hold. Raises what Handover.apply raises."""
        if self._handover is None:
            return changes
        return self._handover.apply(changes, place_in(block))


def place_in(block: relay_pb2.Block) -> Callable[[RowChange], RelayOffset]:
    """Returns the relay offset of a change's event in ``block``."""
    start = RelayOffset.from_proto(block.start)
    if not block.place_at:
        return lambda change: RelayOffset(start.segment, start.byte + change.byte)
    # The events are not the relay log's own bytes: what counts is on which side of a group end their group is.
    at, byte = list(block.place_at), list(block.place_byte)
    return lambda change: RelayOffset(start.segment, byte[bisect_right(at, change.byte) - 1])
