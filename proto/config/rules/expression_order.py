"""Finds words of an SQL expression that cannot be neighbours. Pure.

No grammar: a server checks the whole. Every finding is an error in MySQL, MariaDB and TiDB alike, so that a file can be
checked without any of them. Source: MySQL Reference Manual, "Expressions", "Keywords and Reserved Words".
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardmerge.proto.sql_lexer import Kind, Token


class _Part(enum.Enum):
    EDGE = 0  # before the first word, and after the last
    VALUE = 1  # a column or a constant
    SIGN = 2  # allowed before a value, + and - also between two
    BETWEEN = 3  # needs something on either side
    CASE = 4  # a word inside of CASE
    NOT = 5
    OPEN = 6
    CLOSE = 7
    COMMA = 8
    OTHER = 9  # its neighbours are unknown


@dataclass(frozen=True, slots=True)
class _Piece:
    part: _Part
    text: str = ""
    kind: Kind = Kind.SYMBOL


_OPERATORS = ("<=>", "->>", "<=", ">=", "<>", "!=", "<<", ">>", "||", "&&", "->", *"=<>*/%|&^")
_BETWEEN_WORDS = frozenset({"AND", "OR", "XOR", "DIV", "LIKE", "RLIKE", "REGEXP", "IN", "BETWEEN"})
_CASE_WORDS = frozenset({"WHEN", "THEN", "ELSE"})
_CONSTANTS = frozenset({"NULL", "TRUE", "FALSE"})
_SINGLE = {
    "(": _Part.OPEN,
    ")": _Part.CLOSE,
    ",": _Part.COMMA,
    "+": _Part.SIGN,
    "-": _Part.SIGN,
    "~": _Part.SIGN,
    "!": _Part.SIGN,
}
_BEGINNINGS = (_Part.EDGE, _Part.OPEN, _Part.COMMA)
_ENDS = (_Part.EDGE, _Part.CLOSE, _Part.COMMA)
_UNFINISHED = (_Part.BETWEEN, _Part.SIGN, _Part.CASE, _Part.NOT)
_TEXT_PREFIXES = frozenset({"N", "X", "B"})


def wrong_order(tokens: Sequence[Token], known: Collection[str]) -> str:
    """The word that is out of place, for the user; "" if nothing is certainly wrong. ``known``: words of the language
    in upper case; any other is a column's name."""
    edge = _Piece(_Part.EDGE)
    for before, following in pairwise((edge, *_pieces(tokens, known), edge)):
        reason = _reason(before, following)
        if reason:
            return reason
    return ""


def _reason(before: _Piece, following: _Piece) -> str:
    one, other = before.part, following.part
    if one in (*_BEGINNINGS, *_UNFINISHED) and other in (_Part.BETWEEN, _Part.CASE, _Part.COMMA):
        if one is _Part.NOT and following.text.upper() in {"LIKE", "RLIKE", "REGEXP", "IN", "BETWEEN"}:
            return ""
        return f"{following.text} cannot follow what is before it"
    if one in _UNFINISHED and other in _ENDS:
        return f"nothing follows {before.text}"
    if one is _Part.COMMA and other in _ENDS:
        return "nothing follows a comma"
    if (
        one in (_Part.VALUE, _Part.CLOSE)
        and other is _Part.VALUE
        and not (before.kind is following.kind is Kind.STRING)
    ):
        return f"there is no operator between {before.text} and {following.text}"
    if other is _Part.OPEN and (
        one is _Part.CLOSE or (one is _Part.VALUE and before.kind not in (Kind.WORD, Kind.NAME))
    ):
        return f"there is no operator between {before.text} and ("
    return ""


def _pieces(tokens: Sequence[Token], known: Collection[str]) -> Iterator[_Piece]:
    at = 0
    while at < len(tokens):
        end = _number(tokens, at) or _operator(tokens, at)
        if end > at:
            text = "".join(token.text for token in tokens[at:end])
            part = _Part.BETWEEN if text in _OPERATORS else _Part.VALUE
            yield _Piece(part, text, Kind.SYMBOL)
            at = end
            continue
        yield _piece(tokens[at], tokens[at + 1] if at + 1 < len(tokens) else None, known)
        at += 1


def _piece(token: Token, following: Token | None, known: Collection[str]) -> _Piece:
    word = token.text.upper()
    if token.kind is Kind.SYMBOL:
        part = _SINGLE.get(token.text, _Part.OTHER)
    elif token.kind is not Kind.WORD:
        part = _Part.VALUE
    elif word in _BETWEEN_WORDS:
        part = _Part.BETWEEN
    elif word in _CASE_WORDS:
        part = _Part.CASE
    elif word == "NOT":
        part = _Part.NOT
    elif word in _CONSTANTS:
        part = _Part.VALUE
    elif (
        word in known
        or word.startswith("_")
        or (word in _TEXT_PREFIXES and following is not None and following.kind is Kind.STRING)
    ):
        part = _Part.OTHER
    else:
        part = _Part.VALUE
    return _Piece(part, token.text, token.kind)


def _number(tokens: Sequence[Token], at: int) -> int:
    """Where a number ends that begins at a token: ``1.5`` and ``.5`` are several; ``at`` when none begins there."""
    end = at
    if tokens[at].is_symbol(".") or (tokens[at].kind is Kind.WORD and tokens[at].text[0].isdigit()):
        end += 1
        while end < len(tokens) and tokens[end].start == tokens[end - 1].end and _of_number(tokens[end]):
            end += 1
    return end if end > at else 0


def _of_number(token: Token) -> bool:
    return token.kind is Kind.WORD or token.is_symbol(".")


def _operator(tokens: Sequence[Token], at: int) -> int:
    """Where the longest operator ends that begins at a token; 0 when none begins there."""
    symbols = ""
    for token in tokens[at : at + 3]:
        if token.kind is not Kind.SYMBOL or token.start != tokens[at].start + len(symbols):
            break
        symbols += token.text
    found = next((operator for operator in _OPERATORS if symbols.startswith(operator)), "")
    return at + len(found) if found else 0
