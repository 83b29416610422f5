"""Rewrites DDL statements on tokens: for other tables, without some clauses, or in a normal form. Pure.

Statements are not printed from a tree: text that is not removed or replaced stays as the user wrote it. Backticks quote
names under every sql_mode (MySQL Reference Manual, "Schema Object Names").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence

from shardmerge.proto.sql_lexer import Kind, Token, edited, pieces, quote_name, tokens
from shardmerge.worker.core.sql.clause import OF_COLUMNS, Clause, ClauseKind
from shardmerge.worker.core.sql.table_text import element_kind
from shardmerge.worker.core.sql.token_reader import TokenReader, keywords
from shardmerge.worker.ddl.sql.alter_parser import add_list_elements
from shardmerge.worker.ddl.sql.statement import (
    AlterTable,
    CreateIndex,
    Ddl,
    DropIndex,
    DropTables,
    RenameTables,
    TruncateTable,
    names,
)


def rename_tables(text: str, ddl: Ddl, place: Callable[[str, str], tuple[str, str] | None]) -> str:
    """The statement with the names that ``place`` returns for each (schema, table); None: that name is kept."""
    placed = ((name.start, name.end, place(name.schema, name.table)) for name in names(ddl))
    return edited(text, ((start, end, ".".join(map(quote_name, to))) for start, end, to in placed if to is not None))


def without_clauses(text: str, ddl: AlterTable, unwanted: Callable[[Clause], bool]) -> str:
    """The ALTER TABLE without the unwanted clauses; "" when only options how to run it remain."""
    stay = [not unwanted(clause) for clause in ddl.clauses]
    if _is_empty(ddl, stay):
        return ""
    return _cut(text, ddl, _gone(tokens(text, ddl.sql_mode), ddl, stay))


def without_references(text: str, ddl: AlterTable) -> str:
    """The ALTER TABLE without foreign keys: clauses, parts of ADD (…), REFERENCES of columns; "" when nothing remains.

    DROP CONSTRAINT stays: its kind is not known here.
    """
    found = tokens(text, ddl.sql_mode)
    stay: list[bool] = []
    inner: set[int] = set()
    for clause in ddl.clauses:
        own = _inside(found, clause)
        parts = add_list_elements(own)
        parts_stay = [element_kind(part) is not ClauseKind.ADD_FOREIGN_KEY for part in parts]
        stay.append(clause.kind not in _FOREIGN_KEYS and (not parts or any(parts_stay)))
        inner |= _unlisted(own, [(part[0].start, part[-1].end) for part in parts], parts_stay)
        if clause.kind in _DEFINE_COLUMNS:
            inner.update(token.start for token in _references(own))
    if _is_empty(ddl, stay):
        return ""
    return _cut(text, ddl, _gone(found, ddl, stay) | inner)


_FOREIGN_KEYS = frozenset({ClauseKind.ADD_FOREIGN_KEY, ClauseKind.DROP_FOREIGN_KEY})
_DEFINE_COLUMNS = frozenset({ClauseKind.ADD_COLUMN, ClauseKind.CHANGE_COLUMN, ClauseKind.MODIFY_COLUMN})


def _is_empty(ddl: AlterTable, stay: Sequence[bool]) -> bool:
    return all(clause.kind is ClauseKind.HOW for clause, stays in zip(ddl.clauses, stay, strict=True) if stays)


def _inside(found: Sequence[Token], clause: Clause) -> list[Token]:
    return [token for token in found if clause.start <= token.start < clause.end]


def _gone(found: Sequence[Token], ddl: AlterTable, stay: Sequence[bool]) -> set[int]:
    """The start positions of the tokens of removed clauses and of their commas."""
    gone: set[int] = set()
    listed: list[tuple[int, int]] = []
    listed_stay: list[bool] = []
    for clause, stays in zip(ddl.clauses, stay, strict=True):
        own = _inside(found, clause)
        if not own[0].is_word("ONLINE", "WAIT", "NOWAIT"):
            listed.append((clause.start, clause.end))
            listed_stay.append(stays)
        elif not stays:
            gone.update(token.start for token in own)
    return gone | _unlisted(found, listed, listed_stay)


def _unlisted(found: Sequence[Token], items: Sequence[tuple[int, int]], stay: Sequence[bool]) -> set[int]:
    """The start positions of the tokens of items that are removed from a list, and of commas that become
    superfluous."""
    gone: set[int] = set()
    one_stays = False
    after = items[0][0] if items else 0
    for (start, end), stays in zip(items, stay, strict=True):
        for token in found:
            if start <= token.start < end:
                if not stays:
                    gone.add(token.start)
            elif after <= token.start < start and not (stays and one_stays):
                gone.add(token.start)
        one_stays = one_stays or stays
        after = end
    return gone


def _references(found: Sequence[Token]) -> Iterator[Token]:
    """The tokens of [CONSTRAINT [name]] REFERENCES t [(c, …)] [MATCH …] [ON …] in column definitions."""
    for at, token in enumerate(found):
        if not token.is_word("REFERENCES"):
            continue
        first = at
        if at >= 2 and found[at - 2].is_word("CONSTRAINT") and found[at - 1].is_name:
            first = at - 2
        elif at and found[at - 1].is_word("CONSTRAINT"):
            first = at - 1
        words = TokenReader(found[at + 1 :], "?")
        words.table()
        words.group()
        if words.take("MATCH"):
            words.advance()
        while any(words.take_all(*action) for action in _ACTIONS):
            pass
        yield from found[first : at + 1 + words.at]


_ACTIONS = tuple(
    ("ON", event, *action.split())
    for event in ("DELETE", "UPDATE")
    for action in ("RESTRICT", "CASCADE", "SET NULL", "SET DEFAULT", "NO ACTION")
)


def _cut(text: str, ddl: AlterTable, gone: Collection[int]) -> str:
    """The text without the tokens that start at ``gone``. Begin and end marks of comments with code are kept."""
    parts: list[str] = []
    at = 0
    marks: list[str] = []  # within the removed text
    maybe: list[str] = []  # after it, so far
    start, end = -1, -1  # the text that is being removed, if any
    for piece in (*pieces(text, ddl.sql_mode), Token(Kind.SYMBOL, "", len(text), len(text))):
        if piece.kind is Kind.MARK:
            maybe.append(piece.text)
        elif piece.start in gone:
            if start < 0:
                start = piece.start
            else:
                marks += maybe
            maybe = []
            end = piece.end
        else:
            if start >= 0:
                parts += (text[at:start], *(f" {mark} " for mark in marks))
                at = end
                left = "".join(parts)[-1:]
                if left.isspace() or left == "(":
                    at = end + len(text[end:]) - len(text[end:].lstrip())
                elif not text[at : at + 1].isspace() and text[at : at + 1] not in (",", ")"):
                    parts.append(" ")
                start = -1
            marks, maybe = [], []
    return "".join((*parts, text[at:])).rstrip()


def normal_form(text: str, sql_mode: int | None, ddl: Ddl) -> str:
    """One text for all spellings of a statement, independent of its table: equal texts are the same DDL.

    Names and keywords are in lower case, the statement's own tables (of RENAME the old ones) are ``?``. Comments,
    IF [NOT] EXISTS, optional COLUMN, and options how to run it are left out. CREATE INDEX and DROP INDEX become the
    equivalent ALTER TABLE, and KEY becomes INDEX.
    """
    if isinstance(ddl, TruncateTable):
        return "truncate table ?"
    return " ".join(_as_alter([part for _, part in _normal_parts(text, sql_mode, ddl)], ddl))


def unordered_form(text: str, sql_mode: int | None, ddl: Ddl) -> str:
    """As :func:`normal_form`, but one text for all orders of an ALTER TABLE's clauses if only the order of columns
    depends on it. That does not count: rows and statements use names."""
    if not isinstance(ddl, AlterTable) or not _is_in_any_order(ddl):
        return normal_form(text, sql_mode, ddl)
    head: list[str] = []
    clauses: dict[int, list[str]] = {}
    for start, part in _normal_parts(text, sql_mode, ddl):
        clause = next((each.start for each in ddl.clauses if each.start <= start < each.end), None)
        if clause is not None:
            clauses.setdefault(clause, []).append(part)
        elif not clauses:
            head.append(part)
    if any(_NAMED_BY_SERVER.intersection(each) for each in clauses.values()):
        return normal_form(text, sql_mode, ddl)
    return " ".join((*head, " , ".join(sorted(map(" ".join, clauses.values())))))


_NAMED_BY_SERVER = frozenset({"check", "index", "key", "primary", "references", "unique"})
"""Words of a column's definition with which the server numbers names in the order of the clauses. Names in quotes keep
their quotes."""

_OF_NAMES = OF_COLUMNS | {ClauseKind.ADD_COLUMN}
"""Clauses that change only what they name."""


def _is_in_any_order(ddl: AlterTable) -> bool:
    """Whether no clause concerns what another one concerns."""
    concerned: list[str] = []
    for clause in ddl.clauses:
        if clause.kind is ClauseKind.HOW:
            continue
        if clause.kind not in _OF_NAMES:
            return False
        concerned += {name.lower() for name in (*clause.columns, clause.new_name) if name}
    return len(concerned) == len(set(concerned))


def _normal_parts(text: str, sql_mode: int | None, ddl: Ddl) -> Iterator[tuple[int, str]]:
    """The normal form's parts, each with its position in ``text``."""
    found = list(tokens(text, sql_mode or 0))
    while found and found[-1].is_symbol(";"):
        found.pop()
    own = _own(ddl)
    silent, alike = _index_words(found, ddl)
    gone = _optional(found, ddl) | silent
    for token in found:
        if token.start in gone:
            continue
        within = [(start, end) for start, end in own if start <= token.start < end]
        if not within:
            yield token.start, "index" if token.start in alike else _spelt(token)
        elif token.start == within[0][0]:
            yield token.start, "?"


