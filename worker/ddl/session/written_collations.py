"""Writes out the collations that a CREATE TABLE or ALTER TABLE leaves to its server. Pure, on tokens.

A character set without COLLATE means its default collation, and CHARACTER SET DEFAULT means that of a schema. Both
depend on the server, on its version, on the session and on the moment (MySQL Reference Manual, "Table
Character Set and Collation", "default_collation_for_utf8mb4"; MariaDB, "character_set_collations"). The target has
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shardmerge.proto.sql_lexer import Kind, Token, edited, tokens
from shardmerge.worker.core.mysql.create_table import charset_of
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.token_reader import TokenReader
from shardmerge.worker.ddl.sql.create_body import body_of
from shardmerge.worker.ddl.sql.dialect import declared_columns
from shardmerge.worker.ddl.sql.statement import AlterTable, CreateTable, Ddl

_Edit = tuple[int, int, str]
"""``text[start:end]`` becomes the third part."""


def with_present_names(text: str, sql_mode: int, named: Callable[[str], str]) -> str:
    """The statement in which character sets and collations have the names of ``named``."""
    found = tokens(text, sql_mode)
    edits: list[_Edit] = []
    for at, token in enumerate(found):
        before = _before(found, at)
        if before is None or token.kind not in (Kind.WORD, Kind.NAME, Kind.STRING):
            continue
        name = _text(token)
        if before.is_word("CHARSET", "SET", "COLLATE", "USING") and (now := named(name)) != name:
            edits.append((token.start, token.end, now))
        elif (
            token.kind is Kind.STRING
            and before.text.startswith("_")
            and (now := named(before.text[1:])) != before.text[1:]
        ):
            edits.append((before.start, before.end, f"_{now}"))
    return edited(text, edits)


def with_collations(
    text: str, ddl: Ddl, sql_mode: int, default_of: Callable[[str], str], schema_default: Callable[[str], str]
) -> str:
    """The statement with the collations that it means. ``ddl``: the parsed ``text``. ``default_of``: the default
    collation of a character set; ``schema_default``: the collation that CHARACTER SET DEFAULT means for a table of the
    schema."""
    if not isinstance(ddl, (AlterTable, CreateTable)):
        return text
    found = tokens(text, sql_mode)
    edits: list[_Edit] = []
    for _, words in declared_columns(text, ddl.table.schema, sql_mode):
        edits += _of_column(_at_top(words.rest()), default_of)
    edits += _of_table(list(_table_options(found, ddl)), default_of, lambda: schema_default(ddl.table.schema))
    return edited(text, edits)


def _table_options(found: Sequence[Token], ddl: AlterTable | CreateTable) -> Iterator[Token]:
    """The tokens of the table's own options, without those in parentheses."""
    if isinstance(ddl, AlterTable):
        for clause in ddl.clauses:
            if clause.kind in (ClauseKind.OPTION, ClauseKind.CONVERT_CHARSET):
                yield from _at_top([token for token in found if clause.start <= token.start < clause.end])
        return
    body, rest = body_of(found, ddl)
    if ddl.form == "columns" and body:
        for token in _at_top(rest):
            if token.is_word("PARTITION"):
                return
            yield token


def _at_top(found: Sequence[Token]) -> list[Token]:
    """The tokens outside of parentheses; of each pair of parentheses only the closing one."""
    top: list[Token] = []
    depth = 0
    for token in found:
        depth += token.is_symbol("(")
        depth -= token.is_symbol(")")
        if depth == 0:
            top.append(token)
    return top


_OF_TYPES = ("CHAR", "CHARACTER", "LONG", "NCHAR", "NVARCHAR", "VARCHAR", "VARCHARACTER", "VARYING")
_SHORT = {"ASCII": "latin1", "UNICODE": "ucs2"}
"""Attributes of a column that mean a character set (MySQL Reference Manual, "String Data Type Syntax")."""


