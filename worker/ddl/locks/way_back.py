"""Decides whether further statements of a parked shard table end the conflict of the statement at which it is parked,
under ``shard-mode: optimistic``. Pure.

    structure before ── S1 (parked here) ── rows ── S2 ── rows … ── Sk: its structure has a schema join again

The statements up to Sk then count as one statement, whose result is the structure after Sk. This is exact only if the
values in existing rows are the same as if that one statement had run, and if the rows between the statements can be
applied. They can in two ways:

- Their images are read with the structure after Sk: all structures in between have the same columns, perhaps under
  other names.
- Numbers that were texts for a while: the rows are read as texts, and each of their values is checked to be a number
  that fits the target's column (:func:`carried`). The target converts it as the source's server did.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.table import Table, ValueKind
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.execute.optimistic import ColumnMoves, renamed_of, replaced_of
from shardmerge.worker.ddl.sql.common_type import INTEGERS, ColumnType, common_type, keeps_when_strict
from shardmerge.worker.ddl.sql.statement import AlterTable
from shardmerge.worker.ddl.sql.table_definition import TableDefinition
from shardmerge.worker.ddl.sql.target_statement import Changing

_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_INTEGER = re.compile(rb"-?[0-9]+")
_DECIMAL = re.compile(rb"-?([0-9]+)(?:\.([0-9]+))?")
_HEX = re.compile(rb"_(?:latin1|ascii) X'([0-9A-Fa-f]*)'")
_SIZES = re.compile(r"\((\d+)(?:,(\d+))?\)")


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One statement of the table. ``table``, ``definition``: the structure after it. ``strict``: see
    :func:`shardmerge.worker.ddl.schema_join.join.join`."""

    ddl: Changing
    table: Table
    definition: TableDefinition
    strict: bool


def moves_of(before: TableDefinition, steps: Sequence[ChainStep]) -> ColumnMoves:
    """What all ``steps`` together do to the columns of ``before`` that the structures do not show."""
    origins = _origins(before, steps)[-1]
    renamed = {key: origin for key, origin in origins.items() if origin is not None and origin != key}
    replaced = frozenset(
        key for key, origin in origins.items() if origin != key and key not in renamed and before.column(key)
    )
    return ColumnMoves(renamed, replaced, all(step.strict for step in steps))


def changes_values(before: TableDefinition, steps: Sequence[ChainStep]) -> bool:
    """Whether existing rows may have other values than if one statement had led from ``before`` to the last structure.
    True when that is not known."""
    if any(isinstance(step.ddl, AlterTable) and step.ddl.ignore for step in steps):
        return True  # it may delete rows
    all_origins = _origins(before, steps)
    for key, origin in all_origins[-1].items():
        if origin is None:
            if not _is_new(key, before, steps):
                return True
            continue
        was = before.column(origin)
        assert was is not None  # noqa: S101 - for the type checker: an origin is a column of the first structure
        types, attributes, nullable = [was.type], {was.rest}, was.nullable
        for step, origins in zip(steps, all_origins, strict=True):
            now = next(each for each in step.definition.columns if origins.get(each.key) == origin)
            if nullable and not now.nullable and not step.strict:
                return True
            types.append(now.type)
            attributes.add(now.rest)
            nullable = now.nullable
        if len(attributes) > 1 or not _keeps(types, [step.strict for step in steps]):
            return True
    return False


def has_same_images(before: TableDefinition, steps: Sequence[ChainStep]) -> bool:
    """Whether the row images between the statements can be read with the structure after the last one."""
    all_origins, last = _origins(before, steps), steps[-1]
    for step, origins in zip(steps, all_origins, strict=True):
        if len(step.table.columns) != len(last.table.columns) or step.table.key != last.table.key:
            return False
        for now, then in zip(step.table.columns, last.table.columns, strict=True):
            if replace(now, name=then.name) != then:
                return False
            if origins.get(now.name.lower()) != all_origins[-1].get(then.name.lower()):
                return False
    return True


def has_other_names(steps: Sequence[ChainStep]) -> bool:
    """Whether a column has another name in between: binlog_row_metadata=FULL writes names into the events."""
    last = [column.name for column in steps[-1].table.columns]
    return any([column.name for column in step.table.columns] != last for step in steps)


