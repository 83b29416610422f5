"""Adds the columns that routes extract from names to the unique keys of target tables. Pure, on text.

Equal keys of two shard tables are different keys at the target if these columns are part of it. They are appended: the
key still begins with the shard table's columns, so an AUTO_INCREMENT stays legal, rows of one key are neighbours, and
the key serves the same lookups.

What is decided for a table that is created is not recorded: its keys show it. A key that a DDL adds later follows the
keys that the table has.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.mysql.create_table import (
    CONSTANT_TYPE,
    UnreadableCreateTable,
    closing_parenthesis,
    masked_quotes,
    parse_create_table,
)
from shardmerge.worker.core.table_plan import Constant, ExtractInKey, TablePlan

_HEAD = re.compile(r"(?:PRIMARY\s+KEY|UNIQUE\s+KEY\s+`[^`]*`)[^(]*\(", re.IGNORECASE)
_NAME = re.compile(r"UNIQUE\s+KEY\s+`((?:[^`]|``)*)`", re.IGNORECASE)
_PLAIN_PART = re.compile(r"`((?:[^`]|``)*)`\s*(?:\((\d+)\))?(?:\s+(?:ASC|DESC))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KeyExtension:
    """``columns``: those that a target's keys get. ``own_columns``: a key with one of these (in lower case) needs
    none."""

    columns: tuple[str, ...] = ()
    own_columns: frozenset[str] = frozenset()

    def of(self, key: Iterable[str]) -> tuple[str, ...]:
        """The columns that a key over ``key`` lacks."""
        names = {name.lower() for name in key}
        if names & self.own_columns:
            return ()
        return tuple(column for column in self.columns if column.lower() not in names)


NO_EXTENSION = KeyExtension()


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A primary or unique key of a CREATE TABLE. ``name``: "" for the primary key. ``text``: the whole item.
    ``columns``: in order; a part that is an expression has none. ``prefixes``: for each column the length of the prefix
    that is indexed, 0 for the whole column."""

    name: str
    text: str
    columns: tuple[str, ...]
    prefixes: tuple[int, ...]

    @property
    def shown(self) -> str:
        """For people."""
        return f"{self.name or 'PRIMARY KEY'} ({', '.join(self.columns) or 'an expression'})"


def created_keys(plan: TablePlan) -> KeyExtension:
    """For the keys of ``plan``'s target, if it is created."""
    if plan.extract_in_key is ExtractInKey.NEVER:
        return NO_EXTENSION
    own = plan.own_columns if plan.extract_in_key is ExtractInKey.AUTO else frozenset[str]()
    return KeyExtension(plan.constant_columns, own)


def added_keys(plan: TablePlan, present: Iterable[Sequence[str]]) -> KeyExtension:
    """For a key that a DDL adds to ``plan``'s target, which has the unique keys ``present``.

    The key gets the extracted columns that the table's keys have; none if the table was created without them. Where no
    key shows it, the key is made as in a table that is created.
    """
    wanted = created_keys(plan)
    telling = [{name.lower() for name in key} for key in present]
    telling = [key for key in telling if not key & wanted.own_columns]
    if not wanted.columns or not telling:
        return wanted
    used = frozenset[str]().union(*telling)
    return KeyExtension(tuple(name for name in wanted.columns if name.lower() in used), wanted.own_columns)


def unique_keys(creation: str) -> tuple[UniqueKey, ...]:
    """The primary and unique keys of a CREATE TABLE. Raises :class:`UnreadableCreateTable`."""
    return tuple(key for item in parse_create_table(creation).items if (key := unique_key_of(item)) is not None)


def with_extracted_columns(creation: str, plan: TablePlan) -> str:
    """The CREATE TABLE of ``plan``'s target, with the extracted columns in its unique keys. Raises
    :class:`UnreadableCreateTable`."""
    extension = created_keys(plan)
    if not extension.columns:
        return creation
    extended = {
        key.text: extended_key(key.text, names) for key in unique_keys(creation) if (names := extension.of(key.columns))
    }
    return _replaced(creation, extended | _shortened(plan)) if extended else creation


def extended_key(item: str, names: Collection[str]) -> str:
    """A key's item of a CREATE TABLE or clause of an ALTER TABLE, with further columns at its end. Raises
    :class:`UnreadableCreateTable`."""
    masked = masked_quotes(item)
    start = masked.find("(")
    if start < 0:
        raise UnreadableCreateTable("a key without a list of columns")
    end = closing_parenthesis(masked, start)
    return f"{item[:end]}{''.join(f',{quote_name(name)}' for name in names)}{item[end:]}"


def extracted_texts(plan: TablePlan) -> dict[str, str]:
    """The texts that a route extracts for a shard table, by the column's name in lower case."""
    return {
        column.target_name.lower(): column.mapping.text
        for column in plan.columns
        if isinstance(column.mapping, Constant)
    }


@lru_cache(maxsize=16384)
def comparable_text(text: str) -> str:
    """Equal for two extracted texts that a column of a target could treat as equal, whatever its collation."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(each for each in folded if not unicodedata.combining(each)).rstrip(" ")


def key_type(mapping: Constant) -> str:
    """The type of an extracted column that is part of a key: short, because an index holds at most 3072 bytes."""
    return CONSTANT_TYPE.replace("(256)", f"({mapping.most})")


def unique_key_of(item: str) -> UniqueKey | None:
    """The key that an item of a CREATE TABLE is; None for other items."""
    masked = masked_quotes(item)
    head = _HEAD.match(masked)
    if head is None:
        return None
    name = _NAME.match(item)
    end = closing_parenthesis(masked, head.end() - 1)
    plain = [found for part in parts_of(item[head.end() : end]) if (found := _PLAIN_PART.fullmatch(part)) is not None]
    return UniqueKey(
        "" if name is None else name.group(1).replace("``", "`"),
        item,
        tuple(found.group(1).replace("``", "`") for found in plain),
        tuple(int(found.group(2) or 0) for found in plain),
    )


def parts_of(listed: str) -> tuple[str, ...]:
    """The parts of a key, cut at the commas outside of parentheses."""
    masked, depth, first = masked_quotes(listed), 0, 0
    found: list[str] = []
    for at, character in enumerate(masked):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            found.append(listed[first:at].strip())
            first = at + 1
    return (*found, listed[first:].strip())


def _shortened(plan: TablePlan) -> dict[str, str]:
    """The items of the extracted columns, as merged_create_table makes them and as keys need them."""
    found: dict[str, str] = {}
    for column in plan.columns:
        if isinstance(column.mapping, Constant):
            name = quote_name(column.target_name)
            found[f"{name} {CONSTANT_TYPE} NOT NULL"] = f"{name} {key_type(column.mapping)} NOT NULL"
    return found


def _replaced(creation: str, items: dict[str, str]) -> str:
    parts: list[str] = []
    at = 0
    for item in parse_create_table(creation).items:
        start = creation.index(item, at)
        parts += (creation[at:start], items.get(item, item))
        at = start + len(item)
    return "".join((*parts, creation[at:]))
