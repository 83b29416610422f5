"""Takes secrets out of texts of the history: statements and messages of servers may quote them. Pure.

What has the form of a secret is masked, whoever wrote it. A statement of a source is executed with its own text: only
the entry about it has the mask.

The writer of a statement at a source also decides how long this takes. So no expression may try a text twice: each word
is read from its begin only, a repetition never gives back what it has read, and what a later keyword may repeat has a
bound.

A repetition of a group is within an atomic group, `(?>(?:a|b)*)`, and not possessive, `(?:a|b)*+`, which is the same:
Python up to 3.11.4 does not find all texts that the second form describes (https://github.com/python/cpython/issues/106052).
"""

from __future__ import annotations

import re

from shardmerge.proto.config.document.masking import MASK
from shardmerge.proto.config.document.redacted import scrubbed

# A text may be cut within a literal, also after a backslash.
_LITERAL = r"""(?:'(?>(?:[^'\\]++|\\.?+|'')*)(?:'|\Z)|"(?>(?:[^"\\]++|\\.?+|"")*)(?:"|\Z))"""
_KEYWORD = r"(?:password|passwd|secret|credential|token|api_?key)"
_NAME = rf"(?<![\w$])(?>(?:(?!{_KEYWORD})[\w$])*){_KEYWORD}[\w$]*+[`\"']?+"
_COMMENT = r"(?:/\*M?!\d*+|/\*[^*]*+(?>(?:\*(?!/)[^*]*+)*)(?:\*/|\Z)|\*/|(?:\#|--(?=\s))[^\n]*+)"
"""What is in an executable comment counts as if it were outside."""
_GAP = rf"(?:\s|{_COMMENT})"
_SOME_GAP = rf"(?>{_GAP}+)"
_OPTIONAL_GAP = rf"(?>{_GAP}*)"
_FLAGS = re.IGNORECASE | re.DOTALL
_IN_LITERAL = rf"\1'{MASK}'"


def _before_literal(gap: str) -> re.Pattern[str]:
    """A literal after what makes it a secret, with ``gap`` between the words."""
    some, optional = f"(?>{gap}+)", f"(?>{gap}*)"
    identified = (
        rf"\bIDENTIFIED{some}(?>(?:(?:WITH|VIA){some}\S++{some})?)(?:BY|AS|USING){optional}"
        rf"(?>(?:PASSWORD{optional})?)\(?+{optional}"
    )
    named = rf"{_NAME}(?:{optional}[=:(]|{some}){optional}"
    return re.compile(rf"({identified}|{named}|\bAUTHENTICATION{some}STRING{some}){_LITERAL}", _FLAGS)


_IN_SQL = _before_literal(r"\s")
_AFTER_COMMENT = _before_literal(_GAP)
_BARE = re.compile(rf"({_NAME}\s*+[=:]\s*+)(?!YES\b|NO\b|'|\"|\(|\*)[^\s,;)]+", re.IGNORECASE)
_PART_OF_COLUMN = rf"(?:\((?>(?:{_LITERAL}|[^()'\"])*)\)|{_LITERAL}|[^,;()'\"])"
_DEFAULT = re.compile(
    # An empty literal is no secret, and shows how the column is declared.
    rf"({_NAME}(?>(?:(?!\bDEFAULT\b|{_KEYWORD}){_PART_OF_COLUMN}){{0,300}})DEFAULT\b{_OPTIONAL_GAP}\(?+{_OPTIONAL_GAP}"
    rf"(?>(?:(?:_\w++|[NXB]){_OPTIONAL_GAP})?))(?!''(?!')|\"\"(?!\")){_LITERAL}",
    _FLAGS,
)
_ACCOUNT = re.compile(
    rf"\A{_OPTIONAL_GAP}GRANT\b"
    rf"|\b(?:SET{_SOME_GAP}PASSWORD|(?:CREATE(?>(?:{_SOME_GAP}OR{_SOME_GAP}REPLACE)?)|ALTER){_SOME_GAP}USER)\b",
    _FLAGS,
)
_ANY_LITERAL = re.compile(_LITERAL, re.DOTALL)
_OPEN_URL = re.compile(r"://[^\s\"'@]{0,600}+\Z")
"""Up to its user's end, which may be missing. Longer than what ``scrubbed`` takes for the user of a URL."""


def without_secrets(text: str, *, is_cut: bool = False) -> str:
    """``text`` with a mask instead of each secret. ``is_cut``: more followed."""
    found = _BARE.sub(rf"\1{MASK}", _IN_SQL.sub(_IN_LITERAL, scrubbed(text)))
    # These find more. They come afterwards so that a comment, a literal or a column hides nothing from those before.
    found = _DEFAULT.sub(_IN_LITERAL, _AFTER_COMMENT.sub(_IN_LITERAL, found))
    return _without_literals_of_account(_OPEN_URL.sub(f"://{MASK}", found) if is_cut else found)


def _without_literals_of_account(text: str) -> str:
    """After the words of a statement about an account, every literal may be a secret: of old and new ones there are
    many forms, which differ by server and version."""
    account = _ACCOUNT.search(text)
    if account is None:
        return text
    return text[: account.end()] + _ANY_LITERAL.sub(f"'{MASK}'", text[account.end() :])
