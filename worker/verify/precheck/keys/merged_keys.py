"""Describes the unique keys of a target table as its shard tables have them: how they are read, mapped and compared.

Workers exchange a key as one text per column, with the value that the target will hold (mapped): numbers and times as
the server prints them, texts and labels as the hex of their UTF-8, binary as hex. Types whose equal values may have
several texts (FLOAT, SET, JSON …) have no form and are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import Session, quote_name
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import (
    AddPrefix,
    AddSuffix,
    ColumnPlan,
    ComputedValue,
    Constant,
    PartitionId,
    TablePlan,
)
from shardmerge.worker.target.tables.extracted_keys import comparable_text, created_keys
from shardmerge.worker.target.tables.target_table import find_target

_WORDS = {
    ValueKind.INTEGER: "number",
    ValueKind.YEAR: "number",
    ValueKind.DECIMAL: "decimal",
    ValueKind.DATE: "date",
    ValueKind.DATETIME: "time",
    ValueKind.TIMESTAMP: "time",
    ValueKind.STRING: "text",
    ValueKind.ENUM: "text",
    ValueKind.BINARY: "bytes",
}
_HEXED = frozenset({"text", "bytes"})
_PLAIN = frozenset({"number", "decimal"})
_SCALED = frozenset({"decimal", "time"})  # with another scale the same value has another text


@dataclass(frozen=True, slots=True)
class MergedKeyColumn:
    """A column of the key. ``item``: the shard table's column; ``collation``: the target's ("" unless it is text)."""

    item: ColumnPlan
    collation: str

    @property
    def form(self) -> str:
        """The form of its texts; "" if it has none, like an extracted column, which the shard table does not have."""
        if self.item.is_constant:
            return ""
        word = _WORDS.get(self.item.column.kind, "")
        return f"{word} {self.item.column.type_text}" if word in _SCALED else word

    @property
    def _kind(self) -> str:
        return _WORDS[self.item.column.kind]

    @property
    def name(self) -> str:
        """The column's name at the source, quoted."""
        return quote_name(self.item.column.name)

    @property
    def read(self) -> str:
        """An expression for its unmapped text."""
        column = self.item.column
        match self._kind:
            case "text":
                return f"HEX(CONVERT({self.name} USING utf8mb4))"
            case "bytes":
                return f"HEX(CAST({self.name} AS BINARY{f'({column.length})' if column.length else ''}))"
            case "number":
                return f"CAST({self.name} + 0 AS CHAR)"  # without ZEROFILL's zeros
            case _:
                return f"CAST({self.name} AS CHAR)"

    def mapped(self, text: str) -> str:
        """The text of the target's value."""
        match self.item.mapping:
            case PartitionId(prefix=prefix):
                return str(int(text) + prefix)
            case AddPrefix(text=affix):
                return affix.encode().hex().upper() + text
            case AddSuffix(text=affix):
                return text + affix.encode().hex().upper()
            case Constant(text=extracted):
                return extracted.encode().hex().upper()
            case None | ComputedValue():  # no key column is computed
                return text

    def unmapped(self, text: str) -> str | None:
        """The text of the source's value; None if the mapping gives no such value."""
        match self.item.mapping:
            case PartitionId(prefix=prefix, bits=bits):
                original = int(text) - prefix
                return str(original) if 0 <= original < 1 << bits else None
            case AddPrefix(text=affix):
                put = affix.encode().hex().upper()
                return text[len(put) :] if text.startswith(put) else None
            case AddSuffix(text=affix):
                put = affix.encode().hex().upper()
                return text[: len(text) - len(put)] if text.endswith(put) else None
            case Constant():
                return None
            case None | ComputedValue():
                return text

    def literal(self, text: str) -> str:
        """SQL of an unmapped text that compares with the column through its index."""
        match self._kind:
            case "text":
                column = self.item.column
                return f"CONVERT(_utf8mb4 X'{text}' USING {column.charset}) COLLATE {column.collation}"
            case "bytes":
                return f"X'{text}'"
            case "number" | "decimal":
                return text
            case _:
                return f"'{text}'"

    def shown(self, text: str) -> str:
        """A mapped text as messages show it."""
        if self._kind == "text":
            return repr(bytes.fromhex(text).decode("utf-8", "replace"))
        return f"X'{text}'" if self._kind == "bytes" else text


