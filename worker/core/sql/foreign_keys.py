"""Reads foreign keys from SHOW CREATE TABLE, and finds those by which the storage engine changes rows that the binary
log does not show. Pure.

A row that is deleted, or whose key is changed, makes InnoDB delete or change the rows that refer to it: ON DELETE and
ON UPDATE with CASCADE, SET NULL or SET DEFAULT. These changes are not logged (MySQL Reference Manual, "FOREIGN KEY
Constraints"; MariaDB Knowledge Base, "Foreign Keys"). information_schema.REFERENTIAL_CONSTRAINTS would name such keys,
but MariaDB shows a key there only to accounts with more than SELECT on the table.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardmerge.proto.sql_lexer import Token, tokens
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable, read_create_table
from shardmerge.worker.core.sql.token_reader import NotUnderstoodError, TokenReader


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
    :class:`shardmerge.worker.core.sql.table_text.UnreadableCreateTable`."""
    found: list[ForeignKey] = []
    if "FOREIGN" not in creation.upper():
        return ()  # thousands of tables are read at a start
    for item in read_create_table(creation).items:
        if item.kind is ClauseKind.ADD_FOREIGN_KEY:
            key = next(_added(item.tokens), None)
            if key is None or not key.columns or not key.to_columns:
                raise UnreadableCreateTable(f"a foreign key that cannot be read: {item.text}")
            found.append(replace(key, name=item.name or "foreign key"))
    return tuple(found)


def cascading_keys(creation: str) -> tuple[str, ...]:
    """The names of a table's foreign keys that change its rows, from its SHOW CREATE TABLE; "foreign key" for one
    without a name. Raises :class:`shardmerge.worker.core.sql.table_text.UnreadableCreateTable`."""
    return tuple(key.name for key in foreign_keys(creation) if key.cascades)


def adds_cascade(statement: str, sql_mode: int) -> bool:
    """Whether a statement, or a part of one, has a reference to another table that changes rows."""
    found = tokens(statement, sql_mode)
    return any(any(_actions(found[at + 1 :])) for at, token in enumerate(found) if token.is_word("REFERENCES"))


def added_foreign_keys(statement: str, sql_mode: int) -> tuple[ForeignKey, ...]:
    """The foreign keys that an ALTER TABLE or CREATE TABLE adds. ``columns`` is () for a key that is written in a
    column's definition, ``to_columns`` is () if the statement does not name them."""
    return tuple(_added(tokens(statement, sql_mode)))


def _added(found: Sequence[Token]) -> Iterator[ForeignKey]:
    """The keys that these tokens define, without names. ``actions``: all text after the reference."""
    for at, token in enumerate(found):
        if not token.is_word("REFERENCES"):
            continue
        words = TokenReader(found[at + 1 :], "")
        try:
            schema, table = "", words.name()
            if words.take_symbol("."):
                schema, table = table, words.name()
        except NotUnderstoodError:
            continue
        rest = words.rest()
        columns, to_columns = _listed_before(found, at), _listed_from(rest, 0)
        if to_columns:
            rest = rest[len(to_columns) * 2 + 1 :]
        yield ForeignKey("", columns, schema, table, to_columns, " ".join(each.text for each in rest), *_actions(rest))


def _actions(rest: Sequence[Token]) -> tuple[ForeignKeyAction, ForeignKeyAction]:
    """The actions ON DELETE and ON UPDATE in what follows a reference."""
    actions = {"DELETE": ForeignKeyAction.NONE, "UPDATE": ForeignKeyAction.NONE}
    for at, token in enumerate(rest):
        if token.is_word("REFERENCES"):
            break
        words = TokenReader(rest[at : at + 4], "")
        if words.take("ON") and (event := words.word()) in actions:
            words.advance()
            for action in ForeignKeyAction:
                if action and words.take_all(*action.upper().split()):
                    actions[event] = action
    return actions["DELETE"], actions["UPDATE"]


def _listed_from(found: Sequence[Token], at: int) -> tuple[str, ...]:
    """The names of a list in parentheses that begins at ``at``."""
    if at >= len(found) or not found[at].is_symbol("("):
        return ()
    listed = itertools.takewhile(lambda token: not token.is_symbol(")"), found[at + 1 :])
    return tuple(token.text for token in listed if token.is_name)


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
