"""Adds the columns that routes extract from names to the unique keys of target tables. Pure, on text.

Equal keys of two shard tables are different keys at the target if these columns are part of it. They are appended: the
key still begins with the shard table's columns, so an AUTO_INCREMENT stays legal, rows of one key are neighbours, and
the key serves the same lookups.

What is decided for a table that is created is not recorded: its keys show it. A key that a DDL adds later follows the
keys that the table has.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from shardmerge.proto.sql_lexer import edited, quote_name
from shardmerge.worker.core.mysql.create_table import CONSTANT_TYPE
from shardmerge.worker.core.sql.table_text import read_create_table
from shardmerge.worker.core.table_plan import Constant, ExtractInKey, TablePlan


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


def with_extracted_columns(creation: str, plan: TablePlan) -> str:
    """The CREATE TABLE of ``plan``'s target, with the extracted columns in its unique keys. Raises
    :class:`shardmerge.worker.core.sql.table_text.UnreadableCreateTable`."""
    extension = created_keys(plan)
    if not extension.columns:
        return creation
    table = read_create_table(creation)
    replaced = {key.text: key.extended(names).text for key in table.unique_keys if (names := extension.of(key.columns))}
    if not replaced:
        return creation
    replaced |= _shortened(plan)
    items = (item for item in table.items if item.text in replaced)
    return edited(creation, ((item.start, item.start + len(item.text), replaced[item.text]) for item in items))


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


def _shortened(plan: TablePlan) -> dict[str, str]:
    """The items of the extracted columns, as merged_create_table makes them and as keys need them."""
    found: dict[str, str] = {}
    for column in plan.columns:
        if isinstance(column.mapping, Constant):
            name = quote_name(column.target_name)
            found[f"{name} {CONSTANT_TYPE} NOT NULL"] = f"{name} {key_type(column.mapping)} NOT NULL"
    return found
