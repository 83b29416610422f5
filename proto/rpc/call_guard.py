"""What a server does between every call and its handler: limits, the caller's name, checked fields, coded errors."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.log_rate_limit import RateLimit
from shardmerge.proto.rpc.admission import Admission, Full, Readings, RunningCalls
from shardmerge.proto.rpc.call_counts import CallCounts
from shardmerge.proto.rpc.caller import is_local
from shardmerge.proto.rpc.caller_proof import CallerCheck
from shardmerge.proto.rpc.coded_errors import abort, status_of
from shardmerge.proto.rpc.fields import check_fields
from shardmerge.proto.rpc.limits import ServerLimits
from shardmerge.proto.rpc.wire import Undecodable, has_more_fields
from shardmerge.proto.tls import process as tls
from shardmerge.proto.tracing.calls import operation_of_call
from shardmerge.proto.tracing.spans import span

_COUNTED_BYTES = 64 << 10
"""A larger request is counted before it is parsed, and only one of them is parsed at a time."""
_BYTES_PER_FIELD = 128
"""The most fields that a request may have: one for each of this many bytes of its size limit."""

_OF_EVERY_CALLER = ("/grpc.health.v1.Health/", "/grpc.reflection.", "/shardmerge.v1.Identity/")
"""The services that need no identity. Reflection, which an operator must turn on, describes what is public."""
_OF_RUN = ("/shardmerge.v1.Relay/", "/shardmerge.v1.CompareDesk/")
"""The services of a run's tasks: their handlers accept only the secret of the run."""

_Take = Callable[[Iterator[bytes], grpc.ServicerContext], Any]
_REFUSALS = (
    errors.master.CALL_TOO_MANY,
    errors.master.MESSAGE_TOO_LARGE,
    errors.master.MESSAGE_UNREADABLE,
    errors.master.FIELD_REFUSED,
    errors.tls.CALLER_UNKNOWN,
)


class _CallerGone(Exception):
    """The call ended while the server waited for its message. ``error``: the error of gRPC, which must be raised
    again."""

    def __init__(self, error: grpc.RpcError) -> None:
        super().__init__()
        self.error = error


@dataclass(frozen=True, slots=True)
class _Guarded:
    """A method as it is served. Both handlers receive their requests as streams, whatever the method's kind: so a call
    can be refused, and its caller checked, before any of its message is read."""

    admission: Admission
    admitted: grpc.RpcMethodHandler[Any, Any]
    refused: grpc.RpcMethodHandler[Any, Any]


