"""Defines the kinds of shard tables of a soak: their columns, their random rows, and how an existing row is found.

Each kind represents a way in which a merge can fail: integer keys that collide until they are mapped, text keys that
are equal but not identical, a second unique key whose values move from row to row, no key at all, and every type of
value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.support.writer import ORDERS

Value = str | int | float | bytes | None

MOVED_KEYS = 100_000
"""Updates move rows to keys from here up to COUNTED_KEYS."""

COUNTED_KEYS = 1_000_000
"""AUTO_INCREMENT continues here once the tables are filled: a key moved above the counter would move it on MySQL."""


@dataclass(frozen=True, slots=True)
class Place:
    """One shard table among all of its kind: ``source`` and ``table`` count from 1."""

    source: int
    table: int

    @property
    def number(self) -> int:
        return self.source * 100 + self.table


@dataclass(frozen=True, slots=True)
class Where:
    """The end of an UPDATE, DELETE or SELECT that finds a few existing rows: WHERE … LIMIT."""

    text: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of shard table. ``definition``: the text between the parentheses of CREATE TABLE. ``columns``: the columns
    of an INSERT, with ``marks`` as their placeholders; ``row`` draws their values.

    ``key``: the target's key; () for none. ``counted``: the key is an integer ``id`` with AUTO_INCREMENT that
    `partition id` maps; it is not among ``columns``. ``few``: finds up to so many rows. ``most``: rows above which
    writers delete more than they insert. ``large``: rows of a large transaction. ``share``: how often it is
    written to, relative to the others.
    """

    name: str
    definition: str
    columns: tuple[str, ...]
    marks: tuple[str, ...]
    row: Callable[[Random, Place], tuple[Value, ...]]
    few: Callable[[Random, int], Where]
    key: tuple[str, ...]
    counted: bool
    most: int
    large: int
    share: int


def _plain(count: int) -> tuple[str, ...]:
    return ("%s",) * count


def _by_id(rng: Random, most: int) -> Where:
    """Select the first rows at or after a random key: of the first, of the moved, or of those that writers inserted."""
    lowest = rng.choice((rng.randrange(20_000), MOVED_KEYS, COUNTED_KEYS + int(rng.paretovariate(0.4)) % 60_000))
    return Where(f"WHERE id >= %s ORDER BY id LIMIT {most}", (lowest,))


def _order(rng: Random, _: Place) -> tuple[Value, ...]:
    return ORDERS.row(rng)


_WORDS = ("alpha", "Beta", "größe", "École", "日本", "naïve", "ångström", "e", "E", "ss", "ß", "Łódź")


def _cased(rng: Random, text: str) -> str:
    """Return a text that is equal under the collation, but not identical."""
    changed = rng.choice((str.lower, str.upper, str.title, str))(text)
    return changed + " " * rng.choice((0, 0, 0, 0, 1, 2))


def _part(rng: Random, place: Place) -> tuple[Value, ...]:
    return (
        _cased(rng, f"s{place.source}t{place.table}"),
        _cased(rng, f"{rng.choice(_WORDS)}{rng.randrange(400)}"),
        rng.randrange(-3, 4),
        rng.choice((None, "", "x" * rng.randrange(60), "tail  ", "'quoted\\'")),
        f"{rng.randrange(-(10**8), 10**8)}.{rng.randrange(10**4):04d}",
    )


def _some_parts(rng: Random, most: int) -> Where:
    return Where(
        f"WHERE code >= %s ORDER BY code, num, region LIMIT {most}", (f"{rng.choice(_WORDS)}{rng.randrange(400)}",)
    )


def _account(rng: Random, place: Place) -> tuple[Value, ...]:
    email = None if rng.random() < 0.2 else _cased(rng, f"{place.number}-{rng.randrange(4000)}@example.org")
    slot = None if rng.random() < 0.3 else place.number * 10_000 + rng.randrange(6000)
    return (email, slot, f"{rng.randrange(10**6)}.{rng.randrange(100):02d}", rng.choice(("on", "off", None)))


def _event(rng: Random, _: Place) -> tuple[Value, ...]:
    """Draw one of a few values, so that many rows are equal."""
    return (
        rng.randrange(6),
        rng.choice((None, "tick", "Tick", "tick ", "日本")),
        rng.choice((None, 0.1, -2.5, 1e300, 12345.678)),
        rng.choice((None, b"", b"\x00\xff'", b"abc")),
        f"2024-01-0{rng.randrange(1, 4)} 12:00:00.{rng.randrange(3)}00",
    )


