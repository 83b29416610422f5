"""Analyses a table's transform in Python, in the driver: its columns, and whether its function can be called."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
from pyarrow import types

from shardmerge.proto.config.rules.transform import TransformRefused
from shardmerge.worker.core.table import Column
from shardmerge.worker.core.table_plan import PythonFunction
from shardmerge.worker.rules.python.functions import Unusable, load
from shardmerge.worker.rules.python.results import Outputs
from shardmerge.worker.rules.python.transformer import CallFailed, call
from shardmerge.worker.rules.transform.analyzer import Analysis, OutputColumn
from shardmerge.worker.rules.transform.values import BadValue, arrow_type, computed_column

OutputSpec = tuple[str, str, bool]
"""(name, type as Spark names it, whether it may be NULL) of a column that the function computes."""


@dataclass(frozen=True, slots=True)
class PythonRule:
    """The function of a transform rule. ``columns``: names of its input."""

    function: PythonFunction
    columns: tuple[str, ...]
    outputs: tuple[OutputSpec, ...]


def analyse_function(columns: Sequence[Column], rule: PythonRule) -> Analysis:
    """``columns``: those of the source table that are written. Calls the function with an empty batch and with one row
    of plain values. Raises :class:`TransformRefused`."""
    places = {column.name.lower(): at for at, column in enumerate(columns)}
    inputs: list[int] = []
    for name in rule.columns:
        at = places.get(name.lower())
        if at is None:
            raise TransformRefused(f"the table has no column {name}")
        if arrow_type(columns[at]) is None:
            kind = f"{columns[at].type_text} {columns[at].charset}".strip()
            raise TransformRefused(f"column {name}: columns of type {kind} can only be kept unchanged")
        inputs.append(at)
    try:
        computed = tuple(computed_column(name, kind, nullable=nullable) for name, kind, nullable in rule.outputs)
    except BadValue as reason:
        raise TransformRefused(str(reason)) from reason
    _try_function([columns[at] for at in inputs], rule.function, Outputs(computed, rule.function.has_filter))
    names = {column.name.lower() for column in computed}
    kept = [OutputColumn(column.name, at) for at, column in enumerate(columns) if column.name.lower() not in names]
    made = [
        OutputColumn(column.name, -1, kind, column) for column, (_, kind, _) in zip(computed, rule.outputs, strict=True)
    ]
    return Analysis((*kept, *made), tuple(inputs), has_star=True)


def _try_function(inputs: Sequence[Column], function: PythonFunction, outputs: Outputs) -> None:
    try:
        loaded = load(function)
    except Unusable as reason:
        raise TransformRefused(str(reason)) from reason
    schema = pa.schema([pa.field(column.name, arrow_type(column), column.nullable) for column in inputs])
    empty: list[pa.Array] = [pa.array([], field.type) for field in schema]
    one = [pa.array([_plain_value(field.type)], field.type) for field in schema]
    for arrays, shown in ((empty, "an empty batch"), (one, "a batch of one row")):
        try:
            call(loaded, pa.RecordBatch.from_arrays(arrays, schema=schema), outputs)
        except CallFailed as why:
            what = f"raises {why}" if why.raised else f"returns a result that cannot be used: {why}"
            raise TransformRefused(f"{function} {what}, for {shown}") from why


def _plain_value(kind: pa.DataType) -> object:
    """A value of the type with which most functions can compute."""
    if types.is_decimal(kind):
        return Decimal(0) if kind.precision == kind.scale else Decimal(1)
    if types.is_integer(kind):
        return 1
    if types.is_floating(kind):
        return 1.0
    if types.is_date(kind):
        return datetime.date(2000, 1, 1)
    if types.is_timestamp(kind):
        return datetime.datetime(2000, 1, 1)
    return b"a" if types.is_binary(kind) else "a"
