"""Reads foreign keys from SHOW CREATE TABLE, and finds those by which the storage engine changes rows that the binary
log does not show. Pure.

A row that is deleted, or whose key is changed, makes InnoDB delete or change the rows that refer to it: ON DELETE and
ON UPDATE with CASCADE, SET NULL or SET DEFAULT. These changes are not logged (MySQL Reference Manual, "FOREIGN KEY
Constraints"; MariaDB Knowledge Base, "Foreign Keys"). information_schema.REFERENTIAL_CONSTRAINTS would name such keys,
but MariaDB shows a key there only to accounts with more than SELECT on the table.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass

from shardmerge.proto.sql_lexer import Kind, Token, tokens
from shardmerge.worker.core.mysql.create_table import UnreadableCreateTable, parse_create_table

_FOREIGN_KEY = re.compile(r"(?:CONSTRAINT\s+`((?:[^`]|``)*)`\s+)?FOREIGN\s+KEY\b", re.IGNORECASE)

_NAME = r"`(?:[^`]|``)+`"
_REFERENCE = re.compile(
    rf"FOREIGN\s+KEY\s*(?:{_NAME}\s*)?\((?P<columns>{_NAME}(?:\s*,\s*{_NAME})*)\)\s*"
    rf"REFERENCES\s+(?:(?P<schema>{_NAME})\s*\.\s*)?(?P<table>{_NAME})\s*\((?P<to>{_NAME}(?:\s*,\s*{_NAME})*)\)",
    re.IGNORECASE,
)


class ForeignKeyAction(enum.StrEnum):
    """What happens to a row when the row that it refers to is deleted, or its key is changed."""

    NONE = ""
    CASCADE = "cascade"
    SET_NULL = "set null"
    SET_DEFAULT = "set default"


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """``schema`` "": that of the table with the key. ``columns`` refer to ``to_columns``, in this order. ``actions``:
    the text of ON DELETE and ON UPDATE; ``on_delete``, ``on_update``: what they do. Only read from SHOW CREATE TABLE.
    """

    name: str
    columns: tuple[str, ...]
    schema: str
    table: str
    to_columns: tuple[str, ...]
    actions: str = ""
    on_delete: ForeignKeyAction = ForeignKeyAction.NONE
    on_update: ForeignKeyAction = ForeignKeyAction.NONE

    @property
    def cascades(self) -> bool:
        """Whether the storage engine changes rows because of the key."""
        return bool(self.on_delete or self.on_update)


def foreign_keys(creation: str) -> tuple[ForeignKey, ...]:
    """The foreign keys of a table, from its SHOW CREATE TABLE. Raises
    :class:`shardmerge.worker.core.mysql.create_table.UnreadableCreateTable`."""
    found: list[ForeignKey] = []
    for item in parse_create_table(creation).items:
        head = _FOREIGN_KEY.match(item)
        if head is None:
            continue
        key = _REFERENCE.search(item)
        if key is None:
            raise UnreadableCreateTable(f"a foreign key that cannot be read: {item}")
        found.append(
            ForeignKey(
                (head.group(1) or "foreign key").replace("``", "`"),
                _names(key["columns"]),
                "".join(_names(key["schema"] or "")),
                "".join(_names(key["table"])),
                _names(key["to"]),
                " ".join(item[key.end() :].split()),
                *_actions(item[key.end() :]),
            )
        )
    return tuple(found)


def _actions(rest: str) -> tuple[ForeignKeyAction, ForeignKeyAction]:
    """The actions ON DELETE and ON UPDATE in what follows a reference."""
    found = tokens(rest, 0)
    actions = {"DELETE": ForeignKeyAction.NONE, "UPDATE": ForeignKeyAction.NONE}
    for at, token in enumerate(found):
        if token.is_word("ON") and _changes_rows(found[at + 1 : at + 4]):
            words = [each.text.upper() for each in found[at + 1 : at + 4]]
            actions[words[0]] = ForeignKeyAction("cascade" if words[1] == "CASCADE" else f"set {words[2].lower()}")
    return actions["DELETE"], actions["UPDATE"]


def _names(quoted: str) -> tuple[str, ...]:
    return tuple(name[1:-1].replace("``", "`") for name in re.findall(_NAME, quoted))


def cascading_keys(creation: str) -> tuple[str, ...]:
    """The names of a table's foreign keys that change its rows, from its SHOW CREATE TABLE; "foreign key" for one
    without a name. Raises :class:`shardmerge.worker.core.mysql.create_table.UnreadableCreateTable`."""
    found: list[str] = []
    for item in parse_create_table(creation).items:
        head = _FOREIGN_KEY.match(item)
        if head is not None and adds_cascade(item, 0):
            found.append((head.group(1) or "foreign key").replace("``", "`"))
    return tuple(found)


def adds_cascade(statement: str, sql_mode: int) -> bool:
    """Whether a statement, or a part of one, has a reference to another table that changes rows."""
    found = tokens(statement, sql_mode)
    refers = False
    for at, token in enumerate(found):
        if token.is_word("REFERENCES"):
            refers = True
        elif refers and token.is_word("ON") and _changes_rows(found[at + 1 : at + 4]):
            return True
    return False


def _changes_rows(action: Sequence[Token]) -> bool:
    """``action``: the tokens after ON."""
    words = [token.text.upper() if token.kind is Kind.WORD else "" for token in action]
    if len(words) < 2 or words[0] not in ("DELETE", "UPDATE"):
        return False
    return words[1] == "CASCADE" or words[1:] in (["SET", "NULL"], ["SET", "DEFAULT"])


def added_foreign_keys(statement: str, sql_mode: int) -> tuple[ForeignKey, ...]:
    """The foreign keys that an ALTER TABLE or CREATE TABLE adds. ``columns`` is () for a key that is written in a
    column's definition, ``to_columns`` is () if the statement does not name them."""
    found = tokens(statement, sql_mode)
    keys: list[ForeignKey] = []
    for at, token in enumerate(found):
        if not token.is_word("REFERENCES"):
            continue
        names, after = _qualified(found, at + 1)
        if names is None:
            continue
        schema, table = names
        keys.append(ForeignKey("", _listed_before(found, at), schema, table, _listed_from(found, after)))
    return tuple(keys)


def _qualified(found: Sequence[Token], at: int) -> tuple[tuple[str, str] | None, int]:
    """The name of a table at ``at``, and the place after it; None: there is no name."""
    if at >= len(found) or not found[at].is_name:
        return None, at
    if at + 2 < len(found) and found[at + 1].is_symbol(".") and found[at + 2].is_name:
        return (found[at].text, found[at + 2].text), at + 3
    return ("", found[at].text), at + 1


def _listed_from(found: Sequence[Token], at: int) -> tuple[str, ...]:
    """The names of a list in parentheses that begins at ``at``."""
    if at >= len(found) or not found[at].is_symbol("("):
        return ()
    names: list[str] = []
    for token in found[at + 1 :]:
        if token.is_symbol(")"):
            break
        if token.is_name:
            names.append(token.text)
    return tuple(names)


def _listed_before(found: Sequence[Token], at: int) -> tuple[str, ...]:
    """The names of the list in parentheses that ends right before ``at``, if it is that of a FOREIGN KEY."""
    if at == 0 or not found[at - 1].is_symbol(")"):
        return ()
    begin = at - 1
    while begin > 0 and not found[begin].is_symbol("("):
        begin -= 1
    # FOREIGN KEY [IF NOT EXISTS] [name] (…)
    if not any(token.is_word("FOREIGN") for token in found[max(0, begin - 6) : begin]):
        return ()
    return _listed_from(found, begin)
