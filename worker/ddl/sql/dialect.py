"""Translates a statement for a server of another kind (MySQL, MariaDB)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from shardmerge.proto.sql_lexer import Token, tokens
from shardmerge.worker.core.table import Table, ValueKind
from shardmerge.worker.ddl.sql.alter_parser import add_list_elements, element_kind
from shardmerge.worker.ddl.sql.clause import ClauseKind
from shardmerge.worker.ddl.sql.create_body import body_of
from shardmerge.worker.ddl.sql.statement import AlterTable, CreateTable, parse_ddl
from shardmerge.worker.ddl.sql.token_reader import TokenReader
from shardmerge.worker.relay.model import Statement

FallbackCollations = Callable[[frozenset[str]], Mapping[str, str | None]]
"""Returns the fallback for each of some collations that the target lacks; None: there is none."""

_MARIADB_JSON = "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The kinds of the two servers."""

    source_is_mariadb: bool
    target_is_mariadb: bool
    fallback_collations: FallbackCollations

    def for_target(self, text: str, sql_mode: int) -> str:
        """The statement for the target: collations that it lacks are replaced, as in new tables; MariaDB's JSON, which
        is text in its row events, becomes text."""
        found = tokens(text, sql_mode)
        replaced: list[tuple[Token, str]] = []
        names = {token.text.lower(): token for token in _collations(found)}
        fallbacks: Mapping[str, str | None] = self.fallback_collations(frozenset(names)) if names else {}
        for token in _collations(found):
            fallback = fallbacks.get(token.text.lower())
            if fallback is not None:
                replaced.append((token, fallback))
        if self.source_is_mariadb and not self.target_is_mariadb:
            types = declared_types(text, "?", sql_mode).values()
            replaced += [(token, _MARIADB_JSON) for token in types if token.is_word("JSON")]
        for token, with_ in sorted(replaced, key=lambda each: each[0].start, reverse=True):
            text = text[: token.start] + with_ + text[token.end :]
        return text

    def as_declared(self, table: Table, statement: Statement) -> Table:
        """``table``, as the target describes it, but JSON for columns that are JSON at the source only."""
        if self.source_is_mariadb or not self.target_is_mariadb:
            return table
        types = declared_types(statement.text, statement.schema, statement.sql_mode or 0)
        return replace(
            table,
            columns=tuple(
                replace(column, kind=ValueKind.JSON, type_text="json", charset="", collation="")
                if (token := types.get(column.name.lower())) is not None and token.is_word("JSON")
                else column
                for column in table.columns
            ),
        )


def declared_types(text: str, schema: str, sql_mode: int) -> dict[str, Token]:
    """The first token of the type of each column that the statement declares, by lower-case name."""
    ddl = parse_ddl(text, schema, sql_mode)
    found = tokens(text, sql_mode)
    types: dict[str, Token] = {}
    if isinstance(ddl, CreateTable) and ddl.form == "columns":
        for part in body_of(found, ddl):
            if element_kind(part) is ClauseKind.ADD_COLUMN:
                types |= _declared(TokenReader(part, ""))
    if isinstance(ddl, AlterTable):
        for clause in ddl.clauses:
            own = [token for token in found if clause.start <= token.start < clause.end]
            for part in _definitions(own, clause.kind):
                types |= _declared(part)
    return types


def _definitions(own: list[Token], kind: ClauseKind) -> Iterator[TokenReader]:
    """The column definitions in a clause, each from its name on."""
    if kind not in (ClauseKind.ADD_COLUMN, ClauseKind.CHANGE_COLUMN, ClauseKind.MODIFY_COLUMN):
        return
    parts = add_list_elements(own)
    for part in parts:
        if element_kind(part) is ClauseKind.ADD_COLUMN:
            yield TokenReader(part, "")
    if not parts:
        words = TokenReader(own, "")
        words.advance()
        words.take("COLUMN")
        words.exists()
        if kind is ClauseKind.CHANGE_COLUMN:
            words.advance()
        yield words


def _declared(words: TokenReader) -> dict[str, Token]:
    name = words.next
    words.advance()
    declared = words.next
    if name is None or declared is None or not name.is_name:
        return {}
    return {name.text.lower(): declared}


def _collations(found: tuple[Token, ...]) -> Iterator[Token]:
    for at, token in enumerate(found):
        if token.is_word("COLLATE"):
            words = TokenReader(found[at + 1 :], "")
            words.take_symbol("=")
            if words.next is not None and words.next.is_name and not words.next.is_word("DEFAULT"):
                yield words.next
