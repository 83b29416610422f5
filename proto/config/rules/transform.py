"""The text of a transform: splits its SELECT list, and checks that it is deterministic. Pure.

Only words and their neighbours are checked, without a table; Spark's analyzer checks the rest
(worker/rules/transform/analyzer.py). Functions that are not known to depend only on the row are refused: a list of
allowed functions cannot miss a dangerous one. Source: Spark SQL Reference, "Built-in Functions", "Identifiers",
"Literals".
"""

from __future__ import annotations

import re

from shardmerge.proto.config.finding import nearest
from shardmerge.proto.config.rules.transform_order import Item, clash_of, dangling, item_of, order_of, tokens_of
from shardmerge.proto.sql_lexer import Token

_FUNCTION_WORDS = """
    ABS ACOS ACOSH ADD_MONTHS ARRAY ARRAY_CONTAINS ARRAY_DISTINCT ARRAY_JOIN ARRAY_MAX ARRAY_MIN ARRAY_POSITION
    ARRAY_REMOVE ARRAY_REPEAT ARRAY_SIZE ARRAY_SORT ARRAY_UNION ASCII ASIN ASINH ATAN ATAN2 ATANH BASE64 BETWEEN BIGINT
    BIN BINARY BIT_COUNT BIT_LENGTH BOOLEAN BROUND BTRIM CARDINALITY CAST CBRT CEIL CEILING CHAR CHARACTER_LENGTH
    CHAR_LENGTH CHR COALESCE CONCAT CONCAT_WS CONTAINS CONV CONVERT_TIMEZONE COS COSH COT CRC32 CSC DATE DATEADD
    DATEDIFF DATE_ADD DATE_DIFF DATE_FORMAT DATE_FROM_UNIX_DATE DATE_PART DATE_SUB DATE_TRUNC DAY DAYNAME DAYOFMONTH
    DAYOFWEEK DAYOFYEAR DECIMAL DECODE DEGREES DOUBLE ELEMENT_AT ELT ENCODE ENDSWITH EQUAL_NULL EXP EXPM1 EXTRACT
    FACTORIAL FIND_IN_SET FLOAT FLOOR FORMAT_NUMBER FORMAT_STRING FROM_UTC_TIMESTAMP GETBIT GET_JSON_OBJECT GREATEST
    HEX HOUR HYPOT IF IFNULL ILIKE IN INITCAP INSTR INT ISNAN ISNOTNULL ISNULL JSON_ARRAY_LENGTH LAST_DAY LCASE LEAST
    LEFT LEN LENGTH LEVENSHTEIN LIKE LN LOCATE LOG LOG10 LOG1P LOG2 LOWER LPAD LTRIM LUHN_CHECK MAKE_DATE
    MAKE_TIMESTAMP_NTZ MASK MD5 MINUTE MOD MONTH MONTHNAME MONTHS_BETWEEN NAMED_STRUCT NANVL NEGATIVE NEXT_DAY NULLIF
    NULLIFZERO NUMERIC NVL NVL2 OCTET_LENGTH OVERLAY PARSE_URL PI PMOD POSITION POSITIVE POW POWER PRINTF QUARTER
    RADIANS REGEXP REGEXP_COUNT REGEXP_EXTRACT REGEXP_EXTRACT_ALL REGEXP_INSTR REGEXP_LIKE REGEXP_REPLACE REGEXP_SUBSTR
    REPEAT REPLACE REVERSE RIGHT RINT RLIKE ROUND RPAD RTRIM SEC SECOND SHA SHA1 SHA2 SHIFTLEFT SHIFTRIGHT
    SHIFTRIGHTUNSIGNED SIGN SIGNUM SIN SINH SIZE SLICE SMALLINT SOUNDEX SPACE SPLIT SPLIT_PART SQRT STARTSWITH STRING
    STRUCT SUBSTR SUBSTRING SUBSTRING_INDEX TAN TANH TIMESTAMPADD TIMESTAMPDIFF TINYINT TO_BINARY TO_CHAR TO_DATE
    TO_JSON TO_NUMBER TO_TIMESTAMP_NTZ TO_UTC_TIMESTAMP TRANSLATE TRIM TRUNC TRY_ADD TRY_CAST TRY_DIVIDE TRY_ELEMENT_AT
    TRY_MOD TRY_MULTIPLY TRY_SUBTRACT TRY_TO_BINARY TRY_TO_DATE TRY_TO_NUMBER TYPEOF UCASE UNBASE64 UNHEX UNIX_DATE
    UNIX_MICROS UNIX_MILLIS UNIX_SECONDS UPPER URL_DECODE URL_ENCODE VARCHAR WEEKDAY WEEKOFYEAR WHEN WIDTH_BUCKET
    XPATH_STRING XXHASH64 HASH YEAR ZEROIFNULL
"""
FUNCTIONS = frozenset(_FUNCTION_WORDS.split())
"""Functions that depend only on their arguments, and types with sizes."""

