"""Generates key columns of every sort that a server orders, with values at the edges of its order (hypothesis)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from decimal import Decimal

from hypothesis import strategies as st

from tests.support.random_types import quote


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key column. ``definition``: without its name; ``values``: SQL expressions."""

    definition: str
    values: st.SearchStrategy[str]


def _numbers(lowest: int, highest: int) -> st.SearchStrategy[str]:
    """Draw numbers near the limits, near zero, close together and with gaps of 10^15."""
    near = st.integers(0, 40)
    return st.one_of(
        near.map(lambda n: highest - n),
        near.map(lambda n: lowest + n),
        st.integers(max(lowest, -20), 60),
        st.integers(0, 40).map(lambda n: min(n * 10**15, highest)),
        st.integers(lowest, highest),
    ).map(str)


_PIECES = ("a", "A", "ä", "Ä", "ae", "ß", "ss", "z", "Z", "b", " ", "  ", "'", "\\", "%", "_", "-", "1", "10", "é", "E")
_WIDE = ("😀", "😁", "中", "文", "ｆ", "①", "ﬁ", "\u0301", "İ", "ı", "\u200b")


def _text(pieces: tuple[str, ...], most: int) -> st.SearchStrategy[str]:
    spaces = st.sampled_from(("", "", "", " ", "   "))
    return st.tuples(st.lists(st.sampled_from(pieces), max_size=most), spaces).map(
        lambda made: quote("".join(made[0]) + made[1])
    )


def _string(charset: str, collation: str, pieces: tuple[str, ...], kind: str = "VARCHAR(60)") -> KeyColumn:
    return KeyColumn(f"{kind} CHARACTER SET {charset} COLLATE {collation}", _text(pieces, 5))


_MOMENTS = st.datetimes().map(lambda one: f"'{one.replace(year=max(one.year, 1000)).isoformat(' ')}'")
_DAYS = st.dates().map(lambda one: f"'{one.replace(year=max(one.year, 1000)).isoformat()}'")
_TIMES = st.tuples(
    st.sampled_from(("", "-")), st.integers(0, 837), st.integers(0, 59), st.sampled_from((0, 1, 500_000, 999_999))
).map(lambda made: f"'{made[0]}{made[1]:02}:{made[2]:02}:07.{made[3]:06}'")
_DECIMALS = st.tuples(st.integers(-(10**12), 10**12), st.sampled_from((0, 1, 5))).map(
    lambda made: f"{Decimal(made[0]).scaleb(-made[1]):f}"
)

COMMON = {
    "tinyint": KeyColumn("TINYINT", _numbers(-128, 127)),
    "int": KeyColumn("INT", _numbers(-(1 << 31), (1 << 31) - 1)),
    "bigint": KeyColumn("BIGINT", _numbers(-(1 << 63), (1 << 63) - 1)),
    "unsigned": KeyColumn("BIGINT UNSIGNED", _numbers(0, (1 << 64) - 1)),
    "decimal": KeyColumn("DECIMAL(20,5)", _DECIMALS),
    "bit": KeyColumn("BIT(33)", _numbers(0, (1 << 33) - 1)),
    "year": KeyColumn("YEAR", st.integers(1901, 2155).map(str)),
    "date": KeyColumn("DATE", _DAYS),
    "datetime": KeyColumn("DATETIME(6)", _MOMENTS),
    "time": KeyColumn("TIME(6)", _TIMES),
    "enum": KeyColumn("ENUM('zebra','it''s','apple','ä')", st.sampled_from(("1", "2", "3", "4"))),
    "binary": KeyColumn("BINARY(4)", st.binary(max_size=4).map(quote)),
    "varbinary": KeyColumn("VARBINARY(6)", st.binary(max_size=6).map(quote)),
    "latin1_swedish_ci": _string("latin1", "latin1_swedish_ci", _PIECES),
    "latin1_bin": _string("latin1", "latin1_bin", _PIECES, "CHAR(40)"),
    "utf8mb4_general_ci": _string("utf8mb4", "utf8mb4_general_ci", _PIECES + _WIDE),
    "utf8mb4_unicode_ci": _string("utf8mb4", "utf8mb4_unicode_ci", _PIECES + _WIDE, "CHAR(60)"),
    "utf8mb4_bin": _string("utf8mb4", "utf8mb4_bin", _PIECES + _WIDE),
}
OWN = {
    "mysql": {
        "utf8mb4_0900_ai_ci": _string("utf8mb4", "utf8mb4_0900_ai_ci", _PIECES + _WIDE),
        "utf8mb4_0900_as_cs": _string("utf8mb4", "utf8mb4_0900_as_cs", _PIECES + _WIDE),
        "utf8mb4_0900_bin": _string("utf8mb4", "utf8mb4_0900_bin", _PIECES + _WIDE),
    },
    "mariadb": {
        "utf8mb4_unicode_520_nopad_ci": _string("utf8mb4", "utf8mb4_unicode_520_nopad_ci", _PIECES + _WIDE),
        "uca1400_ai_ci": _string("utf8mb4", "uca1400_ai_ci", _PIECES + _WIDE),
        "uuid": KeyColumn(
            "UUID",
            st.tuples(st.integers(0, (1 << 128) - 1), st.sampled_from((1, 3, 4, 5))).map(
                lambda made: f"'{uuid.UUID(int=made[0], version=made[1])}'"
            ),
        ),
        "inet6": KeyColumn("INET6", st.binary(min_size=16, max_size=16).map(quote)),
    },
}


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """A table ``t (k0 …, v INT)`` whose primary key is all of its k columns, and its rows' keys as SQL."""

    kinds: tuple[str, ...]
    definitions: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def create(self, name: str) -> str:
        names = [f"k{number}" for number in range(len(self.definitions))]
        columns = [f"{column} {text} NOT NULL" for column, text in zip(names, self.definitions, strict=True)]
        return f"CREATE TABLE {name} ({', '.join(columns)}, v INT, PRIMARY KEY ({', '.join(names)})) ENGINE=InnoDB"

    def insert(self, name: str) -> str:
        """Return the INSERT; a key that the server considers equal to an earlier one is left out."""
        rows = (f"({', '.join(row)}, {number})" for number, row in enumerate(self.rows))
        return f"INSERT IGNORE INTO {name} VALUES {', '.join(rows)}"


@st.composite
def keyed_tables(draw: st.DrawFn, flavor: str) -> KeyedTable:
    """Draw a table of one to three key columns; the leading ones are often equal."""
    columns = COMMON | OWN[flavor]
    kinds = tuple(draw(st.lists(st.sampled_from(sorted(columns)), min_size=1, max_size=3)))
    values: list[st.SearchStrategy[str]] = [columns[kind].values for kind in kinds]
    for number in range(len(kinds) - 1):
        few = draw(st.lists(values[number], min_size=1, max_size=4))
        values[number] = st.sampled_from(few)
    rows = draw(st.lists(st.tuples(*values), min_size=1, max_size=120))
    return KeyedTable(kinds, tuple(columns[kind].definition for kind in kinds), tuple(rows))
