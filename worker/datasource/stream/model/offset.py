"""The offset of a stream: the position of each source, and the structures that its tables have there. Pure.

Spark keeps offsets as JSON in the checkpoint. A batch is what is between two offsets, and has the same rows each time:
an offset has all that decides them. The offset before the first batch has no sources, because Spark does not keep it.
Equal structures are written once.

    {"version": 1, "structures": [{…}], "sources": {"mysql-01": {"server": "…", "file": "…", "byte": 4, "made": 0,
     "phase": "snapshot" | "changes", "statement": false, "cuts": [["…", 4]], "prepared": [],
     "tables": {"schema": {"table": [number of the structure, schema version, reason for none]}}}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table import Table
from shardmerge.worker.datasource.stream.model.structure_json import nameless, structure_from_json, structure_to_json

VERSION = 1

TableName = tuple[str, str]

_NO_STRUCTURE = -1


@dataclass(frozen=True, slots=True)
class StreamTable:
    """A table as of an offset. ``structure``: None if it is not known, for ``reason``; the table may be gone.
    ``version``: 1, and one more after each statement that changed the table."""

    structure: Table | None
    version: int = 1
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """``position``: an end of an event group. ``made``: Unix time at which its file was made, 0 for unknown.
    ``is_snapshot``: the batch that ends here, the first one, has the rows of the tables at the position.
    ``is_statement``: the batch that ends here has one statement that changes the tables.
    ``cuts``: where the batch that ends here is divided among tasks. ``prepared``: the XA transactions that were
    prepared since the stream's start, without rows of the tables."""

    position: SourcePosition
    made: int
    tables: Mapping[TableName, StreamTable] = field(default_factory=dict[TableName, StreamTable])
    is_snapshot: bool = False
    is_statement: bool = False
    cuts: tuple[SourcePosition, ...] = ()
    prepared: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        return self.position.server


Offset = Mapping[str, SourceOffset]
"""By source-id."""


def to_json(offset: Offset) -> dict[str, Any]:
    """In an order that depends on the values alone: Spark compares the texts of offsets."""
    structures: dict[Table, int] = {}
    sources = {name: _source_to_json(offset[name], structures) for name in sorted(offset)}
    return {
        "version": VERSION,
        "structures": [structure_to_json(table) for table in structures],
        "sources": sources,
    }


def _source_to_json(source: SourceOffset, structures: dict[Table, int]) -> dict[str, Any]:
    tables: dict[str, dict[str, list[object]]] = {}
    for schema, name in sorted(source.tables):
        table = source.tables[schema, name]
        number = _NO_STRUCTURE
        if table.structure is not None:
            number = structures.setdefault(nameless(table.structure), len(structures))
        tables.setdefault(schema, {})[name] = [number, table.version, table.reason]
    return {
        "server": source.server,
        "file": source.position.file,
        "byte": source.position.pos,
        "made": source.made,
        "phase": "snapshot" if source.is_snapshot else "changes",
        "statement": source.is_statement,
        "cuts": [[cut.file, cut.pos] for cut in source.cuts],
        "prepared": list(source.prepared),
        "tables": tables,
    }


def from_json(made: Mapping[str, Any]) -> dict[str, SourceOffset]:
    """Raises STREAM_OFFSET."""
    version = made.get("version")
    if version != VERSION:
        raise _refused(f"its version is {version!r}, this program knows {VERSION}")
    try:
        structures = list(made["structures"])
        return {str(name): _source_from_json(source, structures) for name, source in made["sources"].items()}
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise _refused(f"it is not in the format of version {VERSION} ({type(error).__name__}: {error})") from None


def _source_from_json(made: Mapping[str, Any], structures: list[Mapping[str, Any]]) -> SourceOffset:
    server = str(made["server"])
    phases = {"snapshot": True, "changes": False}
    tables: dict[TableName, StreamTable] = {}
    for schema, named in made["tables"].items():
        for name, (number, version, reason) in named.items():
            known = None if number == _NO_STRUCTURE else structure_from_json(structures[int(number)], schema, name)
            tables[schema, name] = StreamTable(known, int(version), str(reason))
    return SourceOffset(
        position=SourcePosition(str(made["file"]), int(made["byte"]), server=server),
        made=int(made["made"]),
        tables=tables,
        is_snapshot=phases[made["phase"]],
        is_statement=bool(made["statement"]),
        cuts=tuple(SourcePosition(str(file), int(byte), server=server) for file, byte in made["cuts"]),
        prepared=tuple(str(name) for name in made["prepared"]),
    )


def _refused(reason: str) -> ShardmergeError:
    return errors.read.STREAM_OFFSET(reason=reason)
