"""Opening a relay log after any end of the process or the machine.

Every segment but the last is *sealed*: on disk as a whole, and its index says so. The last one counts up to its
last whole event group; what is behind that is cut and fetched again. It comes out at the same relay
offsets, because what is stored and where segments end depends on nothing but the source's events.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from proto import errors
from worker.relay.files import index_path, relay_path, remove_segment, segment_numbers, sync_directory
from worker.relay.generation import Generation
from worker.relay.model import Head
from worker.relay.segment import (
    Scanned,
    Segment,
    begin_entry,
    head_at,
    read_begin,
    read_sealed,
    scan,
    write_index,
)
from worker.position import RelayOffset
from worker.relay.files import FIRST_BYTE


@dataclass(frozen=True, slots=True)
class Recovered:
    """``cut``: bytes of a torn tail that were removed."""

    segments: list[Segment]
    head: Head
    cut: int


def recover(directory: Path, source: str, generation: Generation) -> Recovered:
    """Bring the directory to a whole state and say what it holds. Raises OSError, errors.relay.RELAY_DAMAGED."""
    for number in segment_numbers(directory):
        if number < generation.first:  # a removal that was cut short
            remove_segment(directory, number)
    segments: list[Segment] = []
    head = Head(RelayOffset(generation.first, FIRST_BYTE), generation.begin, 0.0)
    number = generation.first
    cut = 0
    while relay_path(directory, number).exists() or index_path(directory, number).exists():
        begin = read_begin(directory, number)
        if begin is None and number == generation.first:
            begin = begin_entry(generation.begin, 0.0)
        end = read_sealed(directory, number)
        if begin is not None and end is not None:
            segments.append(Segment(number, begin, end))
            head = head_at(number, end)
            number += 1
            continue
        found = scan(directory, source, number, begin) if begin is not None else None
        if found is None or begin is None:
            break
        sealed_later = relay_path(directory, number + 1).exists()
        if sealed_later and _sealed_size(directory, number) is not None:
            pass
        cut += _keep(directory, number, found)
        segments.append(Segment(number, begin, None, found.index))
        head = found.head
        number += 1
        break
    for left_over in segment_numbers(directory):
        if left_over >= number:
            cut += _size(relay_path(directory, left_over))
            remove_segment(directory, left_over)
    sync_directory(directory)
    return Recovered(segments, head, cut)
