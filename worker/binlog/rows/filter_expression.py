"""Compiles filter expressions that the worker itself evaluates exactly as the server would, over a row's literals.

They are: whole numbers and DECIMAL, compared with each other; AND, OR, XOR, NOT with MySQL's third truth value. The
server evaluates all other expressions (worker/rules/stage/server_filter.py). Source: MySQL Reference Manual, "Operator
Precedence", "Comparison Functions and Operators", "Out-of-Range and Overflow Handling"; MariaDB interprets these
expressions in the same way. Sums and products are evaluated only if no value of their columns can exceed the server's
64 bits, because that is an error there.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from shardmerge.proto.config.rules.expression import Expression
from shardmerge.proto.sql_lexer import Kind, Token
from shardmerge.worker.core.table import Column, ValueKind

Number = int | Decimal
Value = Callable[[Sequence[bytes]], Number | None]
"""Takes the literals of a row's columns; returns a number, a truth value as 1 or 0, None for NULL."""

_DIGITS = 18
"""Most digits of a whole number in an expression: longer numbers have another type at the server."""
_DECIMAL_DIGITS = 30
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_BASE = re.compile("[a-z]+")
_SIGNS = {"=", "<=>", "<>", "!=", "<", "<=", ">", ">="}
_NULL = b"NULL"


class _NotLocal(Exception):
    """The worker cannot evaluate the expression; the server must."""


@dataclass(frozen=True, slots=True)
class _Range:
    """The possible values of a whole number, and whether its type is unsigned."""

    lowest: int
    highest: int
    unsigned: bool = False

    @property
    def fits(self) -> bool:
        """Whether all values fit the server's BIGINT, or BIGINT UNSIGNED."""
        if self.unsigned:
            return self.lowest >= 0 and self.highest < 1 << 64
        return self.lowest >= -(1 << 63) and self.highest < 1 << 63


@dataclass(frozen=True, slots=True)
class _Node:
    """A compiled part of an expression. ``bounds``: of a whole number that sums and products may use; None for a value
    that is only compared, or a truth value. ``place``: index of the literal, if the part is a column alone."""

    of: Value
    bounds: _Range | None = None
    truth: bool = False
    constant: bool = False
    place: int | None = None


def compile_expression(expression: Expression, columns: Mapping[str, tuple[int, Column]]) -> Value | None:
    """The expression as a function of literals; None if the server must evaluate it.

    ``columns``: by name in lower case; the index of its (unmapped) literal among the function's arguments.
    """
    try:
        parser = _Parser(expression.tokens, columns)
        node = parser.disjunction()
        parser.end()
    except _NotLocal:
        return None
    return node.of


