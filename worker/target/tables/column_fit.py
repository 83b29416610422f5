"""Checks that a target column holds every value of a source column unchanged. Pure.

Values that a strict session refuses (a number out of range, a character that the charset lacks) end with the server's
error and need no rule here. The rules cover what a server would change with a note only: rounded decimals and fractions
of a second, floats of fewer bits, cut or padded spaces and zeros, another time zone's meaning.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from shardmerge.worker.core.mysql.create_table import widened_type
from shardmerge.worker.core.table import FIXED_BINARY, Column, ValueKind, type_scale, type_size
from shardmerge.worker.core.table_plan import ColumnPlan, ComputedValue, Constant, PartitionId

_BASE = re.compile(r"[a-z]+")
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXT_BYTES = {
    "tiny": 255,
    "": 65_535,
    "medium": 16_777_215,
    "long": 4_294_967_295,
}
_FLOAT_BYTES = 4
_TEMPORAL = (ValueKind.TIME, ValueKind.DATETIME, ValueKind.TIMESTAMP)
_LABELS = (ValueKind.ENUM, ValueKind.SET)


def base_type(type_text: str) -> str:
    """ "decimal" of "decimal(10,2) unsigned"."""
    match = _BASE.match(type_text)
    return match.group() if match else type_text


def incompatibility(plan: ColumnPlan, target: Column) -> str | None:
    """Why the target column cannot hold the values of the mapped source column; None if it can."""
    source = plan.column
    if source.written_as:
        kind = ValueKind.DECIMAL if source.written_as.startswith("decimal") else ValueKind.INTEGER
        source = replace(
            source, kind=kind, type_text=source.written_as, unsigned="unsigned" in source.written_as, written_as=""
        )
        plan = replace(plan, column=source)
    if target.generated:
        return "it is generated at the target"
    if source.nullable and not target.nullable:
        return "NULL is allowed at the source only"
    if isinstance(plan.mapping, Constant):
        text = plan.mapping.text
        kind = "varchar" if text.endswith(" ") else "char"
        if target.kind is ValueKind.STRING and _text_holds(f"{kind}({len(text)})", target.type_text):
            return None
        return f"it is to hold the text {plan.mapping.text!r}, and is {target.type_text} at the target"
    needed = widened_type(plan)
    if isinstance(plan.mapping, PartitionId):
        return None if base_type(target.type_text) == "bigint" else f"{needed} is needed for `partition id`"
    if isinstance(plan.mapping, ComputedValue):
        return None if _holds_computed(source, target) else f"{needed} is computed, {target.type_text} at the target"
    if _holds(source, needed, target):
        return None
    return f"{needed} at the source, {target.type_text} at the target"


_WIDEST = (
    Column("", ValueKind.INTEGER, "bigint", nullable=True),
    Column("", ValueKind.INTEGER, "bigint unsigned", nullable=True, unsigned=True),
    # A decimal with more digits after the point has fewer before it, so none of these holds all others.
    *(Column("", ValueKind.DECIMAL, f"decimal(65,{scale})", nullable=True) for scale in range(39)),
    Column("", ValueKind.DOUBLE, "double", nullable=True),
    Column("", ValueKind.BIT, "bit(64)", nullable=True),
    Column("", ValueKind.DATE, "date", nullable=True),
    Column("", ValueKind.TIME, "time(6)", nullable=True),
    Column("", ValueKind.DATETIME, "datetime(6)", nullable=True),
    Column("", ValueKind.TIMESTAMP, "timestamp(6)", nullable=True),
    Column("", ValueKind.YEAR, "year(4)", nullable=True),
    Column("", ValueKind.STRING, "longtext", nullable=True),
    Column("", ValueKind.BINARY, "longblob", nullable=True),
    Column("", ValueKind.JSON, "json", nullable=True),
    Column("", ValueKind.GEOMETRY, "geometry", nullable=True),
    Column("", ValueKind.VECTOR, "vector(16383)", nullable=True),
)
"""A column's values have a type at the target only if one of these holds them."""


@lru_cache(maxsize=4096)
def types_that_hold(plan: ColumnPlan) -> frozenset[str]:
    """The widest types that hold every value of the mapped source column. Two columns without a common one have no type
    that holds both."""
    return frozenset(column.type_text for column in _WIDEST if incompatibility(plan, column) is None)


def _holds_computed(source: Column, target: Column) -> bool:
    """The target refuses values that are out of range; the check is that nothing is rounded or cut."""
    match (source.kind, target.kind):
        case (ValueKind.INTEGER, ValueKind.INTEGER):
            return True
        case (ValueKind.DECIMAL, ValueKind.DECIMAL):
            return type_scale(source.type_text) <= type_scale(target.type_text)
        case _:
            return _holds(source, source.type_text, target)


