"""Checks what a user's function returned for a batch. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from shardmerge.worker.core.table import Column
from shardmerge.worker.rules.transform.columns import NoValue, literals_of

_TYPES = {
    "tinyint(1)": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime(6)": pa.timestamp("us"),
    "longtext": pa.string(),
    "longblob": pa.binary(),
}


class BadResult(Exception):
    """Why a result cannot be used; the text is for the user, and has no part of a row."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a function has to return: ``columns`` in order; with ``has_filter`` a boolean array before them."""

    columns: tuple[Column, ...]
    has_filter: bool

    @property
    def count(self) -> int:
        return len(self.columns) + self.has_filter


def output_arrow_type(column: Column) -> pa.DataType:
    """The Arrow type of a computed column's values."""
    text = column.type_text
    if text.startswith("decimal("):
        digits, scale = text.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(digits), int(scale))
    return pa.string() if text.startswith("varchar(") else _TYPES[text]


def checked(returned: object, rows: int, outputs: Outputs) -> tuple[list[bool] | None, list[list[bytes]]]:
    """Whether each row passes (None: there is no filter), and the literals of each column. Raises
    :class:`BadResult`."""
    arrays = _arrays(returned, outputs)
    passing: list[bool] | None = None
    if outputs.has_filter:
        first = arrays.pop(0)
        _check_array(first, "the row filter", pa.bool_(), rows)
        passing = [bool(passes) for passes in first.to_pylist()]
    mask = None if passing is None else pa.array(passing, pa.bool_())
    found: list[list[bytes]] = []
    for column, array in zip(outputs.columns, arrays, strict=True):
        _check_array(array, f"column {column.name}", output_arrow_type(column), rows)
        # Values of rows that the target does not get have no meaning.
        kept = array if mask is None else pc.if_else(mask, array, pa.scalar(None, array.type))
        _check_values(kept, array if mask is None else array.filter(mask), column)
        try:
            found.append(literals_of(kept))
        except NoValue as reason:
            raise BadResult(f"column {column.name} has a value that no table can hold") from reason
    return passing, found


def _arrays(returned: object, outputs: Outputs) -> list[pa.ChunkedArray]:
    if isinstance(returned, pa.RecordBatch | pa.Table):
        found: Sequence[object] = returned.columns
    elif isinstance(returned, tuple | list):
        found = cast("Sequence[object]", returned)
    else:
        found = (returned,)
    made: list[pa.ChunkedArray] = []
    for each in found:
        if not isinstance(each, pa.Array | pa.ChunkedArray):
            raise BadResult(f"it is a {type(each).__name__}, not an Arrow array or record batch")
        made.append(each if isinstance(each, pa.ChunkedArray) else pa.chunked_array([each], each.type))
    if len(made) != outputs.count:
        raise BadResult(f"it has {len(made)} columns instead of {outputs.count}")
    return made


def _check_array(array: pa.ChunkedArray, name: str, wanted: pa.DataType, rows: int) -> None:
    if len(array) != rows:
        raise BadResult(f"{name} has {len(array)} values for {rows} rows")
    if array.type != wanted:
        raise BadResult(f"{name} is of type {array.type} instead of {wanted}")
    try:
        array.validate(full=True)
    except pa.ArrowException as error:
        raise BadResult(f"{name} is not a valid array") from error


def _check_values(kept: pa.ChunkedArray, passing: pa.ChunkedArray, column: Column) -> None:
    if not column.nullable and passing.null_count:
        raise BadResult(f"column {column.name} is NOT NULL, and has a NULL")
    if column.type_text.startswith("varchar("):
        most = int(column.type_text.removeprefix("varchar(").removesuffix(")"))
        longest = pc.max(pc.utf8_length(kept)).as_py()
        if longest is not None and longest > most:
            raise BadResult(f"column {column.name} has a text of {longest} characters instead of {most}")
