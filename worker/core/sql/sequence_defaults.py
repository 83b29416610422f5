"""Leaves out defaults that are numbers of a sequence, which only one server has. Pure, on tokens.

MariaDB, "Sequence Functions", "Oracle Mode". Each row has the column's value, so a merged table needs no default.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from shardmerge.proto.sql_lexer import Token, edited, tokens
from shardmerge.worker.core.sql.token_reader import default_value

_ORACLE = 1 << 9
"""The sql_mode in which ``s.nextval`` is a number of a sequence."""


def without_sequence_defaults(text: str, sql_mode: int = 0) -> str:
    """A statement without these defaults; SET DEFAULT becomes DROP DEFAULT. Raises NotUnderstoodError."""
    if "val" not in text.lower():  # NEXTVAL, NEXT VALUE, … CURRVAL
        return text
    found = tokens(text, sql_mode)
    edits: list[tuple[int, int, str]] = []
    for at, token in enumerate(found):
        value = default_value(found, at) if token.is_word("DEFAULT") else ()
        if value and _uses_sequence(value, sql_mode):
            sets = at > 0 and found[at - 1].is_word("SET")
            begin = found[at - 1].start if sets else len(text[: token.start].rstrip())
            edits.append((begin, value[-1].end, "DROP DEFAULT" if sets else ""))
    return edited(text, edits)


def _uses_sequence(value: Sequence[Token], sql_mode: int) -> bool:
    for token, following in pairwise(value):
        if token.is_word("NEXTVAL", "LASTVAL", "SETVAL") and following.is_symbol("("):
            return True
        if token.is_word("NEXT", "PREVIOUS") and following.is_word("VALUE"):
            return True
        if sql_mode & _ORACLE and token.is_symbol(".") and following.is_word("NEXTVAL", "CURRVAL"):
            return True
    return False
