"""Rewrites a CREATE TABLE with columns for another table name, on tokens. Pure.

It keeps columns, keys, checks, character sets and the comment. It drops storage options, partitions and foreign keys,
as for every merged table (worker/core/mysql/create_table.py), because they may need something that only the source has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardmerge.proto.sql_lexer import Token, tokens
from shardmerge.worker.core.mysql.create_table import charset_of
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.table_text import element_kind
from shardmerge.worker.core.sql.token_reader import TokenReader, split_at_commas
from shardmerge.worker.ddl.sql.statement import CreateTable


@dataclass(frozen=True, slots=True)
class CreateBody:
    """``body``: the columns and keys in their parentheses. ``options``: the kept table options after them.
    ``has_charset``: whether the options contain the table's character set."""

    body: str
    options: str
    has_charset: bool

    def create_statement(self, place: str, collation: str) -> str:
        """The CREATE TABLE for ``place``, a quoted name. ``collation``: the table's default unless the options contain
        one; "" for the default of ``place``'s schema."""
        options = self.options
        if collation and not self.has_charset:
            options = f"DEFAULT CHARACTER SET {charset_of(collation)} COLLATE {collation} {options}"
        return f"CREATE TABLE {place} {self.body} {options}".rstrip()


def read_create_body(text: str, ddl: CreateTable, sql_mode: int) -> CreateBody | None:
    """None for a CREATE TABLE … SELECT. MySQL logs such a statement as the table only, in one transaction with its
    rows: START TRANSACTION at the end shows this (Reference Manual, "Atomic Data Definition Statement Support")."""
    if ddl.form != "columns":
        return None
    parts, after_body = body_of(tokens(text, sql_mode), ddl)
    kept = (part for part in parts if element_kind(part) is not ClauseKind.ADD_FOREIGN_KEY)
    body = ", ".join(text[part[0].start : part[-1].end] for part in kept)
    options, has_charset = table_options(text, after_body)
    return CreateBody(f"({body})", " ".join(options), has_charset)


def table_options(text: str, found: Sequence[Token]) -> tuple[list[str], bool]:
    """The options among these tokens that merged tables keep; whether the character set is one of them."""
    options: list[str] = []
    has_charset = False
    depth = 0
    at = 0
    while at < len(found):
        token = found[at]
        words = TokenReader(found[at:], "")
        depth += token.is_symbol("(") - token.is_symbol(")")
        at += 1
        if depth:
            continue
        if words.take("PARTITION"):
            break
        if words.take_all("WITH", "SYSTEM", "VERSIONING"):
            options.append("WITH SYSTEM VERSIONING")  # kept, so that it is refused
        elif words.take("CHARSET", "COLLATE", "COMMENT") or words.take_all("CHARACTER", "SET"):
            words.take_symbol("=")
            words.advance()
            options.append(text[token.start : found[at + words.at - 2].end])
            has_charset = has_charset or not token.is_word("COMMENT")
            at += words.at - 1
    return options, has_charset


def body_of(found: Sequence[Token], ddl: CreateTable) -> tuple[list[Sequence[Token]], Sequence[Token]]:
    """The parts of the list of columns and keys, and the tokens after it; no parts for a statement without a list."""
    rest = [token for token in found if token.start >= ddl.table.end]
    words = TokenReader(rest, "")
    if not words.group():
        return [], rest
    return [part for part in split_at_commas(rest[1 : words.at - 1]) if part], rest[words.at :]
