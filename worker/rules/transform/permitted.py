"""The check that every expression of a transform must pass, before Spark analyses it and again afterwards.

Both times the check reads the classes of all nodes in the tree that Spark made of the text, and refuses a class that is
not listed here. Not listed are expressions that read files, call Java or Python, use the session or the clock, or
contain a query. The check runs before the analysis because resolving some names has side effects: a table's name opens
files, a function of avro or protobuf loads classes. It runs again afterwards because a plain name can resolve to any
expression.

Source of the names: org.apache.spark.sql.catalyst.expressions of Spark 4.3.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

from shardmerge.proto.config.rules.transform import FUNCTIONS, TransformRefused, check_condition, split_items
from shardmerge.worker.rules.transform.session import activate, session

_CATALYST = "org.apache.spark.sql.catalyst."
_NAMES = """
    Abs Acos Acosh Add AddMonths Alias And ArrayContains ArrayDistinct ArrayJoin ArrayMax ArrayMin ArrayPosition
    ArrayRemove ArrayRepeat ArraySize ArraySort ArrayUnion Ascii Asin Asinh Atan Atan2 Atanh AttributeReference BRound
    Base64 Between Bin BinaryPad BinaryPredicate BitLength BitwiseAnd BitwiseCount BitwiseGet BitwiseNot BitwiseOr
    BitwiseXor CaseWhen Cast Cbrt Ceil Chr Coalesce Collate CommonExpressionDef CommonExpressionRef Concat ConcatWs
    Contains Conv ConvertTimezone Cos Cosh Cot Crc32 CreateArray CreateNamedStruct Csc CurrentTimeZone DateAdd
    DateAddInterval DateAddYMInterval DateDiff DateFormatClass DateFromUnixDate DateSub DatetimeSub DayName DayOfMonth
    DayOfWeek DayOfYear Decode Divide DivideDTInterval DivideYMInterval ElementAt Elt Encode EndsWith EqualNull
    EqualNullSafe EqualTo EulerNumber Exp Expm1 Extract ExtractANSIIntervalDays ExtractANSIIntervalHours
    ExtractANSIIntervalMinutes ExtractANSIIntervalMonths ExtractANSIIntervalSeconds ExtractANSIIntervalYears Factorial
    FindInSet Floor FormatNumber FormatString FromUTCTimestamp GetArrayItem GetArrayStructFields GetJsonObject
    GetMapValue GetStructField GreaterThan GreaterThanOrEqual Greatest Hex Hour Hypot ILike If In InitCap
    IntegralDivide IsNaN IsNotNull IsNotUnknown$$anon$2 IsNull IsUnknown$$anon$1 LambdaFunction LastDay Least Left
    Length LengthOfJsonArray LessThan LessThanOrEqual Levenshtein Like LikeAll LikeAny Literal Log Log10 Log1p Log2
    Logarithm Lower Luhncheck MakeDate MakeTimestamp MakeTimestampNTZ Mask Md5 Minute Month MonthName MonthsBetween
    Multiply MultiplyDTInterval MultiplyYMInterval Murmur3Hash NaNvl NamedLambdaVariable NextDay Not NotLikeAll
    NotLikeAny NullIf NullIfResult NullIfZero Nvl Nvl2 OctetLength Or Overlay ParseToDate ParseToTimestamp ParseUrl Pi
    Pmod Pow Quarter RLike RegExpCount RegExpExtract RegExpExtractAll RegExpInStr RegExpReplace RegExpSubStr Remainder
    ResolvedCollation Reverse Right Rint Round RoundCeil RoundFloor Sec Second SecondWithFraction Sha1 Sha2 ShiftLeft
    ShiftRight ShiftRightUnsigned Signum Sin Sinh Size Slice SoundEx SplitPart Sqrt StartsWith StringDecode
    StringInstr StringInstrWithOccurrence StringLPad StringLocate StringRPad StringRepeat StringReplace StringSpace
    StringSplit StringTranslate StringTrim StringTrimBoth StringTrimLeft StringTrimRight StructsToJson Substring
    SubstringIndex Subtract SubtractDates SubtractTimestamps Tan Tanh TimestampAdd TimestampAddInterval
    TimestampAddYMInterval TimestampDiff ToBinary ToCharacter ToDegrees ToNumber ToRadians ToUTCTimestamp TruncDate
    TruncTimestamp TryAdd TryDivide TryElementAt TryEval TryMod TryMultiply TrySubtract TryToBinary TryToNumber TypeOf
    UnBase64 UnaryMinus UnaryPositive Unhex UnixDate UnixMicros UnixMillis UnixSeconds Upper UrlDecode UrlEncode
    WeekDay WeekOfYear WidthBucket With XxHash64 Year YearOfWeek ZeroIfNull xml.XPathString
