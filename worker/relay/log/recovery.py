"""Opens a relay log after any end of the process or the machine.

Every segment but the last is *sealed*: it is completely on disk, and its index records that. The last one is valid up
to its last whole event group; the bytes after it are removed and fetched again. They get the same relay
offsets, because the stored bytes and the ends of segments depend on nothing but the source's events.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shardmerge.proto.files.durable_file import sync_directory, sync_file
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.relay.log.files import FIRST_BYTE, relay_path, remove_segment, segment_numbers, statements_path
from shardmerge.worker.relay.log.generation import Generation
from shardmerge.worker.relay.log.index_records import IndexEntry
from shardmerge.worker.relay.log.segment import (
    Segment,
    SegmentContents,
    begin_entry,
    end_entry,
    head_at,
    read_begin,
    read_sealed,
    scan,
    write_index,
)
from shardmerge.worker.relay.model import Head


@dataclass(frozen=True, slots=True)
class Recovered:
    """The contents of a directory. ``state``: the binlog state at ``head``. ``cut``: bytes of an incomplete tail that
    were removed."""

    segments: list[Segment]
    head: Head
    state: str
    cut: int


def recover(directory: Path, source: str, generation: Generation, spacing: int) -> Recovered:
    """Repair the directory and return its contents. Raises OSError."""
    segments: list[Segment] = []
    head = Head(RelayOffset(generation.first, FIRST_BYTE), generation.begin, 0.0)
    state = ""
    number = generation.first
    cut = 0
    while sealed := _sealed(directory, source, number, generation, spacing):
        begin, end = sealed
        segments.append(Segment(number, begin, end))
        head, state = head_at(number, end), end.state
        number += 1
    begin = _begin(directory, number, generation)
    found = scan(directory, source, number, begin, spacing) if begin else None
    if begin and found:
        cut += _cut(directory, number, found)
        segments.append(Segment(number, begin, None, found.index))
        head, state = found.head, found.state
        number += 1
    for other in segment_numbers(directory):
        # Below: left by an interrupted purge. Above: after the segment that had to be truncated.
        if not generation.first <= other < number:
            cut += _size(relay_path(directory, other)) if other >= number else 0
            remove_segment(directory, other)
    sync_directory(directory)
    return Recovered(segments, head, state, cut)


def _begin(directory: Path, number: int, generation: Generation) -> IndexEntry | None:
    found = read_begin(directory, number)
    if found is None and number == generation.first:
        return begin_entry(generation.begin, 0.0)
    return found


def _sealed(
    directory: Path, source: str, number: int, generation: Generation, spacing: int
) -> tuple[IndexEntry, IndexEntry] | None:
    """Begin and end of the segment if it is sealed, or can be sealed: its index is damaged, but its events end exactly
    where the next segment begins.
    """
    begin = _begin(directory, number, generation)
    if begin is None:
        return None
    end = read_sealed(directory, number)
    if end is not None:
        return begin, end
    following = read_begin(directory, number + 1)
    if following is None:
        return None
    found = scan(directory, source, number, begin, spacing)
    if found is None or found.head.offset.byte != _size(relay_path(directory, number)):
        return None
    ours, theirs = found.head.position, following.position
    if (ours.file, ours.pos) != (theirs.file, theirs.pos):
        return None
    return begin, _seal(directory, number, found.head, found)


def _seal(directory: Path, number: int, head: Head, found: SegmentContents) -> IndexEntry:
    """Write the index of a scanned segment and seal it."""
    write_index(directory, number, found.index, None)
    end = end_entry(head, _size(statements_path(directory, number)), found.state)
    write_index(directory, number, found.index, end)
    return end


def _cut(directory: Path, number: int, found: SegmentContents) -> int:
    """Truncate the segment after its last whole group and rewrite its index; returns the removed bytes."""
    path = relay_path(directory, number)
    torn = _size(path) - found.head.offset.byte
    os.truncate(path, found.head.offset.byte)
    sync_file(path)
    write_index(directory, number, found.index, None)
    return torn


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
