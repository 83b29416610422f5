"""Checks the order of words in a transform and the names of its columns, as far as possible without Spark. Pure.

No grammar: Spark checks the whole. Every finding is an error in Spark for any table, except for columns that are named
like words of SQL and have no backticks. Source: Spark SQL Reference, "Operators", "SELECT".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardmerge.proto.config.rules.expression_order import wrong_order
from shardmerge.proto.sql_lexer import Kind, Token

_OTHER = "\N{HORIZONTAL ELLIPSIS}"
"""A symbol with unknown neighbours."""
_ALSO_FUNCTIONS = frozenset({"LIKE", "RLIKE", "REGEXP", "IN", "BETWEEN", "DIV"})
"""Operators that Spark also accepts as functions: ``like(a, 'b%')``."""
_WITH_TYPES = frozenset({"ARRAY", "MAP", "STRUCT"})
_LONG_OPERATORS = (">>>", "==", "!<", "!>")
"""Those that MySQL lacks."""
_NOT_COLUMNS = frozenset({"TRUE", "FALSE", "NULL", "USER"})
"""Words that can be an expression of their own without being a column's name."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a SELECT list. ``name`` of its column, ``source``: the column that it passes on; "" if only Spark
    knows."""

    body: tuple[Token, ...]
    name: str = ""
    source: str = ""


def order_of(tokens: Sequence[Token], known: Collection[str]) -> str:
    """See :func:`wrong_order`."""
    typed = any(token.is_word(*_WITH_TYPES) and following.is_symbol("<") for token, following in pairwise(tokens))
    return "" if typed else _statement(tokens, known) or wrong_order(tokens, known)


def _statement(tokens: Sequence[Token], known: Collection[str]) -> str:
    depth = 0
    for before, token in pairwise(tokens):
        depth += before.is_symbol("(") - before.is_symbol(")")
        if token.is_word("FROM") and not depth and _ends_a_value(before, known):  # not that of EXTRACT or TRIM
            return f"{token.text} is no part of an expression over one row"
    return ""


def dangling(tokens: Sequence[Token]) -> str:
    """Why an AS lacks its expression or its name; "" if none does. Spark would read such an AS as a name."""
    if tokens[0].is_word("AS"):
        return "nothing precedes AS"
    return "nothing follows AS" if tokens[-1].is_word("AS") else ""


def item_of(tokens: Sequence[Token], known: Collection[str]) -> Item:
    """``tokens``: of one item that is not ``*``."""
    body, name = list(tokens), ""
    last = body[-1]
    if len(body) > 2 and body[-2].is_word("AS") and last.is_name:
        body, name = body[:-2], last.text
    elif len(body) > 1 and _is_alias(body[-2], last, known):
        body, name = body[:-1], last.text
    if len(body) > 1 or not _is_column(body[0]):
        return Item(tuple(body), name)
    return Item(tuple(body), name or body[0].text, body[0].text)


def clash_of(items: Sequence[Item]) -> str:
    """The conflict between two items, for the user; "" for none."""
    names: set[str] = set()
    sources: set[str] = set()
    for item in items:
        if item.name and item.name.lower() in names:
            return f"two columns are named {item.name}"
        if item.source and item.source.lower() in sources:
            return f"column {item.source} is passed on twice"
        names.add(item.name.lower())
        sources.add(item.source.lower())
    return ""


def _is_column(token: Token) -> bool:
    if token.kind is Kind.WORD:
        return not token.text[0].isdigit() and token.text.upper() not in _NOT_COLUMNS
    return token.kind is Kind.NAME


def _is_alias(before: Token, last: Token, known: Collection[str]) -> bool:
    """Whether the last word of an item is its column's name, without AS."""
    if not last.is_name or (last.kind is Kind.WORD and (last.text.upper() in known or last.text[0].isdigit())):
        return False
    return _ends_a_value(before, known)


def _ends_a_value(token: Token, known: Collection[str]) -> bool:
    if token.kind is Kind.WORD:
        return token.text.upper() not in known
    return token.kind is not Kind.SYMBOL or token.text in (")", "]")


def tokens_of(words: Sequence[re.Match[str]]) -> tuple[Token, ...]:
    """The words of a transform, without spaces, for :func:`wrong_order`; what only Spark knows gets a form that is
    allowed anywhere."""
    return tuple(_tokens(words))


def _tokens(words: Sequence[re.Match[str]]) -> Iterator[Token]:
    at = 0
    while at < len(words):
        end = _path(words, at) or _long_operator(words, at) or at + 1
        yield _token(words, at, end)
        at = end


def _token(words: Sequence[re.Match[str]], at: int, end: int) -> Token:
    word = words[at]
    following = words[end]["symbol"] if end < len(words) else None
    before = words[at - 1]["symbol"] if at else None
    kind, text = Kind.SYMBOL, word.group()
    if word["name"] is not None:
        kind, text = Kind.NAME, text[1:-1].replace("``", "`")
    elif word["text"] is not None or (end > at + 1 and word["symbol"] is None):
        kind = Kind.STRING  # part of a path: no alias, and no column of the table
    elif word["word"] is not None:
        kind = Kind.WORD
        if text.upper() in _ALSO_FUNCTIONS and following == "(":
            kind, text = Kind.SYMBOL, _OTHER
        elif text.upper() == "XOR":  # no operator of Spark's
            kind = Kind.NAME
    elif word["symbol"] in (")", "]") and end > at + 1:
        kind, text = Kind.SYMBOL, word["symbol"]
    elif end > at + 1:
        text = "<"  # as any operator between two
    elif text == "*" and before in ("(", ","):  # all columns as arguments
        text = _OTHER
    return Token(kind, text, word.start(), words[end - 1].end())


def _path(words: Sequence[re.Match[str]], at: int) -> int:
    """The end of a path ``a.b.c`` that begins at a word or at the end of a call; 0 if there is none."""
    first = words[at]
    if not (first["name"] or (first["word"] and not first["word"][0].isdigit()) or first["symbol"] in (")", "]")):
        return 0
    end = at + 1
    while end + 1 < len(words) and words[end]["symbol"] == "." and _follows_a_dot(words[end + 1]):
        end += 2
    return end if end > at + 1 else 0


def _follows_a_dot(word: re.Match[str]) -> bool:
    return bool(word["name"] or word["word"]) or word["symbol"] == "*"


def _long_operator(words: Sequence[re.Match[str]], at: int) -> int:
    """The end of an operator of :data:`_LONG_OPERATORS` that begins at a symbol; 0 if none does."""
    start = words[at].start()
    text = words[at].string
    found = next((one for one in _LONG_OPERATORS if text.startswith(one, start)), "")
    return at + len(found) if found and words[at]["symbol"] else 0
