"""The operation that the present thread carries out: a command of an operator, at whichever daemon. Pure.

Its id appears in log lines, in answers with an error, and in the records that the command writes. With traces it is
the trace id. Between daemons it travels as W3C Trace Context (https://www.w3.org/TR/trace-context/, `traceparent`), so
that a client with traces of its own sees ours below its span.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_ID = re.compile(r"[0-9a-f]{32}")
_NO_ID, _NO_SPAN = "0" * 32, "0" * 16


@dataclass(frozen=True, slots=True)
class Operation:
    """``id``: 32 hexadecimal digits. ``span``: the span below which further spans belong, 16 hexadecimal digits, "" if
    there is none."""

    id: str
    span: str = ""

    @property
    def traceparent(self) -> str:
        """The form between daemons; "" without a span."""
        return f"00-{self.id}-{self.span}-01" if self.span else ""


_present: ContextVar[Operation | None] = ContextVar("shardmerge_operation", default=None)


def new_operation() -> Operation:
    """A new one, without spans yet."""
    return Operation(secrets.token_hex(16))


def operation_of(identifier: str, traceparent: str) -> Operation | None:
    """The operation that another program has named; None if it named none, or not in the form that it should have."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is not None and found[1] != _NO_ID and found[2] != _NO_SPAN:
        return Operation(found[1], found[2])
    return Operation(identifier) if _ID.fullmatch(identifier) and identifier != _NO_ID else None


def present_operation() -> Operation | None:
    """The operation of this thread; None: it carries out none."""
    return _present.get()


@contextmanager
def within(operation: Operation | None) -> Generator[None]:
    """Carry out ``operation`` in this thread until the end of the block."""
    before = _present.get()
    _present.set(operation)
    try:
        yield
    finally:
        # By its value, not by the token: a generator may end in another context than the one in which it began.
        _present.set(before)
