"""An operation is taken from a caller only in its exact form, and ends with its block."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardmerge.proto.tracing.operation import Operation, new_operation, operation_of, present_operation, within

_ID, _SPAN = "0123456789abcdef" * 2, "fedcba9876543210"


@pytest.mark.parametrize(
    ("identifier", "traceparent", "found"),
    [
        ("", f"00-{_ID}-{_SPAN}-01", Operation(_ID, _SPAN)),
        ("a" * 32, f"00-{_ID}-{_SPAN}-00", Operation(_ID, _SPAN)),
        (_ID, "", Operation(_ID)),
        (_ID, f"00-{_ID}-{'0' * 16}-01", Operation(_ID)),  # no span
        (_ID, f"00-{'0' * 32}-{_SPAN}-01", Operation(_ID)),  # no trace
        ("0" * 32, "", None),
        (_ID.upper(), "", None),
        (_ID + "\n", "", None),
        ("", f"00-{_ID}-{_SPAN}-01\nforged=1", None),
        ("", f"ff-{_ID}-{_SPAN}-01", None),  # W3C: no version
        ("", "", None),
    ],
)
def test_an_operation_has_exactly_one_form(identifier: str, traceparent: str, found: Operation | None) -> None:
    assert operation_of(identifier, traceparent) == found


@given(st.text(), st.text())
def test_nothing_but_digits_comes_from_outside(identifier: str, traceparent: str) -> None:
    found = operation_of(identifier, traceparent)
    assert found is None or set(found.id + found.span) <= set("0123456789abcdef")


_DIGITS = "0123456789abcdef"
_PART = st.text(_DIGITS + "AF-\n\u0660", max_size=2)


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.tuples(_PART, _PART, _PART, _PART))
@example(1, 1, ("", "", "", ""))
def test_a_header_that_is_nearly_right_is_none(identifier: int, above: int, more: tuple[str, str, str, str]) -> None:
    first, second, third, last = more
    header = f"{first}00-{identifier:032x}{second}-{above:016x}{third}-01{last}"
    exact = Operation(f"{identifier:032x}", f"{above:016x}") if more == ("", "", "", "") else None
    assert operation_of("", header) == exact
    name = f"{first}{identifier:032x}{last}"
    assert operation_of(name, "") == (Operation(name) if not first + last else None)


def test_a_traceparent_is_read_as_it_was_written() -> None:
    operation = Operation(new_operation().id, _SPAN)
    assert operation_of("", operation.traceparent) == operation
    assert not new_operation().traceparent


def test_blocks_may_be_nested() -> None:
    one, other = new_operation(), new_operation()
    assert one != other
    with within(one):
        with within(other):
            assert present_operation() == other
        with within(None):
            assert present_operation() is None
        assert present_operation() == one
    assert present_operation() is None