_KINDS = ("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR")
_OF_INDEXES = frozenset(
    {
        ClauseKind.ADD_COLUMN,  # ADD (…) may hold indexes too
        ClauseKind.ADD_INDEX,
        ClauseKind.ADD_UNIQUE,
        ClauseKind.DROP_INDEX,
        ClauseKind.RENAME_INDEX,
        ClauseKind.ALTER_INDEX,
    }
)


def _index_words(found: Sequence[Token], ddl: Ddl) -> tuple[set[int], set[int]]:
    """The positions of INDEX or KEY where it is optional (after UNIQUE and the like), and where both are equivalent."""
    silent: set[int] = set()
    alike: set[int] = set()
    for clause in ddl.clauses if isinstance(ddl, AlterTable) else ():
        own = _inside(found, clause) if clause.kind in _OF_INDEXES else []
        for part in add_list_elements(own) or [own[1:]]:
            words = TokenReader(part, "")
            if words.take("CONSTRAINT") and words.word() not in _KINDS:
                words.advance()
            is_alike = words.word() in ("INDEX", "KEY")
            if is_alike or (words.take(*_KINDS) and words.word() in ("INDEX", "KEY")):
                (alike if is_alike else silent).add(part[words.at].start)
    return silent, alike


def _as_alter(parts: list[str], ddl: Ddl) -> list[str]:
    """CREATE [kind] INDEX name … ON ? … and DROP INDEX name ON ? … as ALTER TABLE; other statements unchanged."""
    if not isinstance(ddl, CreateIndex | DropIndex):
        return parts
    verb, *kind = parts[: parts.index("index")]
    if kind and (verb == "drop" or kind[0].upper() not in _KINDS or len(kind) > 1):
        return parts  # OR REPLACE and the like
    on = parts.index("on")
    name, rest = parts[parts.index("index") + 1 : on], parts[on + 2 :]
    how = ["drop", "index"] if verb == "drop" else ["add", *(kind or ["index"])]
    return ["alter", "table", "?", *how, *name, *rest]


