"""Generates random rows of a table with a column of every type that a server has, as SQL; the same for the same
seed."""

from __future__ import annotations

import math
import random
import struct
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal

Maker = Callable[[random.Random], str]
"""Makes one value, as SQL."""

_ALPHABET = "ab é\\'\"\n\0😀中%_*/"


def quote(text: str | bytes) -> str:
    """Return text as a literal of an utf8mb4 connection, and bytes as X'…'."""
    if isinstance(text, bytes):
        return f"X'{text.hex()}'"
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0") + "'"


def _integer(lowest: int, highest: int) -> Maker:
    def make(pick: random.Random) -> str:
        # Values with few bits are as frequent as values with many; and the edges.
        value = pick.choice((pick.randint(lowest, highest), pick.getrandbits(pick.randint(1, 64)), lowest, highest))
        return str(min(max(value, lowest), highest))

    return make


def _decimal(digits: int, scale: int) -> Maker:
    def make(pick: random.Random) -> str:
        most = 10 ** pick.randint(1, digits) - 1
        return f"{Decimal(pick.choice((pick.randint(-most, most), most, -most))).scaleb(-scale):f}"

    return make


def _double(pick: random.Random) -> str:
    (any_bits,) = struct.unpack("<d", pick.randbytes(8))
    value = pick.choice(
        (pick.uniform(-1e9, 1e9), pick.uniform(-1, 1), any_bits, float(pick.randint(-(10**17), 10**17)))
    )
    return repr(value) if math.isfinite(value) else "0"


def _float(pick: random.Random) -> str:
    return repr(pick.choice((pick.uniform(-1e9, 1e9), pick.uniform(-1, 1), pick.uniform(-1e-30, 1e-30), 16777217.0)))


def _day(first: int, last: int) -> Maker:
    return lambda pick: f"'{pick.randint(first, last):04}-{pick.randint(1, 12):02}-{pick.randint(1, 28):02}'"


def _moment(first: int, last: int) -> Maker:
    def make(pick: random.Random) -> str:
        clock = f"{pick.randint(0, 23):02}:{pick.randint(0, 59):02}:{pick.randint(0, 58):02}"
        return f"{_day(first, last)(pick)[:-1]} {clock}.{pick.randint(0, 999_999):06}'"

    return make


def _time(pick: random.Random) -> str:
    sign, hour = pick.choice(("", "-")), pick.choice((pick.randint(0, 23), pick.randint(0, 838)))
    return f"'{sign}{hour:02}:{pick.randint(0, 59):02}:{pick.randint(0, 58):02}.{pick.randint(0, 999_999):06}'"


def _text(alphabet: str, most: int, *, stripped: bool = False) -> Maker:
    def make(pick: random.Random) -> str:
        text = "".join(pick.choices(alphabet, k=pick.randint(0, most)))
        return quote(text.rstrip(" ") if stripped else text)

    return make


def _bytes(most: int) -> Maker:
    return lambda pick: quote(pick.choice((pick.randbytes, bytes))(pick.randint(0, most)))


def _fixed_bytes(size: int) -> Maker:
    """Return a maker of fixed bytes, half of which end with zeros: some servers cut these off in row images."""
    return lambda pick: quote(pick.randbytes(pick.randint(0, size)).ljust(size, b"\0"))


def _shape(pick: random.Random) -> str:
    """Return SRID and WKB as raw bytes, which both servers accept: of a sphere, and of planes."""
    srid = pick.choice((0, 4326, 3857))
    points = [struct.pack("<dd", pick.uniform(-80, 80), pick.uniform(-80, 80)) for _ in range(pick.randint(2, 5))]
    point = b"\1" + struct.pack("<I", 1) + points[0]
    line = b"\1" + struct.pack("<II", 2, len(points)) + b"".join(points)
    several = b"\1" + struct.pack("<II", 7, 2) + point + line
    return quote(struct.pack("<I", srid) + pick.choice((point, line, several)))


def _vector(most: int) -> Maker:
    def make(pick: random.Random) -> str:
        return quote(b"".join(struct.pack("<f", pick.uniform(-1e3, 1e3)) for _ in range(pick.randint(1, most))))

    return make


