"""gRPC between the programs: servers that answer with coded errors, clients that read them."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from proto import common_pb2, errors
from proto.errors import CATALOGUE, ErrorSpec, Level, Scope, ShardmergeError
from proto.local_socket import SCHEME, LocalSocket
from proto.log import get_logger
from proto.log_rate import RateLimit
from proto.rpc_admission import Admission, Full, Readings
from proto.rpc_fields import check_fields
from proto.rpc_limits import ServerLimits, of_each_method
from proto.rpc_wire import Undecodable, has_more_fields
from proto.tls import process as tls
from proto.tls.diagnose import diagnosed

ERROR_METADATA = "shardmerge-error-bin"
"""Trailing metadata of a failed call: a serialized ErrorDetail."""

MAX_MESSAGE_BYTES = (1 << 30) + (64 << 20)
"""A row of 1 GiB, the largest a server sends, is one event and so one message of the relay stream."""

# Metadata must fit one HTTP/2 header list, on every proxy on the way: texts are cut well below it.
_MAX_METADATA_BYTES = 64 << 10
_MAX_TEXT_CHARS = 4_000

_IDLE_MS = 10 * 60_000
_HANDSHAKE_MS = 20_000
_COUNTED_BYTES = 64 << 10
"""A larger request is counted before it is parsed, and only one of them is parsed at a time."""
_BYTES_PER_FIELD = 128
"""A request may have one field for so many of the bytes that it may have."""

_COMMON_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
_SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_COMMON_OPTIONS,
    # Without it a second daemon on the same port would silently take half of the connections.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # A caller connects again by itself.
    ("grpc.max_connection_idle_ms", _IDLE_MS),
    ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
    # What has come of a message that is not asked for yet stays small.
    ("grpc.http2.bdp_probe", 0),
)
_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *_COMMON_OPTIONS,
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


_Take = Callable[[Iterator[bytes], grpc.ServicerContext], Any]
_REFUSALS = (
    errors.master.CALL_TOO_MANY,
    errors.master.MESSAGE_TOO_LARGE,
    errors.master.MESSAGE_UNREADABLE,
    errors.master.FIELD_REFUSED,
)


# --- errors on the wire


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


# --- servers


def make_server(
    services: Sequence[str],
    program: str = "",
    limits: ServerLimits | None = None,
    *,
    reflect: bool = False,
) -> grpc.Server:
    """A server with health; the caller adds its servicers, listens and starts it.

    ``services``: full names such as "shardmerge.v1.Master" that health reports as serving. ``program``: named in
    errors. ``limits``: without them, wide ones. ``reflect``: whether the server describes its services to whoever asks.
    A handler that raises a ShardmergeError answers with it; any other exception is logged with its traceback
    and answered by ``errors.master.INTERNAL``, which has no details. A call that breaks a limit, cannot be decoded or
    has a field that breaks its rule (:mod:`proto.rpc_fields`) reaches no handler.
    """
    held = limits or of_each_method(64)
    server = grpc.server(
        # The methods have pools of their own; this one only refuses.
        futures.ThreadPoolExecutor(2, thread_name_prefix="grpc-refuse"),
        interceptors=[_Guard(program, held)],
        options=(
            *_SERVER_OPTIONS,
            ("grpc.max_receive_message_length", held.message_bytes),
            ("grpc.max_concurrent_streams", held.connection_calls),
            ("grpc.max_allowed_incoming_connections", _most_connections()),
        ),
    )
    health_servicer = _Health(frozenset({"", *services}))
    for service in ("", *services):
        health_servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    if reflect:
        names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
    return server


def _most_connections() -> int:
    """Half of the files that this process may open: its own connections and files must still find room."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 10_000 if soft == resource.RLIM_INFINITY else max(soft // 2, 100)


class _Health(health.HealthServicer):
    """The library's keeps something of every service that was ever asked for; here of those alone that there are."""

    def __init__(self, known: frozenset[str]) -> None:
        super().__init__(experimental_non_blocking=False)
        self._known = known

    def Watch(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.ServicerContext,
        send_response_callback: Any = None,
    ) -> Any:
        if request.service not in self._known:
            return iter([health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)])
        return cast("Any", super()).Watch(request, context, send_response_callback)