def _some_events(rng: Random, most: int) -> Where:
    return Where(f"WHERE kind = %s LIMIT {most}", (rng.randrange(6),))


def _maybe(rng: Random, value: Value) -> Value:
    return None if rng.random() < 0.15 else value


def _signed(rng: Random, bits: int) -> int:
    lowest, highest = -(1 << bits - 1), (1 << bits - 1) - 1
    return rng.choice((lowest, highest, 0, -1, rng.randint(lowest, highest)))


def _unsigned(rng: Random, bits: int) -> int:
    return rng.choice((0, (1 << bits) - 1, rng.getrandbits(bits)))


def _date(rng: Random) -> str:
    return rng.choice(
        ("0000-00-00", "1000-01-01", "9999-12-31", f"20{rng.randrange(10, 99)}-02-{rng.randrange(1, 29)}")
    )


def _clock(rng: Random) -> str:
    return f"{rng.randrange(24):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}.{rng.randrange(10**6):06d}"


_NESTED = '[1, [2.5, {}], "é"]', '{"deep": {"é": [null]}}', '"text 🚀 \\\\ \\""', "true", "null"


def _document(rng: Random) -> str:
    values = (str(rng.randrange(-(10**6), 10**6)), repr(rng.random()), *_NESTED)
    names = ("a", "b", "long name", "", "é")
    return "{" + ", ".join(f'"{name}": {rng.choice(values)}' for name in names[: rng.randrange(6)]) + "}"


_Columns = tuple[tuple[str, str, str, Callable[[Random], Value]], ...]

_WIDE: _Columns = (
    # name, definition, mark, value
    ("ti", "TINYINT", "%s", lambda rng: _signed(rng, 8)),
    ("su", "SMALLINT UNSIGNED", "%s", lambda rng: _unsigned(rng, 16)),
    ("mi", "MEDIUMINT", "%s", lambda rng: _signed(rng, 24)),
    ("iu", "INT UNSIGNED", "%s", lambda rng: _unsigned(rng, 32)),
    ("bi", "BIGINT", "%s", lambda rng: _signed(rng, 64)),
    ("bu", "BIGINT UNSIGNED", "%s", lambda rng: _unsigned(rng, 64)),
    ("y", "YEAR", "%s", lambda rng: rng.choice((0, 1901, 2155, 2024))),
    ("big", "DECIMAL(65,30)", "%s", lambda rng: f"{_signed(rng, 64)}.{rng.getrandbits(60):020d}"),
    ("small", "DECIMAL(5,5)", "%s", lambda rng: f"{rng.choice('-+')}0.{rng.randrange(10**5):05d}"),
    ("f", "FLOAT", "%s", lambda rng: rng.choice((0.1, -1.5, 16777217.0, rng.random() * 1e30))),
    ("db", "DOUBLE", "%s", lambda rng: rng.choice((0.1, 1e16, -1.7e308, 5e-324, rng.random()))),
    ("flag", "BIT(1)", "%s", lambda rng: rng.randrange(2)),
    ("bits", "BIT(64)", "%s", lambda rng: _unsigned(rng, 64)),
    ("da", "DATE", "%s", _date),
    ("t6", "TIME(6)", "%s", lambda rng: rng.choice(("-838:59:59", "838:59:59", "-00:00:00.000001", _clock(rng)))),
    ("t0", "TIME", "%s", lambda rng: f"{rng.randrange(-800, 800)}:00:01"),
    ("dt", "DATETIME", "%s", lambda rng: f"{_date(rng)} 00:00:00"),
    ("dt6", "DATETIME(6)", "%s", lambda rng: f"2031-05-06 {_clock(rng)}"),
    ("ts3", "TIMESTAMP(3) NULL", "%s", lambda rng: f"20{rng.randrange(10, 37)}-03-31 {_clock(rng)[:12]}"),
    ("ch", "CHAR(10)", "%s", lambda rng: rng.choice(("", "  a", "é中🚀", "tab\t\n\\'\""))),
    ("vl", "VARCHAR(100) CHARACTER SET latin1", "%s", lambda rng: rng.choice(("éÿ€", "", "x" * rng.randrange(100)))),
    ("vg", "VARCHAR(300) CHARACTER SET gbk", "%s", lambda rng: rng.choice(("中文縗", "誠", "\\'"))),
    ("vb", "VARCHAR(200) COLLATE utf8mb4_bin", "%s", lambda rng: rng.choice(("a", "A", "a ", "\0\x1a"))),
    ("tx", "TEXT", "%s", lambda rng: "long 🚀 " * rng.choice((0, 1, 20, 300))),
    ("bn", "BINARY(6)", "%s", lambda rng: rng.randbytes(rng.randrange(7))),
    ("vy", "VARBINARY(300)", "%s", lambda rng: rng.randbytes(rng.randrange(300))),
    ("bl", "BLOB", "%s", lambda rng: rng.randbytes(rng.choice((0, 1, 50, 3000)))),
    ("e", "ENUM('a','b''c','d\\\\e','ü')", "%s", lambda rng: rng.choice(("a", "b'c", "d\\e", "ü"))),
    ("s", "SET('x','y','z','ü','5','6','7','8','9')", "%s", lambda rng: rng.choice(("", "x", "y,z", "x,ü,9"))),
    ("js", "JSON", "%s", _document),
)
_SPATIAL: _Columns = (
    ("p", "GEOMETRY", "ST_GeomFromText(%s)", lambda rng: f"POINT({rng.randrange(-90, 90)} {rng.random()})"),
)


