"""The values that the snapshot records about a chunk: its high watermark and its row, byte and time counts."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.snapshot.chunks import Chunk


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


@dataclass(frozen=True, slots=True)
class TableReport:
    """Totals of a source table's loaded chunks. ``bytes``: of SQL; ``seconds``: of its readers' work, added up."""

    source_table: str
    target_table: str
    chunks: int
    rows: int
    bytes: int
    seconds: float