_WORDS = "AND OR NOT IN IS CASE WHEN THEN ELSE LIKE BETWEEN EXCEPT AS ANY ALL FROM DIV"
_BEFORE_PARENTHESIS = frozenset(_WORDS.split())
_REFUSED_WORDS = """
    SELECT VALUES WITH OVER CURRENT_DATE CURRENT_TIMESTAMP CURRENT_TIME CURRENT_USER CURRENT_CATALOG CURRENT_DATABASE
    CURRENT_SCHEMA CURRENT_TIMEZONE LOCALTIMESTAMP LOCALTIME SESSION_USER LATERAL
"""
_REFUSED = frozenset(_REFUSED_WORDS.split())
_CHANGING_WORDS = """
    CURDATE CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME LOCALTIMESTAMP MONOTONICALLY_INCREASING_ID NOW RAND
    RANDN RANDOM RANDSTR SHUFFLE UNIFORM UNIX_TIMESTAMP UUID
"""
_CHANGING = frozenset(_CHANGING_WORDS.split())
"""Functions of the clock and random ones, which get a message of their own."""
_OTHER_WORDS = """
    IS UNKNOWN ESCAPE END SOME DISTINCT FOR BOTH LEADING TRAILING PLACING COLLATE INTERVAL TO AT TIME ZONE WITHOUT LOCAL
    TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ BYTE SHORT LONG INTEGER DEC REAL PRECISION CHARACTER VOID VARIANT MAP YEARS
    QUARTERS MONTHS WEEK WEEKS DAYS HOURS MINUTES SECONDS MILLISECOND MILLISECONDS MICROSECOND MICROSECONDS NANOSECOND
    NANOSECONDS ASC DESC NULLS FIRST LAST USING RESPECT IGNORE X
"""
_KNOWN = FUNCTIONS | _BEFORE_PARENTHESIS | frozenset(_OTHER_WORDS.split())
"""Words whose place in an expression has more meaning than that of a column's name."""
STAR = "*"
"""The item of a SELECT list that means all other columns."""
_OF_TIME = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"})
_MOMENT = re.compile(r"\s*[-+]?\d[^\\]*")
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<name>`(?:[^`]|``)*`)|(?P<word>\w+)|(?P<space>\s+)"""
    r"""|(?P<comment>--|/\*)|(?P<symbol>.)""",
    re.DOTALL,
)


class TransformRefused(Exception):
    """Why a transform cannot be used; the text is for the user."""


def split_items(projection: str) -> tuple[str, ...]:
    """The items of a SELECT list. Raises :class:`TransformRefused`."""
    found: list[str] = []
    depth = start = 0
    for match in _TOKEN.finditer(projection):
        sign = match["symbol"]
        if sign is None:
            continue
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and depth == 0:
            found.append(projection[start : match.start()].strip())
            start = match.end()
    found.append(projection[start:].strip())
    if not all(found):
        raise TransformRefused("an item of the projection is empty")
    if found.count(STAR) > 1:
        raise TransformRefused(f"it holds {STAR} twice")
    clash = clash_of([_checked_item(item) for item in found if item != STAR])
    if clash:
        raise TransformRefused(clash)
    return tuple(found)


def check_condition(text: str) -> None:
    """Raises :class:`TransformRefused` for a text that is no condition over one row only."""
    tokens = _checked(text)
    reason = order_of(tokens, _KNOWN) if tokens else "it is empty"
    if reason:
        raise TransformRefused(reason)


def _checked_item(text: str) -> Item:
    tokens = _checked(text)
    if tokens[0].is_symbol(STAR) and tokens[1].is_word("EXCEPT"):
        return Item(tokens)
    item = item_of(tokens, _KNOWN)
    reason = dangling(tokens) or order_of(item.body, _KNOWN)
    if reason:
        raise TransformRefused(f"{text}: {reason}")
    return item


def _checked(text: str) -> tuple[Token, ...]:
    """The words of an expression. Raises :class:`TransformRefused` for one that is not known to depend only on one
    row."""
    depth = 0
    kept = [match for match in _TOKEN.finditer(text) if match["space"] is None]
    for at, match in enumerate(kept):
        before = kept[at - 1] if at else None
        following = kept[at + 1] if at + 1 < len(kept) else None
        if match["comment"]:
            raise TransformRefused("it holds a comment")
        if match["text"] and following is not None and following["text"]:
            raise TransformRefused("two texts are side by side")
        if match["symbol"]:
            depth = _checked_symbol(match["symbol"], depth)
        elif match["name"] and following is not None and following["symbol"] == "(":
            raise TransformRefused(f"{match['name']} is used as a function")
        elif match["word"]:
            _check_word(match, before, following)
    if depth:
        raise TransformRefused("a parenthesis is not closed")
    return tokens_of(kept)


def _checked_symbol(sign: str, depth: int) -> int:
    if sign in "'\"`":
        raise TransformRefused("a quote has no end")
    if sign in ";@?$#\\{}:":
        raise TransformRefused(f"it holds {sign!r}")
    depth += (sign in "([{") - (sign in ")]}")
    if depth < 0:
        raise TransformRefused("a parenthesis is closed that was not opened")
    return depth


def _check_word(match: re.Match[str], before: re.Match[str] | None, following: re.Match[str] | None) -> None:
    word = match["word"].upper()
    if following is not None and following["text"] is not None and following.start() == match.end() and word == "R":
        raise TransformRefused("it holds a raw text")
    if (
        following is not None
        and following["text"]
        and word in _OF_TIME
        and not _MOMENT.fullmatch(following["text"][1:-1])
    ):
        raise TransformRefused(f"{word} {following['text']} is no literal time")  # DATE 'today', TIMESTAMP 'now UTC'
    is_part = before is not None and before["symbol"] == "."
    if following is not None and following["symbol"] == "(":
        if is_part or (word not in FUNCTIONS and word not in _BEFORE_PARENTHESIS):
            if word in _CHANGING:
                raise TransformRefused(f"the function {word} changes from call to call")
            near = nearest(word, (each for each in FUNCTIONS if each[0] == word[0]))
            hint = f"; did you mean {near}?" if near else ""
            raise TransformRefused(f"the function {word} is not known to depend only on the row{hint}")
    elif word in _REFUSED:
        raise TransformRefused(f"{word} is no part of an expression over one row")