def _wide(columns: _Columns) -> Kind:
    """Return the kind with a column of each type in ``columns``."""

    def row(rng: Random, _: Place) -> tuple[Value, ...]:
        return tuple(_maybe(rng, value(rng)) for _, _, _, value in columns)

    return Kind(
        name="wide",
        definition=(
            "id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, "
            + ", ".join(f"`{name}` {definition}" for name, definition, _, _ in columns)
            + ", half BIGINT AS (mi DIV 2) VIRTUAL, touched TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) "
            "ON UPDATE CURRENT_TIMESTAMP(6)"
        ),
        columns=tuple(name for name, _, _, _ in columns),
        marks=tuple(mark for _, _, mark, _ in columns),
        row=row,
        few=_by_id,
        key=("id",),
        counted=True,
        most=6_000,
        large=2_000,
        share=4,
    )


def kinds_for(target: str) -> tuple[Kind, ...]:
    """Return the kinds that a target of this flavor can hold."""
    return (*_NARROW, _wide(_WIDE if target == "tidb" else (*_WIDE, *_SPATIAL)))


_NARROW: tuple[Kind, ...] = (
    Kind(
        name="orders",
        definition=ORDERS.definition,
        columns=ORDERS.columns,
        marks=_plain(len(ORDERS.columns)),
        row=_order,
        few=_by_id,
        key=("id",),
        counted=True,
        most=30_000,
        large=20_000,
        share=6,
    ),
    Kind(
        name="parts",
        definition=(
            "region VARCHAR(16) NOT NULL, code VARCHAR(40) NOT NULL, num SMALLINT NOT NULL, note VARCHAR(80) NULL, "
            "price DECIMAL(14,4) NOT NULL, PRIMARY KEY (region, code, num), KEY (code, num)"
        ),
        columns=("region", "code", "num", "note", "price"),
        marks=_plain(5),
        row=_part,
        few=_some_parts,
        key=("region", "code", "num"),
        counted=False,
        most=20_000,
        large=5_000,
        share=4,
    ),
    Kind(
        name="accounts",
        definition=(
            "id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, email VARCHAR(80) NULL, slot INT NULL, "
            "balance DECIMAL(10,2) NOT NULL, state VARCHAR(8) NULL, UNIQUE KEY (email), UNIQUE KEY (slot)"
        ),
        columns=("email", "slot", "balance", "state"),
        marks=_plain(4),
        row=_account,
        few=_by_id,
        key=("id",),
        counted=True,
        most=5_000,
        large=1_000,
        share=4,
    ),
    Kind(
        name="events",
        definition=(
            "kind INT NOT NULL, name VARCHAR(20) NULL, amount DOUBLE NULL, data VARBINARY(20) NULL, "
            "at DATETIME(3) NOT NULL"
        ),
        columns=("kind", "name", "amount", "data", "at"),
        marks=_plain(5),
        row=_event,
        few=_some_events,
        key=(),
        counted=False,
        most=800,
        large=300,
        share=2,
    ),
)
