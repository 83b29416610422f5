"""Tokens of an SQL statement as MySQL and MariaDB read them.

Only what is needed to find names: no grammar. sqlglot's tokenizer is not used here because it treats ``/*! … */`` as a
comment (the server runs its content) and does not know sql_mode's ANSI_QUOTES and NO_BACKSLASH_ESCAPES. Rules: MySQL
Reference Manual, "Language Structure"; MariaDB, "Comment Syntax".
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Token:
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


_SKIP = re.compile(r"\s+|#[^\n]*|--(?=[\s\x00-\x1f]|$)[^\n]*")
# Code for the server, whatever version it names: stopping once too often is safe.
_CODE_COMMENT = re.compile(r"/\*M?!\d*")
_WORD = re.compile(r"[0-9A-Za-z_$\u0080-\U0010ffff]+")
_BACKTICK = re.compile(r"`((?:[^`]|``)*)`")
_STRINGS = {
    ("'", True): re.compile(r"'(?:[^'\\]|''|\\.)*'", re.DOTALL),
    ("'", False): re.compile(r"'(?:[^']|'')*'"),
    ('"', True): re.compile(r'"(?:[^"\\]|""|\\.)*"', re.DOTALL),
    ('"', False): re.compile(r'"(?:[^"]|"")*"'),
}
_ANSI_NAME = _STRINGS['"', False]


def tokens(text: str, sql_mode: int = 0) -> tuple[Token, ...]:
    """All tokens; what is in ``/*! … */`` counts, other comments do not. Never fails: see Kind.BAD."""
    return tuple(piece for piece in pieces(text, sql_mode) if piece.kind is not Kind.MARK)


def pieces(text: str, sql_mode: int = 0) -> tuple[Token, ...]:
    """The tokens and, each a Kind.MARK, where comments with code begin and end."""
    found: list[Token] = []
    escapes = not sql_mode & NO_BACKSLASH_ESCAPES
    at = 0
    depth = 0  # open code comments
    while at < len(text):
        if skip := _SKIP.match(text, at):
            at = skip.end()
            continue
        if code := _CODE_COMMENT.match(text, at):
            depth += 1
            token = Token(Kind.MARK, code.group(), at, code.end())
        elif depth and text.startswith("*/", at):
            depth -= 1
            token = Token(Kind.MARK, "*/", at, at + 2)
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2)
            if end >= 0:
                at = end + 2
                continue
            token = Token(Kind.BAD, text[at:], at, len(text))
        else:
            token = _token(text, at, escapes, ansi=bool(sql_mode & ANSI_QUOTES))
        found.append(token)
        at = token.end
    return tuple(found)


def _token(text: str, at: int, escapes: bool, *, ansi: bool) -> Token:
    character = text[at]
    if character == "`":
        match = _BACKTICK.match(text, at)
        if match:
            return Token(Kind.NAME, match.group(1).replace("``", "`"), at, match.end())
    elif character == '"' and ansi:
        match = _ANSI_NAME.match(text, at)
        if match:
            return Token(Kind.NAME, match.group()[1:-1].replace('""', '"'), at, match.end())
    elif character in "'\"":
        match = _STRINGS[character, escapes].match(text, at)
        if match:
            return Token(Kind.STRING, match.group(), at, match.end())
    else:
        match = _WORD.match(text, at)
        if match:
            return Token(Kind.WORD, match.group(), at, match.end())
        return Token(Kind.SYMBOL, character, at, at + 1)
    return Token(Kind.BAD, text[at:], at, len(text))
