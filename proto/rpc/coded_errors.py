"""Coded errors on the wire: a failed call carries its error as trailing metadata.

A peer of another version can show an error that it does not know: the metadata has the rendered texts.
"""

from __future__ import annotations

from typing import Any, NoReturn, cast

import grpc

from shardmerge.proto import common_pb2, errors
from shardmerge.proto.errors import CATALOGUE, ErrorSpec, Level, Scope, ShardmergeError

ERROR_METADATA = "shardmerge-error-bin"
"""Trailing metadata of a failed call: a serialized ErrorDetail."""

MAX_METADATA_BYTES = 64 << 10
"""Metadata must fit one HTTP/2 header list, on every proxy on the way: texts are cut well below it."""
_MAX_TEXT_CHARS = 4_000


def error_to_proto(error: ShardmergeError) -> common_pb2.ErrorDetail:
    """The error with its texts rendered, so that a peer of another version can show it."""
    spec = error.spec
    return common_pb2.ErrorDetail(
        code=spec.code,
        name=spec.name,
        error_class=spec.error_class,
        scope=cast("common_pb2.ErrorScope", spec.scope.value),
        level=cast("common_pb2.ErrorLevel", spec.level.value),
        message=error.message,
        workaround=error.workaround,
        retryable=spec.retryable,
        args=error.values,
    )


def error_from_proto(detail: common_pb2.ErrorDetail) -> ShardmergeError:
    """The error a peer sent. A code or wording this program does not know keeps the peer's own texts."""
    known = CATALOGUE.get(detail.code)
    if known is not None:
        error = known(**detail.args)
        if error.message == detail.message and error.workaround == detail.workaround:
            return error
    spec = ErrorSpec(
        code=detail.code,
        name=detail.name,
        error_class=detail.error_class,
        scope=_enum(Scope, detail.scope, Scope.INTERNAL),
        level=_enum(Level, detail.level, Level.HIGH),
        message=_literal(detail.message),
        workaround=_literal(detail.workaround),
        retryable=detail.retryable,
    )
    return ShardmergeError(spec, dict(detail.args))


def detail_of(error: grpc.RpcError) -> common_pb2.ErrorDetail | None:
    """The coded error that a failed call carries; None: it carries none."""
    if not isinstance(error, grpc.Call):
        return None
    # The published stubs type the metadata as one pair.
    for key, value in cast("tuple[tuple[str, str | bytes], ...]", error.trailing_metadata() or ()):
        if key == ERROR_METADATA and isinstance(value, bytes):
            return common_pb2.ErrorDetail.FromString(value)
    return None


def same_error(error: ShardmergeError, spec: ErrorSpec) -> bool:
    """Whether ``error`` is this entry; by code, so it holds for one that came from a peer too."""
    return error.code == spec.code


def _enum(kind: Any, value: int, default: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        return default


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def status_of(error: ShardmergeError) -> grpc.StatusCode:
    """The gRPC status for other programs: less exact than the error's code."""
    if error.spec is errors.tls.NAME_REFUSED:
        return grpc.StatusCode.PERMISSION_DENIED
    if error.spec in (errors.tls.CALLER_UNKNOWN, errors.tls.CALLER_PROOF_STALE):
        return grpc.StatusCode.UNAUTHENTICATED
    if error.spec in (errors.master.CALL_TOO_MANY, errors.master.MESSAGE_TOO_LARGE):
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    if error.spec.retryable:
        return grpc.StatusCode.UNAVAILABLE
    match error.spec.scope:
        case Scope.CONFIG:
            return grpc.StatusCode.INVALID_ARGUMENT
        case Scope.SOURCE | Scope.TARGET:
            return grpc.StatusCode.FAILED_PRECONDITION
        case Scope.INTERNAL:
            return grpc.StatusCode.INTERNAL


def abort(context: grpc.ServicerContext, error: ShardmergeError) -> NoReturn:
    """End the call with ``error``: as its status, and in the metadata with texts cut to fit."""
    detail = error_to_proto(error)
    detail.message = detail.message[:_MAX_TEXT_CHARS]
    detail.workaround = detail.workaround[:_MAX_TEXT_CHARS]
    if detail.ByteSize() > MAX_METADATA_BYTES // 4:
        detail.args.clear()
    context.set_trailing_metadata(((ERROR_METADATA, detail.SerializeToString()),))
    context.abort(status_of(error), str(error)[:_MAX_TEXT_CHARS])