class _Parser:
    """A recursive descent parser, in the order of precedence: OR, XOR, AND, NOT, comparison, + and -, *, a sign."""

    def __init__(self, tokens: tuple[Token, ...], columns: Mapping[str, tuple[int, Column]]) -> None:
        self._tokens = tokens
        self._columns = columns
        self._at = 0

    # --- words

    def _here(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _word(self, *words: str) -> bool:
        """Step over these words if they come next."""
        following = self._tokens[self._at : self._at + len(words)]
        if len(following) < len(words) or not all(
            token.is_word(word) for token, word in zip(following, words, strict=True)
        ):
            return False
        self._at += len(words)
        return True

    def _symbol(self, symbol: str) -> bool:
        token = self._here()
        if token is None or not token.is_symbol(symbol):
            return False
        self._at += 1
        return True

    def _need(self, symbol: str) -> None:
        if not self._symbol(symbol):
            raise _NotLocal

    def end(self) -> None:
        if self._here() is not None:
            raise _NotLocal

    # --- truth values

    def disjunction(self) -> _Node:
        found = self._exclusive()
        while self._word("OR"):
            found = _truth(_either(_tested(found), _tested(self._exclusive())))
        return found

    def _exclusive(self) -> _Node:
        found = self._conjunction()
        while self._word("XOR"):
            found = _truth(_differing(_tested(found), _tested(self._conjunction())))
        return found

    def _conjunction(self) -> _Node:
        found = self._negation()
        while self._word("AND"):
            found = _truth(_both(_tested(found), _tested(self._negation())))
        return found

    def _negation(self) -> _Node:
        if self._word("NOT"):
            return _truth(_negated(_tested(self._negation())))
        return self._comparison()

    def _comparison(self) -> _Node:
        left = self._sum()
        found = self._compared(left)
        # Chained comparisons, which the server evaluates from the left, are too rare to be supported here.
        if found is not left and self._compares_on():
            raise _NotLocal
        return found

    def _compares_on(self) -> bool:
        token = self._here()
        if token is None:
            return False
        return (token.kind is Kind.SYMBOL and token.text in "=<>!") or token.is_word(
            "IS", "IN", "BETWEEN", "NOT", "LIKE", "REGEXP", "RLIKE"
        )

    def _compared(self, left: _Node) -> _Node:
        if sign := self._sign():
            return _truth(_compared(sign, _number(left), _number(self._sum())))
        if self._word("IS"):
            return self._state(left, negated=self._word("NOT"))
        negated = self._word("NOT")
        if self._word("BETWEEN"):
            low = _number(self._sum())
            if not self._word("AND"):
                raise _NotLocal
            high = _number(self._sum())
            _check_signs(left, low, high)
            value = _number(left).of
            within = _both(_by_sign(">=", value, low.of), _by_sign("<=", value, high.of))
            return _truth(_negated(within) if negated else within)
        if self._word("IN"):
            self._need("(")
            items = [_number(self._sum())]
            while self._symbol(","):
                items.append(_number(self._sum()))
            self._need(")")
            _check_signs(left, *items)
            among = _among(_number(left).of, items)
            return _truth(_negated(among) if negated else among)
        if negated:
            raise _NotLocal
        return left

    def _sign(self) -> str:
        """The comparison operator that comes next, "" for none. Its characters are adjacent."""
        text = ""
        at = self._at
        while at < len(self._tokens) and len(text) < 3:
            token = self._tokens[at]
            if token.kind is not Kind.SYMBOL or token.text not in "<=>!":
                break
            if text and token.start != self._tokens[at - 1].end:
                break
            text += token.text
            at += 1
        if not text:
            return ""
        if text not in _SIGNS:
            raise _NotLocal
        self._at = at
        return text

    def _state(self, left: _Node, *, negated: bool) -> _Node:
        value = left.of
        if self._word("NULL") or self._word("UNKNOWN"):
            return _truth((lambda row: value(row) is not None) if negated else (lambda row: value(row) is None))
        for word, wanted in (("TRUE", True), ("FALSE", False)):
            if self._word(word):
                return _truth(_is(value, wanted, negated))
        raise _NotLocal

    # --- numbers

    def _sum(self) -> _Node:
        found = self._product()
        while True:
            if self._symbol("+"):
                found = _calculated(operator.add, found, self._product())
            elif self._symbol("-"):
                found = _calculated(operator.sub, found, self._product())
            else:
                return found

    def _product(self) -> _Node:
        found = self._signed()
        while self._symbol("*"):
            found = _calculated(operator.mul, found, self._signed())
        return found

    def _signed(self) -> _Node:
        if self._symbol("-"):
            inner = self._tokens[self._at] if self._at < len(self._tokens) else None
            if inner is None or inner.kind is not Kind.WORD or not inner.text.isdecimal():
                raise _NotLocal
            return self._literal(negative=True)
        return self._operand()

    def _operand(self) -> _Node:
        token = self._here()
        if token is None:
            raise _NotLocal
        if self._symbol("("):
            found = self.disjunction()
            self._need(")")
            return found
        if token.kind is Kind.WORD and token.text[0].isdigit():
            return self._literal(negative=False)
        following = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else None
        called = following is not None and following.is_symbol("(")
        if token.is_word("ISNULL") and called:
            self._at += 2
            value = self.disjunction().of
            self._need(")")
            return _truth(lambda row: value(row) is None)
        if not token.is_name or called or (following is not None and following.kind is Kind.STRING):
            raise _NotLocal
        place = self._columns.get(token.text.lower())
        if token.kind is Kind.WORD and place is None:
            return self._keyword()
        if place is None:
            raise _NotLocal
        self._at += 1
        return _column(*place)

    def _keyword(self) -> _Node:
        for word, value in (("NULL", None), ("TRUE", 1), ("FALSE", 0)):
            if self._word(word):
                return _Node(lambda _, value=value: value, truth=True)
        raise _NotLocal

    def _literal(self, *, negative: bool) -> _Node:
        token = self._tokens[self._at]
        self._at += 1
        if not (token.text.isascii() and token.text.isdecimal()) or len(token.text) > _DIGITS:
            raise _NotLocal
        if not self._symbol("."):
            value = -int(token.text) if negative else int(token.text)
            return _Node(lambda _: value, _Range(value, value), constant=True)
        fraction = self._here()
        point = self._tokens[self._at - 1]
        if (
            fraction is None
            or fraction.kind is not Kind.WORD
            or point.start != token.end
            or fraction.start != point.end
        ):
            raise _NotLocal
        if not (fraction.text.isascii() and fraction.text.isdecimal()):
            raise _NotLocal
        if len(token.text) + len(fraction.text) > _DECIMAL_DIGITS:
            raise _NotLocal
        self._at += 1
        exact = Decimal(f"{'-' if negative else ''}{token.text}.{fraction.text}")
        return _Node(lambda _: exact, constant=True)


def _column(place: int, column: Column) -> _Node:
    if column.kind is ValueKind.INTEGER:

        def whole(row: Sequence[bytes]) -> Number | None:
            literal = row[place]
            return None if literal == _NULL else int(literal)

        return _Node(whole, _range_of(column), place=place)
    if column.kind is ValueKind.DECIMAL:

        def exact(row: Sequence[bytes]) -> Number | None:
            literal = row[place]
            return None if literal == _NULL else Decimal(literal.decode("ascii"))

        return _Node(exact)
    raise _NotLocal


def _truth(of: Value) -> _Node:
    return _Node(of, truth=True)


def _tested(node: _Node) -> Value:
    """A number as a truth value: any number but zero is true."""
    return node.of


def _number(node: _Node) -> _Node:
    """A side of a comparison: a number, not a truth value, which has another type."""
    if node.truth:
        raise _NotLocal
    return node


def _range_of(column: Column) -> _Range | None:
    base = _BASE.match(column.type_text)
    bits = _INTEGER_BITS.get(base.group(), 0) if base else 0
    if not bits:
        return None
    if column.unsigned:
        return _Range(0, (1 << bits) - 1, unsigned=True)
    return _Range(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _check_signs(*nodes: _Node) -> None:
    """IN and BETWEEN of MySQL 9 take a negative number for a large one if another operand is unsigned."""
    whole = [node.bounds for node in nodes if node.bounds is not None]
    if any(bounds.unsigned for bounds in whole) and any(bounds.lowest < 0 for bounds in whole):
        raise _NotLocal


def _calculated(work: Callable[[int, int], int], left: _Node, right: _Node) -> _Node:
    first, second = left.bounds, right.bounds
    if first is None or second is None:
        raise _NotLocal
    corners = [work(one, other) for one in (first.lowest, first.highest) for other in (second.lowest, second.highest)]
    bounds = _Range(min(corners), max(corners), first.unsigned or second.unsigned)
    if not bounds.fits:
        raise _NotLocal
    one, other = left.of, right.of

    def result(row: Sequence[bytes]) -> Number | None:
        a, b = one(row), other(row)
        return None if a is None or b is None else work(int(a), int(b))

    return _Node(result, bounds)


_OPERATORS: dict[str, Callable[[Number, Number], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compared(sign: str, left: _Node, right: _Node) -> Value:
    """Like :func:`_by_sign`; in one step for a column of whole numbers and a constant, the most common case."""
    place = left.place
    if place is None or not right.constant or sign == "<=>":
        return _by_sign(sign, left.of, right.of)
    compare = _OPERATORS[sign]
    constant = right.of(())
    assert constant is not None  # noqa: S101 - for the type checker

    def result(row: Sequence[bytes]) -> Number | None:
        literal = row[place]
        return None if literal == _NULL else compare(int(literal), constant)

    return result


def _by_sign(sign: str, left: Value, right: Value) -> Value:
    if sign == "<=>":
        return lambda row: left(row) == right(row)
    compare = _OPERATORS[sign]

    def result(row: Sequence[bytes]) -> Number | None:
        one = left(row)
        other = right(row)
        return None if one is None or other is None else compare(one, other)

    return result


def _among(value: Value, items: Sequence[_Node]) -> Value:
    if all(item.constant for item in items):
        known = frozenset(item.of(()) for item in items)

        def found(row: Sequence[bytes]) -> Number | None:
            number = value(row)
            return None if number is None else number in known

        return found
    result = _by_sign("=", value, items[0].of)
    for item in items[1:]:
        result = _either(result, _by_sign("=", value, item.of))
    return result


def _both(left: Value, right: Value) -> Value:
    def result(row: Sequence[bytes]) -> Number | None:
        one = left(row)
        if one is not None and not one:
            return False
        other = right(row)
        if other is not None and not other:
            return False
        return None if one is None or other is None else True

    return result


def _either(left: Value, right: Value) -> Value:
    def result(row: Sequence[bytes]) -> Number | None:
        one = left(row)
        if one:
            return True
        other = right(row)
        if other:
            return True
        return None if one is None or other is None else False

    return result


def _differing(left: Value, right: Value) -> Value:
    def result(row: Sequence[bytes]) -> Number | None:
        one, other = left(row), right(row)
        return None if one is None or other is None else bool(one) != bool(other)

    return result


def _negated(inner: Value) -> Value:
    def result(row: Sequence[bytes]) -> Number | None:
        value = inner(row)
        return None if value is None else not value

    return result


def _is(value: Value, wanted: bool, negated: bool) -> Value:
    def result(row: Sequence[bytes]) -> Number | None:
        found = value(row)
        return (found is not None and bool(found) is wanted) is not negated

    return result