"""
_PERMITTED = frozenset(f"{_CATALYST}expressions.{name}" for name in _NAMES.split())
"""Classes of analysed expressions whose result depends on their arguments alone. StaticInvoke and Invoke are not among
them: Spark's optimizer inserts them later to call Spark's own code, and a text that contains them is refused."""
_FUNCTION = f"{_CATALYST}analysis.UnresolvedFunction"
_UNRESOLVED = frozenset(
    {
        _FUNCTION,
        f"{_CATALYST}analysis.UnresolvedAlias",
        f"{_CATALYST}analysis.UnresolvedAttribute",
        f"{_CATALYST}analysis.UnresolvedExtractValue",
        f"{_CATALYST}analysis.UnresolvedStar",
        f"{_CATALYST}analysis.UnresolvedStarExceptOrReplace",
        f"{_CATALYST}expressions.NamePlaceholder$",
        f"{_CATALYST}expressions.UnresolvedCollation",
        f"{_CATALYST}expressions.UnresolvedNamedLambdaVariable",
    }
)
"""Further classes of expressions that are parsed and not analysed yet."""
_FUNCTIONS = FUNCTIONS | {"DIV"}
_PLANS = frozenset({"Project", "Filter"})


def check_item(text: str) -> None:
    """Check ``text``, an item of a SELECT list. Raises :class:`TransformRefused`, and ``PySparkException`` if Spark
    cannot parse it."""
    split_items(text)
    _check_parsed(text)


def check_filter(text: str) -> None:
    """Check ``text``, a condition. Raises what :func:`check_item` raises."""
    check_condition(text)
    _check_parsed(text)


def check_plan(plan: Any, text: str) -> None:
    """Check an analysed plan: it may contain only projections and filters over local rows. ``text``: the expression to
    name in the error. Raises :class:`TransformRefused`, and ``PySparkException``."""
    no_row = f"{text} is not an expression over one row alone"
    while (kind := plan.getClass().getSimpleName()) != "LocalRelation":
        if kind not in _PLANS or not plan.deterministic():
            raise TransformRefused(no_row)
        known = _identifiers(plan.child().output())
        expressions = plan.expressions()
        for at in range(expressions.size()):
            expression = expressions.apply(at)
            _check_nodes(expression, _PERMITTED, text)
            if not _identifiers(expression.references().toSeq()) <= known:
                raise TransformRefused(no_row)
        plan = plan.child()


def _check_parsed(text: str) -> None:
    activate()
    _check_nodes(_parser().parseExpression(text), _PERMITTED | _UNRESOLVED, text)


@lru_cache(maxsize=1)
def _parser() -> Any:
    return session()._jsparkSession.sessionState().sqlParser()


def _check_nodes(expression: Any, allowed: frozenset[str], text: str) -> None:
    for node in _nodes(json.loads(expression.toJSON())):
        kind = str(node["class"])
        if kind not in allowed:
            raise TransformRefused(f"{text}: {kind.rpartition('.')[2]} is not known to depend on the row alone")
        if kind == _FUNCTION:
            name = str(node["nameParts"]).strip("[]")
            if name.upper() not in _FUNCTIONS:
                raise TransformRefused(f"{text}: the function {name} is not known to depend on the row alone")


def _nodes(found: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a tree as ``TreeNode.toJSON`` writes it, also those in fields of other nodes. Pure."""
    if isinstance(found, dict):
        fields = cast("dict[str, Any]", found)
        if "class" in fields:
            yield fields
        for value in fields.values():
            yield from _nodes(value)
    elif isinstance(found, list):
        for value in cast("list[Any]", found):
            yield from _nodes(value)


def _identifiers(attributes: Any) -> set[int]:
    return {attributes.apply(at).exprId().id() for at in range(attributes.size())}
