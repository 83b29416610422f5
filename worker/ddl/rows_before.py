"""Finds out whether the relay log has rows of a table between two places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.model import BlockData
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.rules.table_scope import TableName

LARGEST = 1 << 20
"""Bytes of the relay log that are looked through: that takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Span:
    """From group end ``begin`` to group end ``end``, for table ``name``."""

    name: TableName
    begin: RelayOffset
    end: RelayOffset


def tables_without_rows(relay: Relay, spans: Mapping[int, Span], stop: StopSignal) -> frozenset[int]:
    """The numbers of the tables that have no rows in their spans; not those whose spans end further than
    :data:`LARGEST` bytes after the first place.

    Names match without regard to letter case. Raises what a subscription and the decoder raise.
    """
    if not spans:
        return frozenset()
    first = min(span.begin for span in spans.values())
    near = {number: span for number, span in spans.items() if relay.bytes_between(first, span.end) <= LARGEST}
    last = max((span.end for span in near.values()), default=first)
    edges = tuple(sorted({place for span in near.values() for place in (span.begin, span.end)}))
    numbers = {_folded(*span.name): number for number, span in near.items()}
    if len(numbers) != len(near):
        return frozenset()
    seen: set[TableName] = set()

    def see(schema: str, table: str) -> None:
        seen.add(_folded(schema, table))

    left = set(near)
    decoder = BlockDecoder(see, source=relay.source_id)
    decoder.open(relay.opened(first).format_description)
    for item in relay.subscribe(first, last, None, stop, edges=lambda: edges):
        if not isinstance(item, BlockData):
            continue  # none is sent by reference
        decoder.decode(item.events)
        for name in seen:
            number = numbers.get(name)
            # No block extends over an edge.
            if number is not None and near[number].begin <= item.start < near[number].end:
                left.discard(number)
        if item.ends_group:
            seen.clear()
            decoder.forget()  # otherwise it reports each table once
        if not left:
            break
    return frozenset(left)


def _folded(schema: str, table: str) -> TableName:
    return schema.casefold(), table.casefold()