def _own(ddl: Ddl) -> list[tuple[int, int]]:
    """The positions of the statement's own table names, including references to itself."""
    match ddl:
        case DropTables():
            own = ddl.tables
        case RenameTables():
            own = tuple(old for old, _ in ddl.pairs)
        case _:
            found = names(ddl)
            own = tuple(name for name in found if name.name == found[0].name)
    return [(name.start, name.end) for name in own]


_BEFORE_COLUMN = ("ADD", "DROP", "ALTER", "CHANGE", "MODIFY")


def _optional(found: Sequence[Token], ddl: Ddl) -> set[int]:
    gone: set[int] = set()
    for at in range(len(found)):
        words = TokenReader(found[at:], "")
        if words.word() == "IF" and (words.take_all("IF", "EXISTS") or words.take_all("IF", "NOT", "EXISTS")):
            gone.update(token.start for token in found[at : at + words.at])
    if not isinstance(ddl, AlterTable):
        return gone | set(_how(found, ddl))
    for clause in ddl.clauses:
        verb, *more = _inside(found, clause)
        if verb.is_word(*_BEFORE_COLUMN) and more and more[0].is_word("COLUMN"):
            gone.add(more[0].start)
    return gone | _gone(found, ddl, [clause.kind is not ClauseKind.HOW for clause in ddl.clauses])


def _how(found: Sequence[Token], ddl: Ddl) -> Iterator[int]:
    """ALGORITHM, LOCK and WAIT of statements that have no clauses."""
    if not isinstance(ddl, CreateIndex | DropIndex | DropTables | RenameTables):
        return
    tables = names(ddl)
    depth = taken = 0
    for at, token in enumerate(found):
        depth += token.is_symbol("(") - token.is_symbol(")")
        is_named = token.start < tables[0].end or any(name.start <= token.start < name.end for name in tables)
        if depth or is_named or at < taken:
            continue
        words = TokenReader(found[at:], "")
        if words.take("ALGORITHM", "LOCK"):
            words.take_symbol("=")
            words.advance()
        elif not words.wait():
            continue
        taken = at + words.at
        yield from (token.start for token in found[at:taken])


_BARE = re.compile(r"(?!\d+$)[0-9A-Za-z_$\u0080-\U0010ffff]+")
_KEEP_QUOTES = keywords(
    "ALTER CHECK COLUMN CONSTRAINT DEFAULT DROP EXISTS FALSE FOREIGN FULLTEXT IF INDEX KEY LIKE NOT NULL ON ORDER "
    "PARTITION PRIMARY REFERENCES RENAME SELECT SET SPATIAL TABLE TO TRUE UNIQUE VALUES WITH"
)
"""Reserved by both servers: only quotes distinguish names from these keywords."""


def _spelt(token: Token) -> str:
    if token.kind is Kind.WORD:
        return token.text.lower()
    if token.kind is not Kind.NAME:
        return token.text
    bare = _BARE.fullmatch(token.text) and token.text.upper() not in _KEEP_QUOTES
    return token.text.lower() if bare else quote_name(token.text.lower())