def listen(server: grpc.Server, address: str) -> int:
    """Bind ``host:port`` (port 0: any free one; no host: every interface, by IPv4 and IPv6 where there are both); the
    port. Raises ``errors.master.CANNOT_LISTEN``.

    With :func:`proto.tls.process.use` it takes TLS only, from callers that show a certificate.
    """
    certificates = tls.keeper()
    # gRPC takes the unspecified address of IPv6 for every address of IPv4, too, and for these alone without IPv6.
    where = f"[::]{address}" if address.startswith(":") else address
    try:
        if certificates is None:
            port = server.add_insecure_port(where)
        else:
            port = server.add_secure_port(where, certificates.server_credentials())
    except RuntimeError as error:
        raise errors.master.CANNOT_LISTEN(address=address, reason=_bind_error_reason(where)) from error
    if port == 0:
        raise errors.master.CANNOT_LISTEN(address=address, reason=_bind_error_reason(where))
    return port


def _bind_error_reason(address: str) -> str:
    """The operating system's reason why ``host:port`` cannot be bound: gRPC does not report it."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, ValueError):
        return f"the host {host} is not known"
    for family, kind, protocol, _, place in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
                probe.listen()
        except OSError as error:
            match error.errno:
                case errno.EADDRINUSE:
                    return "another process listens there"
                case errno.EADDRNOTAVAIL:
                    return "this machine has no such address"
                case _:
                    return (error.strerror or str(error)).lower()
    return "the address cannot be bound"


def listen_locally(server: grpc.Server, local: LocalSocket) -> None:
    """Bind ``local`` as well: in plain text, for its folder lets in this user alone. Raises
    ``errors.master.SOCKET_UNUSABLE``."""
    try:
        server.add_insecure_port(local.address)
        local.restrict()
    except (RuntimeError, OSError) as error:
        raise errors.master.SOCKET_UNUSABLE(path=local.path, reason="it cannot be bound") from error


def is_local(context: grpc.ServicerContext) -> bool:
    """Whether a call came by :func:`listen_locally`."""
    return context.peer().startswith(SCHEME)


def is_private(context: grpc.ServicerContext) -> bool:
    """Whether an answer may contain secrets: the call came by a Unix socket, or by TLS with a client certificate."""
    # A list of values per name, whatever the published stubs say.
    return is_local(context) or bool(cast("dict[str, list[bytes]]", context.auth_context()).get("x509_pem_cert"))


def status_of(error: ShardmergeError) -> grpc.StatusCode:
    """The gRPC status that tells other programs roughly what the code says exactly."""
    if error.spec is errors.tls.NAME_REFUSED:
        return grpc.StatusCode.PERMISSION_DENIED
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


class _CallerGone(Exception):
    """The call ended while its message was waited for. ``error``: what gRPC raised, and wants to see again."""

    def __init__(self, error: grpc.RpcError) -> None:
        super().__init__()
        self.error = error


@dataclass(frozen=True, slots=True)
class _Guarded:
    """A method as it is served. Both handlers take their requests as streams, whatever the method does: so a call can
    be refused, and its caller looked at, before anything of its message is read."""

    admission: Admission
    admitted: grpc.RpcMethodHandler[Any, Any]
    refused: grpc.RpcMethodHandler[Any, Any]


class _Guard(grpc.ServerInterceptor):
    """Between every call and its handler: limits, the caller's name, the request's fields, and coded errors."""

    def __init__(self, program: str, limits: ServerLimits) -> None:
        self._program = program or "the server"
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
                with self._coding(context, method), self._placed(context, method, admission):
                    return inner(take(requests, context), context)
            finally:
                admission.release()

        return call

    def _streaming(
        self, inner: Callable[[Any, Any], Iterator[Any]], method: str, admission: Admission, take: _Take
    ) -> Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[Any]]:
        def call(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                with self._coding(context, method), self._placed(context, method, admission):
                    yield from inner(take(requests, context), context)
            finally:
                admission.release()

        return call

    def _taking(self, method: str, handler: Any) -> _Take:
        """How the handler's argument is made of the requests."""
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
            """The next request, whole and checked. Raises StopIteration after the last, _CallerGone, coded errors."""
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
        try:
            self._check_caller(context)
            yield
        except _CallerGone as gone:
            raise gone.error from None
        except ShardmergeError as error:
            if error.spec in _REFUSALS and context.is_active():
                self._log_refusal(context, method, error)
            _abort(context, error)
        except Exception as error:
            if cast("Any", context).code() is not None:  # missing in the published stubs
                raise  # the handler's own context.abort()
            get_logger().error("internal error", method=method, exc_info=True)
            _abort(
                context,
                errors.master.INTERNAL(program=self._program, kind=type(error).__name__, method=method),
            )

    @contextlib.contextmanager
    def _placed(self, context: grpc.ServicerContext, method: str, admission: Admission) -> Generator[None]:
        """A place for a call, among those of its connection and of its method."""
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

    def _check_caller(self, context: grpc.ServicerContext) -> None:
        """Raises ``errors.tls.NAME_REFUSED`` for a certificate that is right and not among those that may call."""
        if tls.of_process() is None or is_local(context):
            return
        # A list of values per name, whatever the published stubs say.
        shown = cast("dict[str, list[bytes]]", context.auth_context()).get("x509_common_name", [])
        names = [name.decode(errors="backslashreplace") for name in shown]
        if not any(tls.name_allowed(name) for name in names or [""]):
            raise errors.tls.NAME_REFUSED(program=self._program, name=", ".join(names) or "no name")


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
    what = f"{len(raw)} bytes came that are not this method's message"
    return errors.master.MESSAGE_UNREADABLE(method=method, what=what)


