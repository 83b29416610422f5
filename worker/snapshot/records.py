"""What is known of a chunk: where it was read, what it came to."""

from __future__ import annotations

from dataclasses import dataclass

from worker.position import RelayOffset, SourcePosition
from worker.snapshot.chunks import Chunk


@dataclass(frozen=True, slots=True)
class Mark:
    """A chunk's high watermark; ``offset`` in relay log ``relay_id`` where the reader learned it, else None."""

    position: SourcePosition
    relay_id: str = ""
    offset: RelayOffset | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a finished chunk came to: rows, bytes of SQL, seconds."""

    rows: int
    bytes: int
    seconds: float
    high: Mark


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """``loaded``: None while the chunk is only planned."""

    shard: int
    chunk: Chunk
    loaded: Loaded | None


@dataclass(frozen=True, slots=True)
class TableReport:
    """What a source table's loaded chunks came to. ``bytes``: of SQL; ``seconds``: of its readers' work, added up."""

    source_table: str
    target_table: str
    chunks: int
    rows: int
    bytes: int
    seconds: float
