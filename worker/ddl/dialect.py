"""What a statement says to its own server, and has to be told to one of the other kind otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from proto.lexer import Token, tokens
from worker.ddl.alter import element_kind, elements
from worker.ddl.clause import ClauseKind
from worker.ddl.statement import AlterTable, CreateTable, parse_ddl
from worker.ddl.tabletext import body_of
from worker.ddl.words import Words
from worker.relay.model import Statement
from worker.table import Table, ValueKind

StandIns = Callable[[frozenset[str]], Mapping[str, str | None]]
"""What stands in for those of some collations that the target lacks; None: nothing can."""

_MARIADB_JSON = "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class Dialect:
    """Whether the servers are MariaDBs."""

    source: bool
    target: bool
    stand_ins: StandIns

    def spelt(self, text: str, sql_mode: int) -> str:
        """The statement as the target knows it: collations that it lacks replaced, as in new tables; MariaDB's JSON,
        which is text in its row events, as text."""
        found = tokens(text, sql_mode)
        replaced: list[tuple[Token, str]] = []
        names = {token.text.lower(): token for token in _collations(found)}
        stands: Mapping[str, str | None] = self.stand_ins(frozenset(names)) if names else {}
        for token in _collations(found):
            stand = stands.get(token.text.lower())
            if stand is not None:
                replaced.append((token, stand))
        if self.source and not self.target:
            types = declared_types(text, "?", sql_mode).values()
            replaced += [(token, _MARIADB_JSON) for token in types if token.is_word("JSON")]
        for token, with_ in sorted(replaced, key=lambda each: each[0].start, reverse=True):
            text = text[: token.start] + with_ + text[token.end :]
        return text

    def as_declared(self, table: Table, statement: Statement) -> Table:
        """``table``, as the target describes it, with the columns that are JSON at the source only."""
        if self.source or not self.target:
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
    """The columns that the statement declares, by their names in lower case: the first word of each one's type."""
    ddl = parse_ddl(text, schema, sql_mode)
    found = tokens(text, sql_mode)
    types: dict[str, Token] = {}
    if isinstance(ddl, CreateTable) and ddl.form == "columns":
        for part in body_of(found, ddl):
            if element_kind(part) is ClauseKind.ADD_COLUMN:
                types |= _declared(Words(part, ""))
    if isinstance(ddl, AlterTable):
        for clause in ddl.clauses:
            own = [token for token in found if clause.start <= token.start < clause.end]
            for part in _definitions(own, clause.kind):
                types |= _declared(part)
    return types


def _definitions(own: list[Token], kind: ClauseKind) -> Iterator[Words]:
    """Of the columns in a clause, each from its name on."""
    if kind not in (ClauseKind.ADD_COLUMN, ClauseKind.CHANGE_COLUMN, ClauseKind.MODIFY_COLUMN):
        return
    parts = elements(own)
    for part in parts:
        if element_kind(part) is ClauseKind.ADD_COLUMN:
            yield Words(part, "")
    if not parts:
        words = Words(own, "")
        words.advance()
        words.take("COLUMN")
        words.exists()
        if kind is ClauseKind.CHANGE_COLUMN:
            words.advance()
        yield words


def _declared(words: Words) -> dict[str, Token]:
    name = words.next
    words.advance()
    declared = words.next
    if name is None or declared is None or not name.is_name:
        return {}
    return {name.text.lower(): declared}


def _collations(found: tuple[Token, ...]) -> Iterator[Token]:
    for at, token in enumerate(found):
        if token.is_word("COLLATE"):
            words = Words(found[at + 1 :], "")
            words.take_symbol("=")
            if words.next is not None and words.next.is_name and not words.next.is_word("DEFAULT"):
                yield words.next