def _of_column(found: Sequence[Token], default_of: Callable[[str], str]) -> Iterator[_Edit]:
    """``found``: a column's definition from its type on."""
    end = 1
    while end < len(found) and found[end].is_word(*_OF_TYPES) and not _names_charset(found, end):
        end += 1
    is_national = found[0].is_word("NATIONAL", "NCHAR", "NVARCHAR")
    end += end < len(found) and found[end].is_symbol(")")
    named = [place for at in range(end, len(found)) if (place := _charset_at(found, at))]
    attributes = [at for at in range(end, len(found)) if at not in named]
    if any(found[at].is_word("COLLATE") for at in attributes):
        yield from _default_collations(found, default_of)
        return
    # BINARY after the type or after the character set: the binary collation of that character set.
    if any(found[at].is_word("BINARY", "BYTE") for at in (end, end + 1, *(at + 1 for at in named)) if at in attributes):
        return
    for at in named:
        if not found[at].is_word("BINARY"):
            yield _after(found[at], default_of(_text(found[at])))
    if not named and end < len(found) and found[end].is_word(*_SHORT):
        yield _after(found[end], default_of(_SHORT[found[end].text.upper()]))
    elif not named and is_national:
        yield _after(found[end - 1], default_of("utf8mb3"))


def _default_collations(found: Sequence[Token], default_of: Callable[[str], str]) -> Iterator[_Edit]:
    """MariaDB's COLLATE DEFAULT after a character set."""
    charset = ""
    for at, token in enumerate(found):
        if place := _charset_at(found, at):
            charset = _text(found[place])
        if charset and token.is_word("DEFAULT") and (before := _before(found, at)) and before.is_word("COLLATE"):
            yield token.start, token.end, default_of(charset)


def _of_table(
    found: Sequence[Token], default_of: Callable[[str], str], schema_default: Callable[[], str]
) -> Iterator[_Edit]:
    named = [place for at in range(len(found)) if (place := _charset_at(found, at))]
    has_collation = any(token.is_word("COLLATE") for token in found)
    if has_collation:
        yield from _default_collations(found, default_of)
    for at in named:
        if found[at].is_word("DEFAULT"):
            collation = schema_default()
            written = charset_of(collation) if has_collation else f"{charset_of(collation)} COLLATE {collation}"
            yield found[at].start, found[at].end, written
        elif not has_collation and not found[at].is_word("BINARY"):
            yield _after(found[at], default_of(_text(found[at])))


def _names_charset(found: Sequence[Token], at: int) -> bool:
    return found[at].is_word("CHARSET") or (
        found[at].is_word("CHARACTER", "CHAR") and at + 1 < len(found) and found[at + 1].is_word("SET")
    )


def _charset_at(found: Sequence[Token], at: int) -> int:
    """Where the name of a character set is, if CHARACTER SET is at ``at``; 0: it is not."""
    if not _names_charset(found, at):
        return 0
    words = TokenReader(found[at:], "")
    words.advance()
    words.take("SET")
    words.take_symbol("=")
    return 0 if words.next is None else at + words.at


def _before(found: Sequence[Token], at: int) -> Token | None:
    """The token before ``at``, without an equals sign."""
    at -= 1 + (at > 0 and found[at - 1].is_symbol("="))
    return found[at] if at >= 0 else None


def _text(token: Token) -> str:
    return token.text[1:-1] if token.kind is Kind.STRING else token.text


def _after(token: Token, collation: str) -> _Edit:
    return token.end, token.end, f" COLLATE {collation}"


def charset_in(found: Sequence[Token]) -> str:
    """The last character set that these tokens name, as written; "" for none."""
    named = [place for at in range(len(found)) if (place := _charset_at(found, at))]
    return _text(found[named[-1]]) if named else ""


def collation_in(found: Sequence[Token]) -> str:
    """The last collation that these tokens name, as written; "" for none."""
    name = ""
    for at, token in enumerate(found):
        if token.is_word("COLLATE"):
            words = TokenReader(found[at + 1 :], "")
            words.take_symbol("=")
            name = name if words.next is None else _text(words.next)
    return name
