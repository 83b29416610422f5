"""Reads keys on both sides as the literals that the decoder makes, so that they can be found among events.

The target's key columns are read in the form of the source's columns, so that the same value gives the same bytes. A
value that does not fit that form (a text that the source's character set lacks) gives the key of another row or of
none; the row's checksum, which is computed from the value itself, then differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from shardmerge.worker.binlog.rows.characters.character_set import CharacterSet, character_set
from shardmerge.worker.binlog.rows.charsets import affix_bytes, is_utf8
from shardmerge.worker.binlog.rows.row_literals import RowWriter, literal
from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.mysql.information_schema import select_expression, select_written
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import AddPrefix, ColumnPlan, ComputedValue, Constant, PartitionId, TablePlan
from shardmerge.worker.verify.compare.canonical_values import NotComparable, same_charset

_EXACT = frozenset(
    {ValueKind.INTEGER, ValueKind.BIT, ValueKind.YEAR, ValueKind.DATE, ValueKind.FLOAT, ValueKind.DOUBLE}
)


@dataclass(frozen=True, slots=True)
class RowKey:
    """A row's key. ``target``: mapped, as at the target; it identifies the key. ``source``: as in the shard table, ()
    if no row of it can have this key."""

    target: Literals
    source: Literals = field(compare=False)


class KeyReader:
    """Makes keys of one shard table's rows, read at either side. One thread at a time. Raises NotComparable."""

    def __init__(self, plan: TablePlan, target: Table) -> None:
        columns = tuple(plan.columns[index] for index in plan.key)
        by_name = {column.name.lower(): column for column in target.columns}
        self._columns = tuple(_KeyColumn(item, as_utf8=plan.text_as_utf8) for item in columns)
        self._writer = RowWriter(replace(plan, columns=columns, key=tuple(range(len(columns)))), plan.source)
        self.source_list = select_written(columns)
        self.target_list = ", ".join(
            _in_source_form(each.as_read, by_name[each.as_read.target_name.lower()]) for each in self._columns
        )
        self.width = len(columns)

    def at_source(self, values: Sequence[bytes | None]) -> RowKey:
        """``values``: of ``source_list``. Raises ID_OVERFLOW."""
        return RowKey(self._writer.literals(values), self._writer.source_key(values))

    def at_target(self, values: Sequence[bytes | None]) -> RowKey:
        """``values``: of ``target_list``."""
        pairs = list(zip(self._columns, values, strict=True))
        mapped = tuple(literal(each.as_read.column, value) for each, value in pairs)
        original = [each.original(value) for each, value in pairs]
        if any(value is None for value in original):
            return RowKey(mapped, ())
        own = [
            (each.item, value) for each, value in zip(self._columns, original, strict=True) if not each.item.is_constant
        ]
        return RowKey(mapped, tuple(literal(item.column, value) for item, value in own))


class _KeyColumn:
    """A key column. ``as_read``: with the form in which the target's values are read: the source's, but for a text that
    the target gets as UTF-8."""

    def __init__(self, item: ColumnPlan, *, as_utf8: bool) -> None:
        self.item = self.as_read = item
        self._characters: CharacterSet | None = None
        column = item.column
        if as_utf8 and column.kind is ValueKind.STRING and not is_utf8(column.charset) and not item.is_constant:
            self._characters = character_set(column.charset)
            self.as_read = replace(item, column=replace(column, charset="utf8mb4", collation="utf8mb4_bin"))

    def original(self, text: bytes | None) -> bytes | None:
        """The source's text of a mapped one; None if the source cannot have it."""
        found = unmapped(self.as_read, text)
        if found is None or self._characters is None:
            return found
        return self._characters.encoded(found.decode("utf-8", "surrogateescape"))


def unmapped(item: ColumnPlan, text: bytes | None) -> bytes | None:
    """The source's text of a mapped one; None when the mapping makes no such value."""
    match item.mapping:
        case None | ComputedValue():  # no key column is computed
            return text
        case PartitionId(prefix=prefix, bits=bits):
            value = int(text or b"-1")
            original = value - prefix
            return b"%d" % original if 0 <= original < 1 << bits else None
        case Constant(text=constant):
            return text if text == constant.encode() else None
        case mapping:
            affix = affix_bytes(mapping.text, item.column.charset)
            if affix is None or text is None:
                return None
            if isinstance(mapping, AddPrefix):
                return text[len(affix) :] if text.startswith(affix) else None
            return text[: len(text) - len(affix)] if text.endswith(affix) else None


def _in_source_form(item: ColumnPlan, target: Column) -> str:
    source, name = item.column, quote_name(target.name)
    kinds = (source.kind, target.kind)
    alike = source.kind is target.kind and (source.kind in _EXACT or source.type_text == target.type_text)
    if alike and same_charset(source.charset, target.charset) and source.labels == target.labels:
        return select_expression(target)
    match kinds:
        case (ValueKind.STRING, ValueKind.STRING):
            if same_charset(source.charset, target.charset):
                return select_expression(target)
            return f"CONVERT({name} USING {source.charset})"
        case (ValueKind.BINARY, ValueKind.BINARY):
            return select_expression(target)
        case (ValueKind.FLOAT, ValueKind.DOUBLE):
            return select_expression(target)
        case (ValueKind.DECIMAL, ValueKind.DECIMAL):
            return f"CAST({name} AS {source.type_text.split(' ')[0]})"
        case (ValueKind.TIME | ValueKind.DATETIME | ValueKind.TIMESTAMP, _) if source.kind is target.kind:
            digits = int(source.type_text.partition("(")[2].rstrip(")") or 0)
            # Truncated, not rounded: the text up to the point, and so many digits.
            whole = f"SUBSTRING_INDEX({name},'.',1)"
            if not digits:
                return whole
            return f"CONCAT({whole},'.',LEFT(SUBSTRING_INDEX({name},'.',-1),{digits}))"
        case _:
            raise NotComparable(
                f"key column {item.target_name}: {source.type_text} at the source, {target.type_text} at the target"
            )
