"""The values that the snapshot records about a chunk: its high watermark and its row, byte and time counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.snapshot.chunks import Bound, Chunk


@dataclass(frozen=True, slots=True)
class HighWatermark:
    """A chunk's high watermark; ``offset`` in relay log ``relay_id`` if the reader located it there, else None."""

    position: SourcePosition
    relay_id: str = ""
    offset: RelayOffset | None = None


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """The result of a loaded chunk: rows, bytes of SQL, seconds of work, high watermark."""

    rows: int
    bytes: int
    seconds: float
    high: HighWatermark


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk's record at the target. ``loaded``: None while the chunk is only planned."""

    shard: int
    chunk: Chunk
    loaded: ChunkResult | None


def divided_chunks(stored: Sequence[StoredChunk], bounds: Mapping[int, Sequence[Bound]]) -> list[StoredChunk]:
    """``stored``, all chunks of one table by number, with planned chunks cut at ``bounds``, and numbered anew. Pure.

    ``bounds``: ascending ones strictly within a chunk, by its number."""
    found: list[StoredChunk] = []
    for item in stored:
        lower = item.chunk.lower
        for bound in bounds.get(item.chunk.number, ()) if item.loaded is None else ():
            found.append(StoredChunk(item.shard, Chunk(len(found), lower, bound), None))
            lower = bound
        found.append(replace(item, chunk=Chunk(len(found), lower, item.chunk.upper)))
    return found


def missing_chunk(stored: Sequence[StoredChunk]) -> tuple[int, int] | None:
    """The first chunk, by shard and number, that is not among ``stored``, ordered by these, although a later one of its
    table is; None: there is none. Pure."""
    before: StoredChunk | None = None
    for item in stored:
        if before is None or before.shard != item.shard:
            before = StoredChunk(item.shard, Chunk(-1, (), ()), None)
        if item.chunk.number != before.chunk.number + 1 or item.chunk.lower != before.chunk.upper:
            return item.shard, before.chunk.number + 1
        before = item
    return None


@dataclass(frozen=True, slots=True)
class TableReport:
    """Totals of a source table's loaded chunks. ``bytes``: of SQL; ``seconds``: of its readers' work, added up."""

    source_table: str
    target_table: str
    chunks: int
    rows: int
    bytes: int
    seconds: float
