"""SQL expressions over one row, as the user wrote them: the columns they name, and whether they are deterministic.
Pure.

Only words and their neighbours are checked (no grammar): a server checks the rest. Functions that are not known to
depend only on the row are refused: a list of allowed functions cannot miss a dangerous one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardmerge.proto.config.finding import nearest
from shardmerge.proto.config.rules.expression_order import wrong_order
from shardmerge.proto.sql_lexer import Kind, Token, pieces

_FUNCTION_WORDS = """
    ABS ACOS ASCII ASIN ATAN ATAN2 BETWEEN BIN BIT_COUNT BIT_LENGTH CAST CEIL CEILING CHAR CHARACTER_LENGTH CHAR_LENGTH
    COALESCE CONCAT CONCAT_WS CONV CONVERT COS COT CRC32 DATE DATEDIFF DATE_ADD DATE_FORMAT DATE_SUB DAY DAYOFMONTH
    DAYOFWEEK DAYOFYEAR DECIMAL DEGREES ELT EXP EXPORT_SET EXTRACT FIELD FIND_IN_SET FLOOR FROM_BASE64 FROM_DAYS
    FROM_UNIXTIME GREATEST HEX HOUR IF IFNULL IN INET6_ATON INET6_NTOA INET_ATON INET_NTOA INSERT INSTR INTERVAL ISNULL
    JSON_ARRAY JSON_CONTAINS JSON_CONTAINS_PATH JSON_DEPTH JSON_EXTRACT JSON_KEYS JSON_LENGTH JSON_OBJECT JSON_QUOTE
    JSON_SEARCH JSON_TYPE JSON_UNQUOTE JSON_VALID JSON_VALUE LAST_DAY LCASE LEAST LEFT LENGTH LN LOCATE LOG LOG10 LOG2
    LOWER LPAD LTRIM MAKEDATE MAKETIME MAKE_SET MD5 MICROSECOND MID MINUTE MOD MONTH NULLIF OCT OCTET_LENGTH ORD
    PERIOD_ADD PERIOD_DIFF PI POSITION POW POWER QUARTER QUOTE RADIANS REGEXP_INSTR REGEXP_LIKE REGEXP_REPLACE
    REGEXP_SUBSTR REPEAT REPLACE REVERSE RIGHT ROUND RPAD RTRIM SECOND SEC_TO_TIME SHA SHA1 SHA2 SIGN SIN SOUNDEX SPACE
    SQRT STRCMP STR_TO_DATE SUBDATE SUBSTR SUBSTRING SUBSTRING_INDEX SUBTIME TAN TIME TIMEDIFF TIMESTAMP TIMESTAMPADD
    TIMESTAMPDIFF TIME_FORMAT TIME_TO_SEC TO_BASE64 TO_DAYS TO_SECONDS TRIM TRUNCATE UCASE UNHEX UNIX_TIMESTAMP UPPER
    WEEK WEEKDAY WEEKOFYEAR YEAR YEARWEEK ADDDATE ADDTIME DATETIME BINARY VARCHAR NCHAR DOUBLE FLOAT
"""
_FUNCTIONS = frozenset(_FUNCTION_WORDS.split())
"""Functions that depend only on their arguments (and on settings that a worker fixes for its session), and words that
may come before a parenthesis."""

_CHANGING_WORDS = frozenset({"LOCALTIME", "LOCALTIMESTAMP", "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP"})
"""Functions of the clock that need no parenthesis."""
_CHANGING = _CHANGING_WORDS | {"NOW", "CURDATE", "CURTIME", "SYSDATE", "RAND", "UUID", "UUID_SHORT", "RANDOM_BYTES"}

_OTHER_WORDS = """
    AND OR NOT XOR IS NULL TRUE FALSE UNKNOWN IN BETWEEN LIKE REGEXP RLIKE ESCAPE DIV MOD BINARY CASE WHEN THEN ELSE END
    INTERVAL AS SIGNED UNSIGNED INTEGER INT CHAR CHARACTER SET DATE TIME DATETIME TIMESTAMP DECIMAL DOUBLE FLOAT REAL
    JSON YEAR NCHAR SOUNDS FROM FOR LEADING TRAILING BOTH MEMBER OF MICROSECOND SECOND MINUTE HOUR DAY WEEK MONTH
    QUARTER SECOND_MICROSECOND MINUTE_MICROSECOND MINUTE_SECOND HOUR_MICROSECOND HOUR_SECOND HOUR_MINUTE DAY_MICROSECOND
    DAY_SECOND DAY_MINUTE DAY_HOUR YEAR_MONTH ASC USING COLLATE