class CallGuard(grpc.ServerInterceptor):
    """The interceptor between every call and its handler: limits, the caller's name, the request's fields, and coded
    errors."""

    def __init__(
        self,
        program: str,
        limits: ServerLimits,
        calls: RunningCalls,
        counts: CallCounts | None = None,
        callers: CallerCheck | None = None,
    ) -> None:
        """``counts``: counts every call that ends; None: none is counted. ``callers``: see
        :func:`shardmerge.proto.rpc.server.make_server`."""
        self._program = program or "the server"
        self._calls = calls
        self._counts = counts or CallCounts()
        self._callers = callers
        self._limits = limits
        self._readings = Readings(limits.readings, limits.patience)
        self._parsing = threading.Lock()
        self._refusal_log_limit = RateLimit()
        self._methods: dict[str, _Guarded] = {}

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = handler_call_details.method
        guarded = self._methods.get(method)
        if guarded is None:
            handler = continuation(handler_call_details)
            if handler is None:
                return None
            guarded = self._methods[method] = self._guarded(method, handler)
        return guarded.admitted if guarded.admission.admit() else guarded.refused

    def _guarded(self, method: str, handler: Any) -> _Guarded:
        admission = Admission(method, self._limits.of(method), self._readings)
        self._calls.add(admission)
        take = self._taking(method, handler)
        if handler.response_streaming:
            make = grpc.stream_stream_rpc_method_handler
            serve = self._streaming(handler.stream_stream or handler.unary_stream, method, admission, take)
        else:
            make = grpc.stream_unary_rpc_method_handler
            serve = self._unary(handler.stream_unary or handler.unary_unary, method, admission, take)
        cast("Any", serve).experimental_thread_pool = admission.pool

        def refuse(requests: Iterator[bytes], context: grpc.ServicerContext) -> NoReturn:
            with self._coding(context, method):
                raise self._too_many(admission.full(), method)
            raise AssertionError("unreachable")

        return _Guarded(
            admission,
            make(cast("Any", serve), response_serializer=handler.response_serializer),
            make(cast("Any", refuse), response_serializer=handler.response_serializer),
        )

    def _unary(
        self, inner: Callable[[Any, Any], Any], method: str, admission: Admission, take: _Take
    ) -> Callable[[Iterator[bytes], grpc.ServicerContext], Any]:
        def call(requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            try:
                with self._coding(context, method), self._placed(context, method, admission), _traced(context, method):
                    return inner(take(requests, context), context)
            finally:
                admission.release()

        return call

    def _streaming(
        self, inner: Callable[[Any, Any], Iterator[Any]], method: str, admission: Admission, take: _Take
    ) -> Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[Any]]:
        def call(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                with self._coding(context, method), self._placed(context, method, admission), _traced(context, method):
                    yield from inner(take(requests, context), context)
            finally:
                admission.release()

        return call

    def _taking(self, method: str, handler: Any) -> _Take:
        """The function that makes the handler's argument from the requests."""
        read = self._reader(method, handler.request_deserializer)

        def one(requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            try:
                return read(requests, context)
            except StopIteration:
                raise errors.master.MESSAGE_UNREADABLE(method=method, what="the call has no message") from None

        def each(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Any]:
            while True:
                try:
                    request = read(requests, context)
                except StopIteration:
                    return
                yield request

        return each if handler.request_streaming else one

    def _reader(
        self, method: str, parse: Callable[[bytes], Any]
    ) -> Callable[[Iterator[bytes], grpc.ServicerContext], Any]:
        limit = self._limits.of(method).message_bytes

        def read(requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            """The next request, complete and checked. Raises StopIteration after the last, _CallerGone, coded
            errors."""
            try:
                message = self._readings.enter(method, context.cancel)
            except Full as full:
                raise self._too_many(full, method) from None
            try:
                raw = next(requests)
                self._readings.received(message)
                if len(raw) > limit:
                    what = f"it has {len(raw)} bytes, and may have {limit}"
                    raise errors.master.MESSAGE_TOO_LARGE(method=method, what=what)
                if (check := self._proof_check(context, method)) is not None:
                    check.check(check.read(_metadata(context)), method, raw)
                return self._parsed(raw, parse, method, limit // _BYTES_PER_FIELD)
            except grpc.RpcError as error:
                raise _CallerGone(error) from error
            finally:
                self._readings.leave(message)

        return read

    def _parsed(self, raw: bytes, parse: Callable[[bytes], Any], method: str, most_fields: int) -> Any:
        if len(raw) <= _COUNTED_BYTES:
            return _checked(raw, parse, method)
        # The deserializer of generated code is a method of the message's class.
        descriptor = getattr(getattr(parse, "__self__", None), "DESCRIPTOR", None)
        with self._parsing:
            try:
                if isinstance(descriptor, Descriptor) and has_more_fields(raw, descriptor, most_fields):
                    what = f"it has more than {most_fields} fields"
                    raise errors.master.MESSAGE_TOO_LARGE(method=method, what=what)
            except Undecodable:
                raise _unreadable(raw, method) from None
            return _checked(raw, parse, method)

    @contextlib.contextmanager
    def _coding(self, context: grpc.ServicerContext, method: str) -> Generator[None]:
        began, status = time.monotonic(), grpc.StatusCode.OK
        try:
            self._check_caller(context, method)
            yield
        except _CallerGone as gone:
            status = grpc.StatusCode.CANCELLED
            raise gone.error from None
        except GeneratorExit:  # the caller has gone before the end of a stream
            status = grpc.StatusCode.CANCELLED
            raise
        except ShardmergeError as error:
            status = status_of(error)
            if error.spec in _REFUSALS and context.is_active():
                self._log_refusal(context, method, error)
            abort(context, error)
        except Exception as error:
            own = cast("Any", context).code()  # missing in the published stubs
            status = grpc.StatusCode.INTERNAL if own is None else own
            if own is not None:
                raise  # the handler's own context.abort()
            get_logger().error("internal error", method=method, exc_info=True)
            abort(
                context,
                errors.master.INTERNAL(program=self._program, kind=type(error).__name__, method=method),
            )
        finally:
            self._counts.answered(method, status, time.monotonic() - began)

    @contextlib.contextmanager
    def _placed(self, context: grpc.ServicerContext, method: str, admission: Admission) -> Generator[None]:
        """Hold a place for a call, among those of its connection and of its method."""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(admission.connection(context.peer()))
                held.enter_context(admission.place())
            except Full as full:
                raise self._too_many(full, method) from None
            yield

    def _too_many(self, full: Full, method: str) -> ShardmergeError:
        return errors.master.CALL_TOO_MANY(program=self._program, method=method, what=full)

    def _log_refusal(self, context: grpc.ServicerContext, method: str, error: ShardmergeError) -> None:
        """Log a refused call, with a rate limit: one caller can cause many refusals."""
        left_out = self._refusal_log_limit.left_out((method, error.code))
        if left_out is not None:
            get_logger().warning("call refused", peer=context.peer(), error=str(error), left_out=left_out)

    def _proof_check(self, context: grpc.ServicerContext, method: str) -> CallerCheck | None:
        """What checks the call's proof; None: it needs none, because something else shows who calls, or because the
        method is for every caller."""
        is_shown = is_local(context) or tls.of_process() is not None
        return None if is_shown or method.startswith((*_OF_EVERY_CALLER, *_OF_RUN)) else self._callers

    def _check_caller(self, context: grpc.ServicerContext, method: str) -> None:
        """Raises ``errors.tls.NAME_REFUSED`` for a valid certificate that is not among the allowed ones, and, before
        anything of a request is read, CALLER_UNKNOWN or CALLER_PROOF_STALE for a call without a fitting proof."""
        if (check := self._proof_check(context, method)) is not None:
            check.read(_metadata(context))
        if tls.of_process() is None or is_local(context):
            return
        # A list of values per name, unlike in the published stubs.
        shown = cast("dict[str, list[bytes]]", context.auth_context()).get("x509_common_name", [])
        names = [name.decode(errors="backslashreplace") for name in shown]
        if not any(tls.name_allowed(name) for name in names or [""]):
            raise errors.tls.NAME_REFUSED(program=self._program, name=", ".join(names) or "no name")


def _metadata(context: grpc.ServicerContext) -> dict[str, str | bytes]:
    # Named pairs, unlike in the published stubs.
    return dict(cast("Iterable[tuple[str, str | bytes]]", context.invocation_metadata() or ()))


def _traced(context: grpc.ServicerContext, method: str) -> AbstractContextManager[None]:
    """The call as a part of its operation."""
    return span(method.rpartition("/")[2], operation_of_call(context), method=method)


def _checked(raw: bytes, parse: Callable[[bytes], Any], method: str) -> Any:
    """The parsed request. Raises MESSAGE_UNREADABLE, FIELD_REFUSED."""
    try:
        request = parse(raw)
    except (DecodeError, ValueError):
        raise _unreadable(raw, method) from None
    if isinstance(request, Message):
        check_fields(request, method)
    return request


def _unreadable(raw: bytes, method: str) -> ShardmergeError:
    what = f"the {len(raw)} bytes received are not this method's message"
    return errors.master.MESSAGE_UNREADABLE(method=method, what=what)
