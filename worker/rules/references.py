"""Compiles the references: columns that hold values of a mapped column of another table, and get its mapping. Pure.

The shard table that a shard table refers to follows from names alone. It must never depend on the tables that exist:
a table that is created later would change how rows are mapped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.rules.reference_model import NUMBER
from shardmerge.proto.errors import config
from shardmerge.worker.rules.router import TableRoute

_DIGITS = re.compile(r"[0-9]+\Z")


@dataclass(frozen=True, slots=True)
class ColumnReference:
    """Column ``column`` of target table ``table`` refers to ``to_column`` of ``to_table``. ``schema`` "": any;
    ``to_schema`` "": the same as the first table's. ``shard_schema``, ``shard_table``: name the shard table, "" for the
    default."""

    schema: str
    table: str
    column: str
    to_schema: str
    to_table: str
    to_column: str
    shard_schema: str = ""
    shard_table: str = ""

    @property
    def text(self) -> str:
        """The reference as messages show it."""
        return f"{self.table}.{self.column} to {self.to_table}.{self.to_column}"


@dataclass(frozen=True, slots=True)
class ReferredShard:
    """The shard table that a shard table refers to. ``is_shared``: other shard tables may refer to it too."""

    schema: str
    table: str
    is_shared: bool


@dataclass(frozen=True, slots=True)
class References:
    """Pure; ``source`` is only for messages."""

    source: str = ""
    rules: tuple[ColumnReference, ...] = ()
    case_sensitive: bool = False

    @staticmethod
    def from_config(subtask: pb.SubTaskConfig) -> References:
        return References(
            subtask.source_id,
            tuple(
                ColumnReference(
                    rule.schema,
                    rule.table,
                    rule.column,
                    rule.to_schema,
                    rule.to_table,
                    rule.to_column,
                    rule.shard_schema,
                    rule.shard_table,
                )
                for rule in subtask.references
            ),
            subtask.case_sensitive,
        )

    def of(self, route: TableRoute) -> Iterator[ColumnReference]:
        """The references of the columns of a target table."""
        for rule in self.rules:
            if self.same(rule.table, route.target_table) and (
                not rule.schema or self.same(rule.schema, route.target_schema)
            ):
                yield rule

    def is_target(self, rule: ColumnReference, of: TableRoute, route: TableRoute) -> bool:
        """Whether ``route`` leads to the table that a column of ``of``'s table refers to."""
        schema = rule.to_schema or of.target_schema
        return self.same(schema, route.target_schema) and self.same(rule.to_table, route.target_table)

    def shard(self, rule: ColumnReference, schema: str, table: str, route: TableRoute) -> ReferredShard:
        """The shard table that shard table ``schema``.``table`` with route ``route`` refers to. Raises
        ``config.REFERENCE_SHARD``."""
        try:
            return self._shard(rule, schema, table, route)
        except ValueError as error:
            raise config.REFERENCE_SHARD(
                source=self.source, reference=rule.text, schema=schema, table=table, reason=error
            ) from error

    def _shard(self, rule: ColumnReference, schema: str, table: str, route: TableRoute) -> ReferredShard:
        in_schema = _filled(rule.shard_schema, schema) if rule.shard_schema else schema
        if rule.shard_table:
            return ReferredShard(in_schema, _filled(rule.shard_table, table), is_shared=True)
        is_shared = bool(rule.shard_schema)
        if self.is_target(rule, route, route):
            return ReferredShard(in_schema, table, is_shared)
        stem, rest = table[: len(rule.table)], table[len(rule.table) :]
        if not self.same(stem, rule.table):
            raise ValueError(f"its name does not begin with {rule.table}, so the name of that table is unknown")
        return ReferredShard(in_schema, rule.to_table + rest, is_shared or stem != rule.table)

    def table_key(self, schema: str, table: str) -> tuple[str, str]:
        """Equal for names of one table."""
        return (schema, table) if self.case_sensitive else (schema.lower(), table.lower())

    def same(self, one: str, other: str) -> bool:
        return one == other if self.case_sensitive else one.lower() == other.lower()


def _filled(pattern: str, name: str) -> str:
    """``pattern`` with the digits at the end of ``name``. Raises ValueError."""
    if NUMBER not in pattern:
        return pattern
    found = _DIGITS.search(name)
    if found is None:
        raise ValueError(f"{name} ends without digits for {pattern}")
    return pattern.replace(NUMBER, found.group())
