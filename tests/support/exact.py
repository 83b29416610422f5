"""Compares tables by their bytes: this shows differences that the judge's values could hide.

The servers return the values as hexadecimal digits, so that no client library converts them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.database import Database

_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "year"}
_PLAIN = frozenset(_INTEGERS | {"decimal", "date", "time", "datetime", "timestamp"})


def assert_same_bytes(
    source: Database, target: Database, table: str, key: Sequence[str], at: str = "", *, as_text: bool = False
) -> None:
    """``table`` (schema.name) at the source and ``at`` (the same by default) at the target hold the same rows.

    ``key``: the columns that order them. All columns of the source's table are compared. ``as_text``: the characters of
    texts, as a client reads them, instead of their bytes: TiDB stores others.
    """
    schema, name = table.split(".")
    columns = [
        (str(column), str(kind))
        for column, kind in source.query(
            "SELECT column_name, data_type FROM information_schema.columns "
            f"WHERE table_schema = '{schema}' AND table_name = '{name}' ORDER BY ordinal_position"
        )
    ]
    assert columns, f"no table {table}"
    kinds = dict(columns)
    cells = ", ".join(_bytes_of(column, kind, as_text=as_text) for column, kind in columns)
    # Ordered by bytes: servers may order values that are equal in a collation either way.
    order = ", ".join(f"{_hex_of(column, kinds[column], as_text=as_text)}, `{column}`" for column in key)
    expected = source.query(f"SELECT {cells} FROM {table} ORDER BY {order}")
    found = target.query(f"SELECT {cells} FROM {at or table} ORDER BY {order}")
    assert expected, f"{table} is empty: nothing was compared"
    assert len(found) == len(expected), f"{len(found)} rows at the target, {len(expected)} at the source"
    for row, (is_, wanted) in enumerate(zip(found, expected, strict=True)):
        for (column, kind), one, other in zip(columns, is_, wanted, strict=True):
            assert _cell(kind, one) == _cell(kind, other), f"row {row}, {column}: is {one}, should be {other}"


_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})


def _hex_of(column: str, data_type: str, *, as_text: bool) -> str:
    return f"HEX(CONVERT(`{column}` USING utf8mb4))" if as_text and data_type in _TEXTS else f"HEX(`{column}`)"


def _bytes_of(column: str, data_type: str, *, as_text: bool) -> str:
    """Return an expression that shows every bit of a column's value."""
    name = f"`{column}`"
    match data_type:
        case "float" | "double":
            return f"{name} * 1e0"  # its text form may lack digits
        case "bit":
            return f"CAST({name} AS UNSIGNED)"
        case _ if data_type in _PLAIN:
            return f"CAST({name} AS CHAR)"
        case _:
            return _hex_of(column, data_type, as_text=as_text)


def _cell(data_type: str, value: object) -> object:
    # Servers write the same double in different forms: 1e15, 1000000000000000.
    return float(str(value)) if data_type in ("float", "double") and value is not None else value
