"""A CREATE TABLE with columns as that of a table elsewhere: pure, on tokens.

What it takes over are columns, keys and checks, character sets and the comment. Storage, partitions and foreign keys
stay behind, as for every merged table (worker/create_table.py): they may ask for what only the source has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proto.lexer import Token, tokens
from worker.ddl.alter import commas, element_kind
from worker.ddl.clause import ClauseKind
from worker.ddl.statement import CreateTable
from worker.ddl.words import Words


@dataclass(frozen=True, slots=True)
class TableText:
    """``body``: the columns and keys in their parentheses; ``options``: what is taken over of those behind them.
    ``has_charset``: whether the options say the table's character set."""

    body: str
    options: str
    has_charset: bool

    def named(self, place: str, collation: str) -> str:
        """The statement that makes it as ``place``, a quoted name; ``collation``: its own unless it says one, "" for
        that of ``place``'s schema."""
        options = self.options
        if collation and not self.has_charset:
            options = f"DEFAULT CHARACTER SET {collation.split('_', 1)[0]} COLLATE {collation} {options}"
        return f"CREATE TABLE {place} {self.body} {options}".rstrip()


def table_text(text: str, ddl: CreateTable, sql_mode: int) -> TableText | None:
    """None when its rows come by the statement. MySQL logs a CREATE TABLE … SELECT as the table, in one transaction
    with its rows: START TRANSACTION at the end says so (Reference Manual, "Atomic Data Definition Statement
    Support")."""
    if ddl.form != "columns":
        return None
    found = [token for token in tokens(text, sql_mode) if token.start >= ddl.table.end]
    _, behind = _halves(found)
    parts = [part for part in body_of(found, ddl) if element_kind(part) is not ClauseKind.ADD_FOREIGN_KEY]
    body = ", ".join(text[part[0].start : part[-1].end] for part in parts)
    options, has_charset = table_options(text, behind)
    return TableText(f"({body})", " ".join(options), has_charset)


def table_options(text: str, found: Sequence[Token]) -> tuple[list[str], bool]:
    """The options among these tokens that merged tables take over; whether the character set is one."""
    options: list[str] = []
    has_charset = False
    depth = 0
    at = 0
    while at < len(found):
        token = found[at]
        words = Words(found[at:], "")
        depth += token.is_symbol("(") - token.is_symbol(")")
        at += 1
        if depth:
            continue
        if words.take("PARTITION"):
            break
        if words.take_all("WITH", "SYSTEM", "VERSIONING"):
            options.append("WITH SYSTEM VERSIONING")  # said, so that it is refused
        elif words.take("CHARSET", "COLLATE", "COMMENT") or words.take_all("CHARACTER", "SET"):
            words.take_symbol("=")
            words.advance()
            options.append(text[token.start : found[at + words.at - 2].end])
            has_charset = has_charset or not token.is_word("COMMENT")
            at += words.at - 1
    return options, has_charset


def body_of(found: Sequence[Token], ddl: CreateTable) -> list[Sequence[Token]]:
    """The parts of the list of columns and keys, of a statement that has one."""
    inner, _ = _halves([token for token in found if token.start >= ddl.table.end])
    return [part for part in commas(inner) if part]


def _halves(found: Sequence[Token]) -> tuple[Sequence[Token], Sequence[Token]]:
    """What stands in the parentheses at the beginning, and what behind them."""
    words = Words(found, "")
    return (found[1 : words.at - 1], found[words.at :]) if words.group() else ((), found)