def _abort(context: grpc.ServicerContext, error: ShardmergeError) -> NoReturn:
    detail = error_to_proto(error)
    detail.message = detail.message[:_MAX_TEXT_CHARS]
    detail.workaround = detail.workaround[:_MAX_TEXT_CHARS]
    if detail.ByteSize() > _MAX_METADATA_BYTES // 4:
        detail.args.clear()
    context.set_trailing_metadata(((ERROR_METADATA, detail.SerializeToString()),))
    context.abort(status_of(error), str(error)[:_MAX_TEXT_CHARS])


# --- clients


def channel(address: str) -> grpc.Channel:
    """A channel to ``host:port``, or to ``unix:PATH`` in plain text: large messages, keep-alive pings, quick
    reconnects, no proxy.

    By the certificates that :func:`proto.tls.process.use` gave this process, as they are now; without, in plain text.
    """
    certificates = tls.keeper()
    if certificates is None or address.startswith(SCHEME):
        return grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
    return grpc.secure_channel(address, certificates.channel_credentials(), options=_CHANNEL_OPTIONS)


def coded_from_rpc(error: grpc.RpcError, peer: str, address: str = "") -> ShardmergeError:
    """The coded error behind a failed call; ``peer`` names the other side, e.g. "worker w1 (host:8262)".

    ``address``: its ``host:port``; a connection that did not come about is then asked for its reason (``errors.tls``).
    """
    if not isinstance(error, grpc.Call):
        return errors.master.PEER_FAILED(peer=peer, reason=error)
    # The published stubs take the metadata for one pair.
    for key, value in cast("tuple[tuple[str, str | bytes], ...]", error.trailing_metadata() or ()):
        if key == ERROR_METADATA and isinstance(value, bytes):
            return error_from_proto(common_pb2.ErrorDetail.FromString(value))
    reason = error.details() or error.code().name
    match error.code():
        case grpc.StatusCode.UNAVAILABLE:
            of_tls = diagnosed(address) if address else None
            if of_tls is not None:
                return of_tls
            return errors.master.PEER_UNREACHABLE(peer=peer, reason=reason)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return errors.master.PEER_TIMEOUT(peer=peer)
        case grpc.StatusCode.UNIMPLEMENTED:
            return errors.master.PEER_UNIMPLEMENTED(peer=peer, reason=reason)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:  # by gRPC itself: larger than any method's messages may be
            return errors.master.PEER_REFUSED(peer=peer, reason=reason)
        case _:
            return errors.master.PEER_FAILED(peer=peer, reason=f"{reason} ({error.code().name})")