def _holds(source: Column, needed: str, target: Column) -> bool:
    """``needed``: the source's type text after widening."""
    if needed == target.type_text and source.labels == target.labels:
        return True
    kinds = (source.kind, target.kind)
    match kinds:
        case (ValueKind.INTEGER, ValueKind.INTEGER):
            return _integer_holds(source, target)
        case (ValueKind.DECIMAL, ValueKind.DECIMAL):
            return _decimal_holds(source, target)
        case (ValueKind.FLOAT | ValueKind.DOUBLE, ValueKind.FLOAT | ValueKind.DOUBLE):
            wide_enough = target.kind >= source.kind
            return wide_enough and "(" not in target.type_text and (target.unsigned <= source.unsigned)
        case (ValueKind.BIT, ValueKind.BIT):
            return type_size(source.type_text) <= type_size(target.type_text)
        case (ValueKind.DATE, ValueKind.DATE) | (ValueKind.YEAR, ValueKind.YEAR):
            return True
        case _ if source.kind in _TEMPORAL:
            return source.kind is target.kind and type_size(source.type_text) <= type_size(target.type_text)
        case (ValueKind.STRING, ValueKind.STRING):
            return _text_holds(needed, target.type_text)
        case (ValueKind.BINARY, ValueKind.BINARY):
            return _binary_holds(source.type_text, target.type_text)
        case (ValueKind.ENUM, ValueKind.ENUM) | (ValueKind.SET, ValueKind.SET):
            return set(source.labels) <= set(target.labels)
        case (ValueKind.VECTOR, ValueKind.VECTOR):
            return type_size(source.type_text) <= type_size(target.type_text)
        case (ValueKind.VECTOR, ValueKind.BINARY):
            fixed = target.type_text in FIXED_BINARY or base_type(target.type_text) == "binary"
            return not fixed and _FLOAT_BYTES * type_size(source.type_text) <= _most_bytes(target.type_text)
        case (ValueKind.JSON, ValueKind.JSON):
            return True
        case (ValueKind.JSON, ValueKind.STRING):
            return base_type(target.type_text) == "longtext"
        case _ if source.kind in _LABELS and target.kind is ValueKind.STRING:
            return base_type(target.type_text) != "char"
        case (ValueKind.GEOMETRY, ValueKind.GEOMETRY):
            return _shape(target.type_text) in ("geometry", _shape(source.type_text))
        case _:
            return False


def _shape(type_text: str) -> str:
    """MySQL 8 and newer print "geomcollection" where other servers print "geometrycollection"."""
    return base_type(type_text).replace("geomcollection", "geometrycollection")


def _integer_range(column: Column) -> tuple[int, int]:
    values = 1 << _INTEGER_BITS[base_type(column.type_text)]
    return (0, values - 1) if column.unsigned else (-values // 2, values // 2 - 1)


def _integer_holds(source: Column, target: Column) -> bool:
    (low, high), (lowest, highest) = _integer_range(source), _integer_range(target)
    return lowest <= low and high <= highest


def _decimal_holds(source: Column, target: Column) -> bool:
    if target.unsigned and not source.unsigned:
        return False
    digits, scale = type_size(source.type_text), type_scale(source.type_text)
    room_digits, room_scale = type_size(target.type_text), type_scale(target.type_text)
    are_known = digits > 0 and room_digits > 0
    return are_known and room_scale >= scale and room_digits - room_scale >= digits - scale


def _text_holds(needed: str, target: str) -> bool:
    """CHAR and VARCHAR count characters, the TEXT family bytes; CHAR loses trailing spaces."""
    have, room = base_type(needed), base_type(target)
    if room == "char":
        return have == "char" and type_size(needed) <= type_size(target)
    if room == "varchar":
        return have in ("char", "varchar") and type_size(needed) <= type_size(target)
    limit = _TEXT_BYTES[room.removesuffix("text")]
    if have in ("char", "varchar"):
        return type_size(needed) <= limit
    return _TEXT_BYTES[have.removesuffix("text")] <= limit


def _binary_holds(source: str, target: str) -> bool:
    """BINARY(n) pads with zeros, so only values of exactly this length fit; INET4, INET6 and UUID fit only
    themselves."""
    if target in FIXED_BINARY:
        return False
    if base_type(target) == "binary":
        fixed = source in FIXED_BINARY or base_type(source) == "binary"
        return fixed and _most_bytes(source) == _most_bytes(target)
    return _most_bytes(source) <= _most_bytes(target)


def _most_bytes(type_text: str) -> int:
    """The most bytes of a value of a binary type."""
    base = base_type(type_text)
    if base in ("binary", "varbinary"):
        return type_size(type_text)
    return FIXED_BINARY.get(type_text) or _TEXT_BYTES[base.removesuffix("blob")]