"""
_WORDS = frozenset(_OTHER_WORDS.split())
"""Words of the language that are no names of columns."""

LANGUAGE = _WORDS | _FUNCTIONS
"""Words whose place in an expression has more meaning than that of a column's name."""

_NAMED_BEFORE = ("COLLATE", "USING", "SET")
"""The word after these is the name of a collation or character set."""


class ExpressionRefused(Exception):
    """Why an expression cannot be used; the text is for the user."""


class NoColumn(Exception):
    """A name that is no column; the argument is the name."""


@dataclass(frozen=True, slots=True)
class Expression:
    """``text`` as written; ``tokens`` of it."""

    text: str
    tokens: tuple[Token, ...]

    def columns(self, places: Mapping[str, int]) -> tuple[int, ...]:
        """The columns it names, ascending. ``places``: by name in lower case. Raises :class:`NoColumn`."""
        found: set[int] = set()
        for at, token in enumerate(self.tokens):
            if not token.is_name or not self._may_be_column(at):
                continue
            place = places.get(token.text.lower())
            if place is not None:
                found.add(place)
            elif token.kind is Kind.NAME or token.text.upper() not in _WORDS:
                raise NoColumn(token.text)
        return tuple(sorted(found))

    def _may_be_column(self, at: int) -> bool:
        token = self.tokens[at]
        before = self.tokens[at - 1] if at else None
        following = self.tokens[at + 1] if at + 1 < len(self.tokens) else None
        if before is not None and before.is_word(*_NAMED_BEFORE):
            return False
        if token.kind is Kind.NAME:
            return True
        if token.text[0].isdigit():
            return False
        if following is not None and following.is_symbol("("):
            return False
        # x'4D', n'text', _latin1'text', DATE '2020-01-01'
        if following is not None and following.kind is Kind.STRING:
            return token.text.upper() not in {"X", "B", "N"} and not token.text.startswith("_")
        # _latin1 X'…'
        return not (token.text.startswith("_") and following is not None and following.is_word("X"))


def parse(text: str) -> Expression:
    """Raises :class:`ExpressionRefused` for a text that is no expression over one row only."""
    tokens = pieces(text)
    if not tokens:
        raise ExpressionRefused("it is empty")
    _check_shape(tokens)
    for at, token in enumerate(tokens):
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        before = tokens[at - 1] if at else None
        if before is not None and before.is_symbol("."):
            if token.is_name and not (token.text[0].isdigit() and token.kind is Kind.WORD):
                raise ExpressionRefused("a column is named alone, without its table")
            continue
        if token.kind is Kind.NAME and following is not None and following.is_symbol("("):
            raise ExpressionRefused(f"`{token.text}` is used as a function")
        if token.kind is Kind.WORD:
            _check_word(token, following, tokens[at + 2] if at + 2 < len(tokens) else None)
    reason = wrong_order(tokens, LANGUAGE)
    if reason:
        raise ExpressionRefused(reason)
    return Expression(text, tokens)


def _check_shape(tokens: Iterable[Token]) -> None:
    depth = 0
    for token in tokens:
        if token.kind is Kind.BAD:
            raise ExpressionRefused("a quote or comment has no end")
        if token.kind is Kind.MARK:
            raise ExpressionRefused("it holds a comment with code")
        if token.is_symbol("@"):
            raise ExpressionRefused("it names a variable")
        if token.is_symbol(";") or token.is_symbol("?") or token.is_symbol(":"):
            raise ExpressionRefused(f"it holds {token.text!r}")
        if token.is_symbol("("):
            depth += 1
        elif token.is_symbol(")"):
            depth -= 1
            if depth < 0:
                raise ExpressionRefused("a parenthesis is closed that was not opened")
    if depth:
        raise ExpressionRefused("a parenthesis is not closed")


def _check_word(token: Token, following: Token | None, third: Token | None) -> None:
    word = token.text.upper()
    if word in {"SELECT", "VALUES", "TABLE", "WITH", "EXISTS"}:
        raise ExpressionRefused(f"{word} is no part of an expression over one row")
    if following is None or not following.is_symbol("("):
        if word.startswith("CURRENT_") or word in _CHANGING_WORDS:
            raise ExpressionRefused(f"{word} changes from call to call")
        return
    if word in _CHANGING or word.startswith("CURRENT_"):
        raise ExpressionRefused(f"the function {word} changes from call to call")
    if word not in LANGUAGE:
        near = nearest(word, _FUNCTIONS)
        hint = f"; did you mean {near}?" if near else ""
        raise ExpressionRefused(f"the function {word} is not known to depend only on the row{hint}")
    if third is not None and third.is_symbol(")") and word != "PI":
        raise ExpressionRefused(f"{word}() without an argument does not depend on the row")
