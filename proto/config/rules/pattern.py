"""Patterns of schema and table names, as TiDB DM writes them (docs: "Table Routing", "Block and Allow Lists").

``~`` and a regular expression (:mod:`shardmerge.proto.config.rules.regex`, searched anywhere in the name), or a name
with wildcards: ``?`` one character, ``[a-z_]`` one of these, ``[!a-z]`` one that is none of these, ``*`` any
characters, only at the end. A ``[`` that is never closed, and the ``!`` in ``[!]``, are literal characters.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from shardmerge.proto.config.rules.regex import Regex, RegexError, compile_regex


class PatternError(ValueError):
    """The text is no pattern; the message has the reason."""


class Element(enum.IntEnum):
    """One step of a wildcard pattern, the more specific the higher."""

    STAR = 0
    ANY = 1
    RANGE = 2
    LITERAL = 3
    END = 4


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern. ``elements`` ends with END unless the pattern ends with ``*``; () for a regex."""

    text: str
    expression: re.Pattern[str] | Regex
    elements: tuple[Element, ...]

    def matches(self, name: str) -> bool:
        if isinstance(self.expression, Regex):
            return self.expression.matches(name)
        return self.expression.fullmatch(name) is not None

    @property
    def exact(self) -> bool:
        """Matches one name only."""
        return bool(self.elements) and min(self.elements) >= Element.LITERAL

    def more_specific_than(self, other: Pattern) -> bool:
        """Whether this pattern wins over ``other`` for a name that both match.

        An exact name wins over everything. Wildcards are compared from the left, as a trie is walked: a character wins
        over a range, a range over ``?``, ``?`` over ``*``. A regular expression and a wildcard, or two regular
        expressions, cannot be compared.
        """
        if self.exact or other.exact:
            return self.exact and not other.exact
        return bool(self.elements and other.elements) and self.elements > other.elements

    def same_as(self, other: Pattern) -> bool:
        return self.text == other.text


def compile_pattern(text: str, case_sensitive: bool) -> Pattern:
    """Compile ``text``; matching is case-sensitive or not. Raises :class:`PatternError`."""
    if not text:
        raise PatternError("must not be empty")
    if text.startswith("~"):
        try:
            return Pattern(text, compile_regex(text[1:], ignore_case=not case_sensitive), ())
        except RegexError as error:
            raise PatternError(str(error)) from error
    flags = re.DOTALL if case_sensitive else re.DOTALL | re.IGNORECASE
    expression, elements = _wildcard(text)
    return Pattern(text if case_sensitive else text.lower(), re.compile(expression, flags), elements)


def _wildcard(text: str) -> tuple[str, tuple[Element, ...]]:
    parts: list[str] = []
    elements: list[Element] = []
    at = 0
    while at < len(text):
        character = text[at]
        close = text.find("]", at) if character == "[" else -1
        if character == "*":
            if at != len(text) - 1:
                raise PatternError("* is only allowed at the end")
            parts.append(".*")
            elements.append(Element.STAR)
        elif character == "?":
            parts.append(".")
            elements.append(Element.ANY)
        elif close > 0:
            parts.append(_range(text[at + 1 : close]))
            elements.append(Element.RANGE)
            at = close
        else:
            parts.append(re.escape(character))
            elements.append(Element.LITERAL)
        at += 1
    if elements[-1] is not Element.STAR:
        elements.append(Element.END)
    return "".join(parts), tuple(elements)


def _range(inside: str) -> str:
    """The regular expression of ``[inside]``."""
    if inside == "!":
        return "[!]"
    negated = inside.startswith("!")
    rest = inside[1:] if negated else inside
    if not rest:
        raise PatternError("[] matches nothing")
    members: list[str] = []
    at = 0
    while at < len(rest):
        if rest[at + 1 : at + 2] == "-" and at + 2 < len(rest):
            low, high = rest[at], rest[at + 2]
            if low > high:
                raise PatternError(f"the range {low}-{high} is empty")
            members.append(f"{re.escape(low)}-{re.escape(high)}")
            at += 3
        else:
            members.append(re.escape(rest[at]))
            at += 1
    return f"[{'^' if negated else ''}{''.join(members)}]"
