"""Carries the operation along with gRPC calls: a client sends it as metadata, a server reads it from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import grpc

from shardmerge.proto.tracing.operation import Operation, new_operation, operation_of, present_operation

OPERATION_HEADER = "shardmerge-operation"
TRACEPARENT_HEADER = "traceparent"


def operation_of_call(context: grpc.ServicerContext) -> Operation:
    """The operation of a call: the one that its client names, else a new one. Nothing else of the metadata is used, and
    a name of another form is ignored."""
    found: dict[str, str] = {}
    # Named pairs, unlike in the published stubs.
    for key, value in cast("Iterable[tuple[str, str | bytes]]", context.invocation_metadata() or ()):
        if key in (OPERATION_HEADER, TRACEPARENT_HEADER) and isinstance(value, str):
            found[key] = value
    named = operation_of(found.get(OPERATION_HEADER, ""), found.get(TRACEPARENT_HEADER, ""))
    return named if named is not None else new_operation()


class _CallDetails(NamedTuple):
    """What grpc.ClientCallDetails has; the class itself has no constructor."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class OperationOfCaller(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # pyright: ignore[reportMissingTypeArgument, reportUntypedBaseClass]
    """Adds the operation of the calling thread to each call."""

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        return continuation(_with_operation(client_call_details), request)

    def intercept_unary_stream(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        return continuation(_with_operation(client_call_details), request)


def _with_operation(details: Any) -> Any:
    operation = present_operation()
    if operation is None:
        return details
    metadata = [*(details.metadata or ()), (OPERATION_HEADER, operation.id)]
    if operation.traceparent:
        metadata.append((TRACEPARENT_HEADER, operation.traceparent))
    return _CallDetails(
        details.method,
        details.timeout,
        metadata,
        details.credentials,
        getattr(details, "wait_for_ready", None),
        getattr(details, "compression", None),
    )