def _uuid(pick: random.Random) -> str:
    version = pick.choice((None, 1, 3, 4, 5))
    if version is None:
        return _fixed_bytes(16)(pick)
    return f"'{uuid.UUID(int=pick.getrandbits(128), version=version)}'"


def json_value(pick: random.Random, depth: int = 0) -> str:
    """Return an SQL expression of a JSON value: of any type, including opaque ones, nested at most 5 deep."""
    kind = pick.randint(0, 13) if depth else pick.randint(8, 20)
    if kind >= 11 and depth < 5:
        count = pick.choice((0, 1, 2, 3, pick.randint(4, 12)))
        if kind % 2:
            return f"JSON_ARRAY({', '.join(json_value(pick, depth + 1) for _ in range(count))})"
        keys = {_text(_ALPHABET, 5)(pick) for _ in range(count)} | {f"'k{number}'" for number in range(count // 2)}
        return f"JSON_OBJECT({', '.join(f'{key}, {json_value(pick, depth + 1)}' for key in sorted(keys))})"
    makers: tuple[Maker, ...] = (
        _integer(-(1 << 63), (1 << 63) - 1), _integer(0, (1 << 64) - 1), _json_double, _decimal(65, 30), _decimal(6, 2),
        _text(_ALPHABET, 9), lambda _: "TRUE", lambda _: "NULL",
        lambda pick: f"CAST({_day(1, 9999)(pick)} AS DATE)", lambda pick: f"CAST({_time(pick)} AS TIME(6))",
        lambda pick: f"CAST({_moment(1, 9998)(pick)} AS DATETIME(6))", lambda pick: f"X'{pick.randbytes(9).hex()}'",
        # With two of the longest texts the value no longer fits offsets of 2 bytes.
        lambda pick: quote("a" * (pick.choice((3, 127, 128)) if pick.random() < 0.97 else 60_000)),
    )  # fmt: skip
    scalar = pick.choice(makers)(pick)
    return scalar if depth else f"JSON_EXTRACT(JSON_ARRAY({scalar}), '$[0]')"


def _json_double(pick: random.Random) -> str:
    value = _double(pick)
    return value if "e" in value else f"{value}e0"


_COMMON: tuple[tuple[str, str, Maker], ...] = (
    ("ti", "TINYINT", _integer(-128, 127)),
    ("su", "SMALLINT UNSIGNED", _integer(0, 65535)),
    ("mi", "MEDIUMINT", _integer(-(1 << 23), (1 << 23) - 1)),
    ("mu", "MEDIUMINT UNSIGNED", _integer(0, (1 << 24) - 1)),
    ("iu", "INT UNSIGNED", _integer(0, (1 << 32) - 1)),
    ("bi", "BIGINT", _integer(-(1 << 63), (1 << 63) - 1)),
    ("bu", "BIGINT UNSIGNED", _integer(0, (1 << 64) - 1)),
    ("d1", "DECIMAL(65,30)", _decimal(65, 30)),
    ("d2", "DECIMAL(10,2)", _decimal(10, 2)),
    ("d3", "DECIMAL(7,7)", _decimal(7, 7)),
    ("f", "FLOAT", _float),
    ("db", "DOUBLE", _double),
    ("b", "BIT(37)", _integer(0, (1 << 37) - 1)),
    ("da", "DATE", _day(1, 9999)),
    ("t0", "TIME", _time),
    ("t3", "TIME(3)", _time),
    ("t6", "TIME(6)", _time),
    ("dt0", "DATETIME", _moment(1, 9998)),
    ("dt3", "DATETIME(3)", _moment(1, 9998)),
    ("dt6", "DATETIME(6)", _moment(1, 9998)),
    ("ts0", "TIMESTAMP NULL", _moment(1971, 2037)),
    ("ts5", "TIMESTAMP(5) NULL", _moment(1971, 2037)),
    ("c", "CHAR(20) CHARACTER SET utf8mb4", _text(_ALPHABET, 20, stripped=True)),
    ("v", "VARCHAR(400) CHARACTER SET utf8mb4", _text(_ALPHABET, 400)),
    ("l", "VARCHAR(50) CHARACTER SET latin1", _text("abéÿ€' ", 50)),
    ("g", "TEXT CHARACTER SET gbk", _text("ab中文縗'\\", 90)),
    ("bn", "BINARY(9)", _fixed_bytes(9)),
    ("vb", "VARBINARY(40)", _bytes(40)),
    ("bl", "MEDIUMBLOB", _bytes(3000)),
    ("e", "ENUM('a','b','c') CHARACTER SET utf8mb4", lambda pick: quote(pick.choice("abc"))),
    (
        "s",
        "SET('x','y','z') CHARACTER SET utf8mb4",
        lambda pick: quote(pick.choice(("", "x", "y", "z", "x,y", "x,y,z"))),
    ),
)
COMMON_NAMES = ("id", *(name for name, _, _ in _COMMON))


def _year(pick: random.Random) -> str:
    return str(pick.choice((0, pick.randint(1901, 2155))))


_OWN: dict[str, tuple[tuple[str, str, Maker], ...]] = {
    "mysql": (
        ("y", "YEAR", _year),
        ("shape", "GEOMETRY", _shape),
        ("j1", "JSON", json_value),
        ("j2", "JSON", json_value),
        ("vec", "VECTOR(60)", _vector(60)),
    ),
    "mariadb": (
        ("y", "YEAR", _year),
        ("shape", "GEOMETRY", _shape),
        ("i4", "INET4", _fixed_bytes(4)),
        ("i6", "INET6", _fixed_bytes(16)),
        ("u", "UUID", _uuid),
        ("js", "JSON", lambda pick: quote('{"a" :  [1.50, "x"]}' if pick.random() < 0.5 else "[]")),
    ),
}


STRANGE = {"mysql": frozenset({"i4", "i6", "u"}), "mariadb": frozenset({"vec"})}
"""Columns whose types servers of this flavor do not have."""


def columns(flavor: str, *, rare: bool, without: frozenset[str] = frozenset()) -> tuple[tuple[str, str, Maker], ...]:
    """Return name, definition and values of each column. ``rare``: also types that only one kind of server or client
    supports; ``without``: names of columns to leave out."""
    return tuple(column for column in (_COMMON + _OWN[flavor] if rare else _COMMON) if column[0] not in without)


def create(flavor: str, table: str, *, rare: bool = True, without: frozenset[str] = frozenset()) -> str:
    made = columns(flavor, rare=rare, without=without)
    described = ", ".join(f"{name} {definition}" for name, definition, _ in made)
    return f"CREATE TABLE {table} (id INT PRIMARY KEY, {described})"


def inserts(
    flavor: str,
    table: str,
    pick: random.Random,
    count: int,
    *,
    rare: bool = True,
    without: frozenset[str] = frozenset(),
) -> Iterator[str]:
    """Generate INSERTs for a session with sql_mode '': numbers are rounded, fractions cut. Rows are numbered from 0."""
    for number in range(count):
        values = [
            "NULL" if pick.random() < 0.08 else make(pick) for _, _, make in columns(flavor, rare=rare, without=without)
        ]
        yield f"INSERT INTO {table} VALUES ({number}, {', '.join(values)})"


def json_changes(table: str, pick: random.Random, rows: int, count: int) -> Iterator[str]:
    """Generate UPDATEs that change parts of JSON values, which a MySQL may log as partial changes."""
    paths = ("$.k0", "$.k1", '$."k1".k0', "$[0]", "$[1]", "$[last]", "$[last-1]", "$[7]", "$.k0[0]", '$."*/ é"')
    for _ in range(count):
        sets: list[str] = []
        for column in pick.sample(("j1", "j2"), pick.randint(1, 2)):
            function = pick.choice(("JSON_SET", "JSON_SET", "JSON_REPLACE", "JSON_REMOVE"))
            changed = pick.sample(paths, pick.randint(1, 3))
            if function == "JSON_REMOVE":
                arguments = ", ".join(quote(path) for path in changed)
            else:
                arguments = ", ".join(f"{quote(path)}, {json_value(pick, 3)}" for path in changed)
            sets.append(f"{column} = {function}({column}, {arguments})")
        if pick.random() < 0.3:
            sets.append("ti = -ti")
        yield f"UPDATE {table} SET {', '.join(sets)} WHERE id = {pick.randrange(rows)}"