@dataclass(frozen=True, slots=True)
class MergedKey:
    """A unique key of a target table, as one shard table has it. ``names``: its columns at the target, in lower case.
    ``unique``: it is unique within the shard table too."""

    plan: TablePlan
    names: tuple[str, ...]
    columns: tuple[MergedKeyColumn, ...]
    unique: bool

    @property
    def form(self) -> str:
        """The form of the whole key; "" if some column has none."""
        forms = [column.form for column in self.columns]
        return ", ".join(forms) if all(forms) else ""

    @property
    def along_index(self) -> bool:
        """Whether it consists of numbers and an index of the shard table has the key's order."""
        own = tuple(column.item.column.name for column in self.columns)
        return self.unique and own in self.plan.table.unique_keys and self.is_numbers

    @property
    def is_numbers(self) -> bool:
        return all(column.form == "number" for column in self.columns)

    @property
    def full_name(self) -> str:
        return f"{quote_name(self.plan.table.schema)}.{quote_name(self.plan.table.name)}"

    @property
    def not_null(self) -> str:
        """The condition of the rows for which a unique key is enforced."""
        return " AND ".join(f"{column.name} IS NOT NULL" for column in self.columns if column.item.column.nullable)

    def mapped(self, values: Iterable[object]) -> tuple[str, ...]:
        return tuple(column.mapped(str(value)) for column, value in zip(self.columns, values, strict=True))

    def shown(self, values: Sequence[str]) -> str:
        return ", ".join(column.shown(value) for column, value in zip(self.columns, values, strict=True))

    def to_proto(self) -> pb.KeyShard:
        """Without range and samples."""
        table = self.plan.table
        lacking = [column for column in self.columns if not column.form]
        return pb.KeyShard(
            source=self.plan.source,
            schema=table.schema,
            table=table.name,
            target_schema=self.plan.target_schema,
            target_table=self.plan.target_table,
            columns=self.names,
            form=self.form,
            unique=self.unique,
            along_index=self.along_index,
            why=_why_not(lacking[0], table) if lacking else "",
            extracted=[
                comparable_text(column.item.mapping.text)
                for column in self.columns
                if isinstance(column.item.mapping, Constant)
            ],
        )


def _why_not(lacking: MergedKeyColumn, table: Table) -> str:
    column = lacking.item.column
    if lacking.item.is_constant:
        return f"column {column.name} is extracted from names, {table.schema}.{table.name} does not hold it"
    return f"column {column.name} of {table.schema}.{table.name} is {column.type_text}"


def merged_keys(target: Session | None, plans: Sequence[TablePlan]) -> list[MergedKey]:
    """All unique keys of all target tables, as the shard tables have them. A shard table that lacks a column of a key
    is left out. Raises ``pymysql.MySQLError``.

    A missing target table will get the first shard table's keys. ``target`` None: as if all were missing.
    """
    groups: dict[str, list[TablePlan]] = {}
    for plan in plans:
        groups.setdefault(plan.target_name, []).append(plan)
    found: list[MergedKey] = []
    for group in groups.values():
        merged = None if target is None else find_target(target, group[0])
        keys, columns = _of_target(merged) if merged is not None else _of_first(group[0])
        for key in keys:
            found += (made for plan in group if (made := _as_of(plan, key, columns)) is not None)
    return found


def _of_target(table: Table) -> tuple[list[tuple[str, ...]], Mapping[str, Column]]:
    by_name = {column.name.lower(): column for column in table.columns}
    return [tuple(name.lower() for name in key) for key in table.unique_keys], by_name


def _of_first(plan: TablePlan) -> tuple[list[tuple[str, ...]], Mapping[str, Column]]:
    to_target = {item.column.name: item.target_name.lower() for item in plan.columns}
    extension = created_keys(plan)
    own = [
        tuple(to_target[name] for name in key)
        for key in plan.table.unique_keys
        if all(name in to_target for name in key)
    ]
    keys = [(*key, *map(str.lower, extension.of(key))) for key in own]
    return keys, {item.target_name.lower(): item.column for item in plan.columns}


def _as_of(plan: TablePlan, key: tuple[str, ...], merged: Mapping[str, Column]) -> MergedKey | None:
    by_name = {item.target_name.lower(): item for item in plan.columns}
    if not all(name in by_name and name in merged for name in key):
        return None
    columns = tuple(MergedKeyColumn(by_name[name], merged[name].collation) for name in key)
    own = frozenset(column.item.column.name for column in columns)
    return MergedKey(plan, key, columns, any(frozenset(unique) <= own for unique in plan.table.unique_keys))