def carried(plan: TablePlan, steps: Sequence[ChainStep]) -> Table | None:
    """The structure with which the rows between two statements are read, of which the first makes texts of numbers, and
    the second numbers of these texts; None: the rows are not of this kind. ``plan``: of the table before."""
    before = plan.table
    if len(steps) != 2 or not plan.key or plan.transform is not None or plan.filters:
        return None
    middle, last = (step.table for step in steps)
    if any(table.key != before.key or len(table.columns) != len(before.columns) for table in (middle, last)):
        return None
    found = list(middle.columns)
    unique = {name.lower() for table in (before, middle, last) for key in table.unique_keys for name in key}
    mapped = {column.column.name for column in plan.columns if column.mapping is not None}
    for at, (was, now, then) in enumerate(zip(before.columns, middle.columns, last.columns, strict=True)):
        if not was.name.lower() == now.name.lower() == then.name.lower():
            return None
        if now == was:
            continue
        numbers = (ValueKind.INTEGER, ValueKind.DECIMAL)
        if (
            was.kind not in numbers
            or now.kind is not ValueKind.STRING
            or then.kind is not was.kind
            or at in before.key
            or was.name.lower() in unique
            or was.name in mapped
            or "zerofill" in was.type_text
        ):
            return None
        found[at] = replace(now, written_as=was.type_text)
    return replace(middle, columns=tuple(found))


def fits_carried(plan: TablePlan, row: Literals) -> bool:
    """Whether each text of ``row`` that is written into a column of numbers is a number that fits there. ``plan``: of a
    table from :func:`carried`."""
    return all(
        not column.column.written_as or literal == b"NULL" or _fits(literal, column.column.written_as)
        for column, literal in zip(plan.columns, row, strict=False)
    )


# --- parts


def _origins(before: TableDefinition, steps: Sequence[ChainStep]) -> list[dict[str, str | None]]:
    """After each step, for each of its columns: the column of ``before`` whose values it has; None: a new column."""
    known: dict[str, str | None] = {column.key: column.key for column in before.columns}
    found: list[dict[str, str | None]] = []
    for step in steps:
        renamed, replaced = renamed_of(step.ddl), replaced_of(step.ddl)
        left = known.keys() - replaced - set(renamed.values())
        known = {
            column.key: known.get(renamed[column.key])
            if column.key in renamed
            else (known[column.key] if column.key in left else None)
            for column in step.definition.columns
        }
        found.append(known)
    return found


def _is_new(key: str, before: TableDefinition, steps: Sequence[ChainStep]) -> bool:
    """Whether one of ``steps`` has added the column as it is after the last one, so that all its values in existing
    rows are its default."""
    wanted = steps[-1].definition.column(key)
    for at in range(len(steps) - 1, -1, -1):
        now = steps[at].definition.column(key)
        if now is None or wanted is None or now.same != wanted.same or key in renamed_of(steps[at].ddl):
            return False
        earlier = steps[at - 1].definition if at else before
        if earlier.column(key) is None or key in replaced_of(steps[at].ddl):
            return True
    return False


def _keeps(types: Sequence[ColumnType], strict: Collection[bool]) -> bool:
    """Whether each value of the first type is unchanged after all conversions, or the server has refused them."""
    number: ColumnType | None = None
    for was, now, is_strict in zip(types, types[1:], strict, strict=False):
        if was == now:
            continue
        if was.base in _TEXTS and number is not None and _is_number(now):
            if not is_strict or not _holds_or_refuses(number, now):
                return False
            number = None
        elif _is_number(was) and now.base in _TEXTS:
            if not is_strict:
                return False
            number = was
        elif not (common_type((was, now)) == now or (is_strict and keeps_when_strict(was, now))):
            return False
    return True


def _is_number(of: ColumnType) -> bool:
    return not of.zerofill and (of.base in INTEGERS or of.base == "decimal")


def _holds_or_refuses(was: ColumnType, now: ColumnType) -> bool:
    return was == now or common_type((was, now)) == now or keeps_when_strict(was, now)


def _fits(literal: bytes, type_text: str) -> bool:
    text = _text_of(literal)
    base, unsigned = type_text.partition("(")[0].split(" ", maxsplit=1)[0], "unsigned" in type_text
    if base in _INTEGER_BITS:
        if not _INTEGER.fullmatch(text):
            return False
        values = 1 << _INTEGER_BITS[base]
        low, high = (0, values - 1) if unsigned else (-values // 2, values // 2 - 1)
        return low <= int(text) <= high
    match, sizes = _DECIMAL.fullmatch(text), _SIZES.search(type_text)
    if match is None or sizes is None or (unsigned and text.startswith(b"-")):
        return False
    digits, scale = int(sizes.group(1)), int(sizes.group(2) or 0)
    whole, fraction = match.group(1).lstrip(b"0"), match.group(2) or b""
    return len(whole) <= digits - scale and len(fraction) <= scale


def _text_of(literal: bytes) -> bytes:
    """The characters of a text's literal; b"" for one that is written in another way."""
    if literal.startswith(b"'") and literal.endswith(b"'"):
        return literal[1:-1]
    match = _HEX.fullmatch(literal)
    return bytes.fromhex(match.group(1).decode()) if match else b""
