"""Decodes merged ids that a task file's ``partition id`` mappings have made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.config.rules.partition_id import names_of, partition_of, parts_sql, shard_sql
from shardmerge.proto.config.rules.pattern import Pattern, compile_pattern
from shardmerge.proto.config.rules.rule_model import ColumnMapping
from shardmerge.proto.config.task.task_file import TaskFile, parse_task


@dataclass(frozen=True, slots=True)
class Decoded:
    """The id as one mapping reads it. ``schemas``, ``tables``: names that the numbers may come from, () if the part has
    no bits; ``select``: the four parts of any id as expressions, ``where``: the ids of this id's shard table."""

    mapping: str
    sources: tuple[str, ...]
    column: str
    instance: int | None
    schemas: tuple[str, ...]
    tables: tuple[str, ...]
    original: int
    select: str
    where: str

    def to_dict(self) -> dict[str, object]:
        return {
            "mapping": self.mapping,
            "sources": list(self.sources),
            "column": self.column,
            "instance": self.instance,
            "schemas": list(self.schemas),
            "tables": list(self.tables),
            "original": self.original,
            "select": self.select,
            "where": self.where,
        }

    def lines(self) -> Iterator[str]:
        """The lines of the text output."""
        yield f"mapping   {self.mapping} (column {self.column})"
        yield f"source    {', '.join(self.sources)}"
        yield f"schema    {' or '.join(self.schemas) or '(not in the id)'}"
        yield f"table     {' or '.join(self.tables) or '(not in the id)'}"
        yield f"id        {self.original}"
        yield f"select    {self.select}"
        yield f"where     {self.where}"


def decode(text: str, file_name: str, merged: int, table: str = "") -> tuple[Decoded, ...]:
    """Every possible reading of the id. ``table``: only mappings whose shard tables may go to this target,
    "schema.table".

    Raises what :func:`parse_task` raises, and ID_OF_NOBODY.
    """
    file = parse_task(text, file_name, None)
    mappings = file.model.column_mappings.items()
    readings = (
        _reading(file, name, each, merged, table) for name, each in mappings if each.expression == "partition id"
    )
    found = tuple(reading for reading in readings if reading is not None)
    if not found:
        raise errors.config.ID_OF_NOBODY(file=file_name, id=merged)
    return found


def _reading(file: TaskFile, name: str, mapping: ColumnMapping, merged: int, target: str) -> Decoded | None:
    """The reading of one mapping; None: the mapping makes no such id."""
    arguments = tuple(mapping.arguments)
    instance, schema_prefix, table_prefix, separator = (*arguments, "", "", "", "")[:4]
    try:
        parts = partition_of(merged, arguments)
    except ValueError:
        return None
    if instance and parts.instance != int(instance):
        return None
    schemas = names_of(parts.schema, schema_prefix, separator)
    tables = names_of(parts.table, table_prefix, separator)
    schemas = _matching(schemas, mapping.schema_pattern, file)
    tables = _matching(tables, mapping.table_pattern, file)
    if (parts.schema is not None and not schemas) or (parts.table is not None and not tables):
        return None
    if target and not _may_route_to(file, schemas, tables, target):
        return None
    column = f"`{mapping.target_column.replace('`', '``')}`"
    sources = tuple(each.source_id for each in file.model.mysql_instances if name in each.column_mapping_rules)
    names = ("instance", "schema_number", "table_number", "original_id")
    select = ", ".join(f"{part} AS {each}" for part, each in zip(parts_sql(column, arguments), names, strict=True))
    return Decoded(
        name,
        sources,
        mapping.target_column,
        parts.instance,
        schemas,
        tables,
        parts.original,
        select,
        shard_sql(column, merged, arguments),
    )


def _matching(names: tuple[str, ...], pattern: str, file: TaskFile) -> tuple[str, ...]:
    if not pattern:
        return names
    compiled = _compiled(pattern, file)
    return tuple(name for name in names if compiled.matches(name))


def _may_route_to(file: TaskFile, schemas: tuple[str, ...], tables: tuple[str, ...], target: str) -> bool:
    """Whether a route maps a table of these names to ``target``; a name that is not in the id may be any."""
    schema, _, table = target.partition(".")
    for route in file.model.routes.values():
        fits = (
            (not schemas or bool(_matching(schemas, route.schema_pattern, file))),
            (not tables or not route.table_pattern or bool(_matching(tables, route.table_pattern, file))),
        )
        if all(fits) and route.target_schema == schema and (not route.target_table or route.target_table == table):
            return True
    return False


def _compiled(pattern: str, file: TaskFile) -> Pattern:
    return compile_pattern(pattern, file.model.case_sensitive)
