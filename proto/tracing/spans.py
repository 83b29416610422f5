"""Spans of traces: timed parts of an operation. Without a configured endpoint nothing is recorded, at no cost."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Protocol

from shardmerge.proto.tracing.operation import Operation, present_operation, within

Attributes = Mapping[str, str]


class TraceSpan(Protocol):
    """A part of an operation that has begun."""

    @property
    def operation(self) -> Operation:
        """The operation with this span, below which further spans belong."""
        ...

    def end(self, error: BaseException | None = None) -> None:
        """The part is over; ``error``: why it failed. A second call changes nothing."""
        ...


class Tracer(Protocol):
    """Records spans."""

    def begin(self, name: str, parent: Operation, attributes: Attributes) -> TraceSpan: ...

    def close(self) -> None:
        """Send what is not sent yet; takes some seconds at most."""
        ...


class _NoSpan:
    def __init__(self, operation: Operation) -> None:
        self.operation = operation

    def end(self, error: BaseException | None = None) -> None:
        """Nothing was recorded."""


class _NoTracer:
    def begin(self, name: str, parent: Operation, attributes: Attributes) -> TraceSpan:
        return _NoSpan(parent)

    def close(self) -> None:
        """Nothing was recorded."""


_NO_TRACER = _NoTracer()
_tracer: Tracer = _NO_TRACER


def use_tracer(tracer: Tracer | None) -> None:
    """Let this process record its spans with ``tracer``; None: record none."""
    global _tracer  # noqa: PLW0603 - one per process, like the logger's configuration
    _tracer = tracer if tracer is not None else _NO_TRACER


def end_tracing() -> None:
    """Send what is not sent yet, and record nothing more."""
    tracer = _tracer
    use_tracer(None)
    tracer.close()


def begin_span(name: str, **attributes: str) -> TraceSpan | None:
    """Begin a part of this thread's operation; None if it carries out none."""
    operation = present_operation()
    return None if operation is None else _tracer.begin(name, operation, attributes)


@contextmanager
def span(name: str, operation: Operation, **attributes: str) -> Generator[None]:
    """Carry out a part of ``operation`` in this thread; an exception of the block is the part's error."""
    begun = _tracer.begin(name, operation, attributes)
    try:
        with within(begun.operation):
            yield
    except BaseException as error:
        begun.end(error)
        raise
    else:
        begun.end()
