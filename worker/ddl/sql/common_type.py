"""Finds the smallest type that holds the values of several types unchanged. Pure.

MySQL Reference Manual, "Integer Types", "Fixed-Point Types", "The CHAR and VARCHAR Types", "The BINARY and VARBINARY
Types", "The BLOB and TEXT Types", "The ENUM Type", "Fractional Seconds in Time Values", "Data Type Storage
Requirements"; MariaDB, "Data Types". There is none where a value would be padded or compared in another way: CHAR and
VARCHAR treat trailing spaces differently, a BINARY is padded to its length. DOUBLE holds each FLOAT: servers convert it
without a change of its value, and FLOAT is read as DOUBLE (worker/core/mysql/information_schema.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

TEXTUAL = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})
"""Types with a character set."""

INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
_BLOBS = ("tinyblob", "blob", "mediumblob", "longblob")
_STRINGS = TEXTUAL | {"binary", "varbinary", "json", *_BLOBS}
_CAPACITY = (2**8 - 1, 2**16 - 1, 2**24 - 1, 2**32 - 1)
"""Bytes in a value of each of these types."""

_WITH_FRACTION = frozenset({"datetime", "timestamp", "time"})
_WITH_MEMBERS = frozenset({"enum", "set"})
_MAX_DIGITS, _MAX_SCALE = 65, 30
"""Limits of DECIMAL (MariaDB accepts a scale of 38; a type that only one kind of server has is not used)."""

_NO_TYPE = "no type of the server holds the values of both unchanged"

_BYTES = {
    **dict.fromkeys(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030"), 4),
    **dict.fromkeys(("utf8", "utf8mb3", "ujis", "eucjpms"), 3),
    **dict.fromkeys(("ucs2", "big5", "gbk", "gb2312", "sjis", "cp932", "euckr"), 2),
}
"""Most bytes of a character; 1 in all other character sets ("Supported Character Sets and Collations")."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """``base``: the type's keyword in lower case. ``arguments``: as printed, without display widths of integers unless
    ``zerofill``. ``charset`` and ``collation``: "" for types that are not text."""

    base: str
    arguments: tuple[str, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    charset: str = ""
    collation: str = ""

    @property
    def bare(self) -> str:
        """As SQL, without the character set."""
        text = self.base + (f"({','.join(self.arguments)})" if self.arguments else "")
        return text + " unsigned" * self.unsigned + " zerofill" * self.zerofill

    @property
    def sql(self) -> str:
        return self.bare + (f" CHARACTER SET {self.charset} COLLATE {self.collation}" if self.charset else "")

    @property
    def length(self) -> int:
        """The one number in parentheses: characters, bytes, digits of the fraction; 0 for none."""
        return int(self.arguments[0]) if self.arguments and self.arguments[0].isdigit() else 0

    @property
    def most_bytes(self) -> int:
        """The most bytes of a value of CHAR, VARCHAR, BINARY and VARBINARY."""
        return self.length * _BYTES.get(self.charset, 1)

    @property
    def needs_prefix(self) -> bool:
        """Whether an index needs a prefix length for it (MySQL Reference Manual, "Column Prefix Key Parts")."""
        return self.base in _TEXTS or self.base in _BLOBS


@dataclass(frozen=True, slots=True)
class NoCommonType:
    """No type holds the values unchanged. ``why``: a clause for people."""

    why: str


def common_type(types: Sequence[ColumnType]) -> ColumnType | NoCommonType:
    """The smallest type that holds all values of each of ``types`` (at least one); their order does not count."""
    first = types[0]
    if all(each == first for each in types):
        return first
    if any(each.zerofill for each in types):
        return NoCommonType("ZEROFILL is part of how a value is printed")
    bases = {each.base for each in types}
    if len({(each.charset, each.collation) for each in types}) > 1:
        return NoCommonType("character set or collation differ" if bases <= _STRINGS else _NO_TYPE)
    if bases <= set(INTEGERS):
        return _integer(types)
    if bases <= {"varchar", *_TEXTS}:
        return _text(types, _TEXTS)
    if bases <= {"varbinary", *_BLOBS}:
        return _text(types, _BLOBS)
    if bases <= {"float", "double"} and not any(each.arguments for each in types):
        return _real(types)
    if bases <= {"char", "varchar", *_TEXTS}:
        if bases == {"char"}:
            return max(types, key=lambda each: each.length)
        return NoCommonType("no type treats trailing spaces as both do: CHAR drops them, VARCHAR and TEXT keep them")
    if len(bases) > 1:
        return NoCommonType(_NO_TYPE)
    if first.base == "decimal":
        return _decimal(types)
    if first.base in _WITH_FRACTION:
        return max(types, key=lambda each: each.length)
    if first.base in _WITH_MEMBERS:
        longest = max(types, key=lambda each: len(each.arguments))
        if all(longest.arguments[: len(each.arguments)] == each.arguments for each in types):
            return longest
        return NoCommonType("neither list of members begins with the other")
    return NoCommonType(f"a value of {first.base.upper()} depends on how the type is declared")


def keeps_when_strict(wide: ColumnType, narrow: ColumnType) -> bool:
    """Whether a strict server that changes a column from ``wide`` to ``narrow`` either keeps each value or refuses.

    It does so for numbers without a fraction to round. It silently rounds DECIMALs and times, and cuts spaces at the
    end of strings (MySQL Reference Manual, "Precision Math Rounding Behavior", "The CHAR and VARCHAR Types").
    """
    if wide.zerofill or narrow.zerofill:
        return False
    if wide.base in INTEGERS and narrow.base in INTEGERS:
        return True
    is_decimal = wide.base == "decimal" == narrow.base and wide.unsigned == narrow.unsigned
    return is_decimal and _scale(wide) == _scale(narrow)


def _integer(types: Sequence[ColumnType]) -> ColumnType | NoCommonType:
    signed = [INTEGERS.index(each.base) for each in types if not each.unsigned]
    unsigned = [INTEGERS.index(each.base) for each in types if each.unsigned]
    if not signed:
        return ColumnType(INTEGERS[max(unsigned)], unsigned=True)
    if unsigned and max(unsigned) >= max(signed):
        return NoCommonType("the signed type does not hold the values of the unsigned one")
    return ColumnType(INTEGERS[max(signed)])


def _text(types: Sequence[ColumnType], family: tuple[str, ...]) -> ColumnType | NoCommonType:
    """For VARCHAR and TEXT, or VARBINARY and BLOB: neither is padded."""
    sized = max((each for each in types if each.base not in family), key=lambda each: each.length, default=None)
    kinds = [family.index(each.base) for each in types if each.base in family]
    if not kinds:
        assert sized is not None  # noqa: S101 - for the type checker: there is at least one
        return sized
    if sized is not None:
        kinds.append(next(kind for kind, most in enumerate(_CAPACITY) if most >= sized.most_bytes))
    return replace(types[0], base=family[max(kinds)], arguments=())


def _real(types: Sequence[ColumnType]) -> ColumnType:
    base = "double" if any(each.base == "double" for each in types) else "float"
    return ColumnType(base, unsigned=all(each.unsigned for each in types))


def _decimal(types: Sequence[ColumnType]) -> ColumnType | NoCommonType:
    scale = max(map(_scale, types))
    digits = scale + max(each.length - _scale(each) for each in types)
    if digits > _MAX_DIGITS or scale > _MAX_SCALE:
        return NoCommonType(f"DECIMAL({digits},{scale}) is more than the server has")
    return ColumnType("decimal", (str(digits), str(scale)), unsigned=all(each.unsigned for each in types))


def _scale(decimal: ColumnType) -> int:
    return int(decimal.arguments[1]) if len(decimal.arguments) > 1 else 0
