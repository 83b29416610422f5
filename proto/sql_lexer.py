"""Tokens of an SQL statement as MySQL and MariaDB read them.

Only what is needed to find names: no grammar. sqlglot's tokenizer is not used here because it treats ``/*! … */`` as a
comment (the server runs its content) and does not know sql_mode's ANSI_QUOTES and NO_BACKSLASH_ESCAPES. Rules: MySQL
Reference Manual, "Language Structure"; MariaDB, "Comment Syntax".
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import NamedTuple

ANSI_QUOTES = 1 << 2
NO_BACKSLASH_ESCAPES = 1 << 20
"""Bits of sql_mode (MySQL sql/system_variables.h, MariaDB sql/sql_class.h)."""


class Kind(enum.Enum):
    WORD = 1  # a keyword or a bare name
    NAME = 2  # a quoted name, without its quotes
    STRING = 3
    SYMBOL = 4  # one character of anything else
    BAD = 5  # a quote or comment without an end
    MARK = 6  # begins or ends a comment with code: only among pieces()


class Token(NamedTuple):
    """``text`` of a WORD is as written; ``start``, ``end``: characters in the statement."""

    kind: Kind
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Whether this is one of these keywords (upper case)."""
        return self.kind is Kind.WORD and self.text.upper() in words

    def is_symbol(self, symbol: str) -> bool:
        return self.kind is Kind.SYMBOL and self.text == symbol

    @property
    def is_name(self) -> bool:
        """Whether it can be a name (keywords that are not reserved can)."""
        return self.kind in (Kind.WORD, Kind.NAME)


def _rule(escapes: bool, ansi: bool) -> re.Pattern[str]:
    """Matches the next piece; the number of the group that matches is its kind: see _KINDS."""
    quoted = r"{0}(?:[^{0}\\]|{0}{0}|\\.)*{0}" if escapes else r"{0}(?:[^{0}]|{0}{0})*{0}"
    single, double = quoted.format("'"), quoted.format('"')
    names = r"`(?:[^`]|``)*`" + r'|"(?:[^"]|"")*"' * ansi
    return re.compile(
        rf"\s*+(?:(\#[^\n]*|--(?=[\s\x00-\x1f]|$)[^\n]*)|([0-9A-Za-z_$\u0080-\U0010ffff]+)|({names})|({single}|{double})"
        # Code for the server, whatever version it names: stopping once too often is safe.
        r"|(/\*M?!\d*)|(/\*.*?\*/)|([`'\"].*|/\*.*)|(\*/|\S))",
        re.DOTALL,
    )


_RULES = {(escapes, ansi): _rule(escapes, ansi) for escapes in (True, False) for ansi in (True, False)}
_KINDS = (None, None, Kind.WORD, Kind.NAME, Kind.STRING, Kind.MARK, None, Kind.BAD, Kind.SYMBOL)


def tokens(text: str, sql_mode: int = 0) -> tuple[Token, ...]:
    """All tokens; what is in ``/*! … */`` counts, other comments do not. Never fails: see Kind.BAD."""
    found = pieces(text, sql_mode)
    return tuple(piece for piece in found if piece.kind is not Kind.MARK) if "/*" in text else found


def pieces(text: str, sql_mode: int = 0) -> tuple[Token, ...]:
    """The tokens and, each a Kind.MARK, where comments with code begin and end."""
    found: list[Token] = []
    match = _RULES[not sql_mode & NO_BACKSLASH_ESCAPES, bool(sql_mode & ANSI_QUOTES)].match
    at = 0
    depth = 0  # open code comments
    while piece := match(text, at):
        group = piece.lastindex or 0
        kind = _KINDS[group]
        start, at = piece.span(group)
        if kind is None:
            continue
        written = piece[group]
        if kind is Kind.NAME:
            quote = written[0]
            written = written[1:-1].replace(quote * 2, quote)
        elif kind is Kind.MARK:
            depth += 1
        elif written == "*/" and depth:
            kind, depth = Kind.MARK, depth - 1
        elif written == "*/":
            written, at = "*", start + 1
        found.append(Token(kind, written, start, at))
    return tuple(found)


def quote_name(name: str) -> str:
    """An identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"


def edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """``text`` with the text of each edit from its first to its second position. Edits do not overlap."""
    parts: list[str] = []
    at = 0
    for start, end, part in sorted(edits):
        parts += (text[at:start], part)
        at = end
    return "".join((*parts, text[at:]))
