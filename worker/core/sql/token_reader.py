"""Reads a statement's tokens from left to right: the parts that all statements with table names share.

MySQL Reference Manual, "SQL Statements", "Schema Object Names"; MariaDB, "SQL Statements", "Identifier Qualifiers".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from shardmerge.proto.sql_lexer import Kind, Token

TableName = tuple[str, str]
"""(schema, table) as written, the default schema filled in."""


class NotUnderstoodError(Exception):
    """The tokens do not match the syntax that this package knows."""


@dataclass(frozen=True, slots=True)
class NameAt:
    """A table's name without its quotes, the default schema filled in; ``[schema.]table`` is ``text[start:end]``."""

    schema: str
    table: str
    start: int
    end: int

    @property
    def name(self) -> TableName:
        return self.schema, self.table


def keywords(words: str) -> frozenset[str]:
    return frozenset(words.split())


OPTIONS_OF_SCHEMA = keywords("CHARACTER CHARSET COLLATE COMMENT DEFAULT ENCRYPTION READ UPGRADE")


class TokenReader:
    """The tokens of a statement, or of a part of one."""

    def __init__(self, found: Sequence[Token], default_schema: str) -> None:
        self._tokens = found
        self._at = 0
        self._schema = default_schema

    @property
    def default_schema(self) -> str:
        return self._schema

    @property
    def at(self) -> int:
        """How many tokens are read."""
        return self._at

    @property
    def next(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    @property
    def at_end(self) -> bool:
        token = self.next
        return token is None or token.is_symbol(";")

    def rest(self) -> Sequence[Token]:
        """The tokens that are not read yet."""
        return self._tokens[self._at :]

    def word(self) -> str:
        """The next token if it is a keyword, in upper case; else ""."""
        token = self.next
        return token.text.upper() if token is not None and token.kind is Kind.WORD else ""

    def advance(self) -> None:
        self._at += 1

    def take(self, *words: str) -> bool:
        """Skip the next token if it is one of these keywords."""
        if self.word() not in words:
            return False
        self._at += 1
        return True

    def take_all(self, *words: str) -> bool:
        """Skip the next tokens if they are exactly these keywords in this order."""
        following = self._tokens[self._at : self._at + len(words)]
        if len(following) < len(words) or not all(map(Token.is_word, following, words)):
            return False
        self._at += len(words)
        return True

    def take_symbol(self, symbol: str) -> bool:
        token = self.next
        if token is None or not token.is_symbol(symbol):
            return False
        self._at += 1
        return True

    def skip(self, words: frozenset[str]) -> None:
        while self.word() in words:
            self._at += 1

    def exists(self) -> bool:
        """Skip IF [NOT] EXISTS."""
        if not self.take("IF"):
            return False
        self.take("NOT")
        if not self.take("EXISTS"):
            raise NotUnderstoodError
        return True

    def wait(self) -> Sequence[Token]:
        """Skip MariaDB's WAIT n or NOWAIT; returns its tokens."""
        first = self._at
        if self.take("WAIT"):
            self.advance()
        else:
            self.take("NOWAIT")
        return self._tokens[first : self._at]

    def name(self) -> str:
        token = self.next
        if token is None or not token.is_name:
            raise NotUnderstoodError
        self._at += 1
        return token.text

    def quoted_name(self) -> str:
        """Read a name in quotes; "" if none is next."""
        token = self.next
        return self.name() if token is not None and token.kind is Kind.NAME else ""

    def table(self) -> NameAt:
        """[schema .] table, or . table"""
        first = self._at
        schema = self._schema
        if self.take_symbol("."):
            table = self.name()
        else:
            table = self.name()
            if self.take_symbol("."):
                schema, table = table, self.name()
        if not schema:
            raise NotUnderstoodError
        return NameAt(schema, table, self._tokens[first].start, self._tokens[self._at - 1].end)

    def tables(self) -> tuple[NameAt, ...]:
        found = [self.table()]
        while self.take_symbol(","):
            found.append(self.table())
        return tuple(found)

    def renames(self) -> tuple[tuple[NameAt, NameAt], ...]:
        """t [WAIT n] TO u, …"""
        found: list[tuple[NameAt, NameAt]] = []
        while True:
            old = self.table()
            self.wait()
            if not self.take("TO"):
                raise NotUnderstoodError
            found.append((old, self.table()))
            if not self.take_symbol(","):
                return tuple(found)

    def schemas(self) -> tuple[str, ...]:
        """A schema's name. ALTER may leave it out: a word that could be an option counts as both."""
        if self.word() not in OPTIONS_OF_SCHEMA:
            return (self.name(),)
        return (self.name(), self._schema) if self._schema else (self.name(),)

    def alias(self, follows: frozenset[str]) -> None:
        """Skip [AS] alias, unless one of ``follows`` is next."""
        if self.take("AS"):
            self.name()
            return
        token = self.next
        if token is not None and token.is_name and self.word() not in follows:
            self._at += 1

    def seek(self, *words: str) -> str:
        """Skip to after the next of these keywords outside of parentheses; returns which one, "" for none."""
        depth = 0
        while (token := self.next) is not None:
            self._at += 1
            if token.is_symbol("("):
                depth += 1
            elif token.is_symbol(")"):
                depth -= 1
            elif depth == 0 and token.is_word(*words):
                return token.text.upper()
        return ""

    def group(self) -> bool:
        """Skip ( … )."""
        if not self.take_symbol("("):
            return False
        depth = 1
        while depth:
            token = self.next
            if token is None:
                raise NotUnderstoodError
            self._at += 1
            depth += token.is_symbol("(") - token.is_symbol(")")
        return True


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """The object of CREATE, ALTER or DROP: its keyword ("" if unknown), and the keywords before it ("?": another
    token)."""

    word: str
    before: MappingProxyType[str, Token]


NO_TABLES = keywords(
    "AGGREGATE EVENT FUNCTION LIBRARY LOGFILE PACKAGE PREPARE PROCEDURE REFERENCE RESOURCE ROLE ROUTINE "
    "SEQUENCE SERVER TABLESPACE TRIGGER USER VIEW INSTANCE"
)
"""Objects of CREATE, ALTER and DROP that hold no rows of a base table. (MariaDB's sequences are no base tables.)"""

_THINGS = NO_TABLES | {"TABLE", "TABLES", "DATABASE", "SCHEMA", "INDEX"}


def read_object_kind(words: TokenReader) -> ObjectKind:
    """Read the object's keyword after CREATE, ALTER or DROP."""
    before: dict[str, Token] = {}
    while (word := words.word()) not in _THINGS:
        token = words.next
        if token is None:
            return ObjectKind("", MappingProxyType(before))
        before[word or "?"] = token
        if word == "DEFINER":
            _definer(words)
        else:  # OR REPLACE, UNIQUE, ONLINE, IGNORE, ALGORITHM = …, SQL SECURITY …, UNDO, SPATIAL
            words.advance()
    words.advance()
    return ObjectKind(word, MappingProxyType(before))


def _definer(words: TokenReader) -> None:
    """DEFINER = user [@ host], whose names may look like keywords."""
    words.advance()
    if words.take_symbol("="):
        words.advance()
        if words.take_symbol("@"):
            words.advance()


def referenced_tables(found: Sequence[Token], schema: str) -> Iterator[NameAt]:
    """The tables after REFERENCES. Without a schema they are in ``schema``, that of the referring table."""
    for at, token in enumerate(found, 1):
        if token.is_word("REFERENCES"):
            yield TokenReader(found[at:], schema).table()


def default_value(found: Sequence[Token], at: int) -> Sequence[Token]:
    """The value after the word DEFAULT at ``at``."""
    words = TokenReader(found[at + 1 :], "")
    if words.take("NEXT", "PREVIOUS") and words.take_all("VALUE", "FOR"):
        words.advance()  # the sequence's name
    elif not words.group():
        words.advance()  # a function's name, or a literal
    while words.take_symbol("."):
        words.advance()
    words.group()
    return found[at + 1 : at + 1 + words.at]


def split_at_commas(
    found: Sequence[Token], keep: Callable[[Sequence[Token]], bool] = lambda _: False
) -> Iterator[Sequence[Token]]:
    """Split at commas outside of parentheses, except after a part for which ``keep`` is true."""
    depth = first = 0
    for at, token in enumerate(found):
        depth += token.is_symbol("(") - token.is_symbol(")")
        if depth == 0 and token.is_symbol(",") and not keep(found[first:at]):
            yield found[first:at]
            first = at + 1
    yield found[first:]


def find_words(found: Sequence[Token], *words: str) -> int | None:
    """Where these keywords follow each other outside of parentheses; None: nowhere."""
    depth = 0
    for at, token in enumerate(found):
        if token.kind is Kind.SYMBOL:
            depth += (token.text == "(") - (token.text == ")")
        elif not depth and token.is_word(words[0]) and TokenReader(found[at : at + len(words)], "").take_all(*words):
            return at
    return None
