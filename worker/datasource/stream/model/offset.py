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
from dataclasses import dataclass, field, fields
from typing import Any, cast

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table import Column, Table, ValueKind

VERSION = 1

TableName = tuple[str, str]

_NO_STRUCTURE = -1
_COLUMN_DEFAULTS: dict[str, object] = {
    "unsigned": False,
    "charset": "",
    "collation": "",
    "labels": (),
    "generated": False,
    "auto_increment": False,
    "length": 0,
    "written_as": "",
}


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
        "structures": [_structure_to_json(table) for table in structures],
        "sources": sources,
    }


def _source_to_json(source: SourceOffset, structures: dict[Table, int]) -> dict[str, Any]:
    tables: dict[str, dict[str, list[object]]] = {}
    for schema, name in sorted(source.tables):
        table = source.tables[schema, name]
        number = _NO_STRUCTURE
        if table.structure is not None:
            number = structures.setdefault(_nameless(table.structure), len(structures))
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
            known = None if number == _NO_STRUCTURE else _structure_from_json(structures[int(number)], schema, name)
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


def _nameless(table: Table) -> Table:
    """The structure without its names, which equal shard tables share."""
    found = table.structure
    return Table(
        "", "", found.columns, found.key, found.key_name, found.unique_keys, False, found.engine,
        key_hidden=found.key_hidden,
    )  # fmt: skip


def _structure_to_json(table: Table) -> dict[str, object]:
    return {
        "columns": [_column_to_json(column) for column in table.columns],
        "key": list(table.key),
        "key-name": table.key_name,
        "unique-keys": [list(key) for key in table.unique_keys],
        "engine": table.engine,
        "key-hidden": table.key_hidden,
    }


def _structure_from_json(made: Mapping[str, Any], schema: str, name: str) -> Table:
    """Raises KeyError, TypeError or ValueError for what :func:`_structure_to_json` does not write."""
    return Table(
        schema=schema,
        name=name,
        columns=tuple(_column_from_json(column) for column in made["columns"]),
        key=tuple(int(at) for at in made["key"]),
        key_name=str(made["key-name"]),
        unique_keys=tuple(tuple(str(column) for column in key) for key in made["unique-keys"]),
        has_foreign_keys=False,
        engine=str(made["engine"]),
        key_hidden=bool(made["key-hidden"]),
    )


def _column_to_json(column: Column) -> dict[str, object]:
    made: dict[str, object] = {}
    for each in fields(column):
        value: object = getattr(column, each.name)
        if each.name in _COLUMN_DEFAULTS and value == _COLUMN_DEFAULTS[each.name]:
            continue
        if isinstance(value, ValueKind):
            value = value.name
        elif isinstance(value, tuple):
            value = list(cast("tuple[object, ...]", value))
        made[each.name] = value
    return made


def _column_from_json(made: Mapping[str, Any]) -> Column:
    values = dict(made)
    values["kind"] = ValueKind[values["kind"]]
    if "labels" in values:
        values["labels"] = tuple(str(label) for label in values["labels"])
    return Column(**values)
