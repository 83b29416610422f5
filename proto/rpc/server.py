"""gRPC servers: made with health and limits, and bound to their addresses."""

from __future__ import annotations

import errno
import resource
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any, cast

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from shardmerge.proto import errors, identity_pb2, identity_pb2_grpc
from shardmerge.proto.files.local_socket import LocalSocket
from shardmerge.proto.rpc import caller_proof
from shardmerge.proto.rpc.admission import RunningCalls
from shardmerge.proto.rpc.call_counts import CallCounts
from shardmerge.proto.rpc.call_guard import CallGuard
from shardmerge.proto.rpc.caller_proof import CallerCheck
from shardmerge.proto.rpc.limits import ServerLimits, of_each_method
from shardmerge.proto.rpc.options import COMMON_OPTIONS
from shardmerge.proto.tls import process as tls

_IDLE_MS = 10 * 60_000
_HANDSHAKE_MS = 20_000

_SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *COMMON_OPTIONS,
    # Without it a second daemon on the same port would silently take half of the connections.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # A caller connects again by itself.
    ("grpc.max_connection_idle_ms", _IDLE_MS),
    ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
    # The received part of a message that is not requested yet stays small.
    ("grpc.http2.bdp_probe", 0),
)


def make_server(
    services: Sequence[str],
    program: str = "",
    limits: ServerLimits | None = None,
    *,
    reflect: bool = False,
    serving: Serving | None = None,
    calls: RunningCalls | None = None,
    counts: CallCounts | None = None,
    callers: CallerCheck | None = None,
) -> grpc.Server:
    """A server with health; the caller adds its servicers, listens and starts it.

    ``services``: full names such as "shardmerge.v1.Master" that health reports as serving. ``program``: named in
    errors. ``limits``: None for wide ones. ``reflect``: whether the server describes its services to every caller.
    ``serving``: by which health changes its answer; None: it always reports that the services are serving. ``calls``:
    reports the running calls. ``counts``: counts those that have ended. ``callers``: checks the callers in plain text
    that do not use the local socket; None: all of them are accepted, as within one process. To callers the server
    proves itself in any case. A handler
    that raises a ShardmergeError answers with it; any other exception is logged with its traceback and answered
    by ``errors.master.INTERNAL``, which has no details. A call that breaks a limit, cannot be decoded or has a field
    that breaks its rule (:mod:`shardmerge.proto.rpc.fields`) reaches no handler.
    """
    held = limits or of_each_method(64)
    server = grpc.server(
        # The methods have pools of their own; this one only refuses.
        futures.ThreadPoolExecutor(2, thread_name_prefix="grpc-refuse"),
        interceptors=[CallGuard(program, held, calls or RunningCalls(), counts, callers)],
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
    proving = callers or CallerCheck(caller_proof.keys_of_process, program)
    identity_pb2_grpc.add_IdentityServicer_to_server(_Identity(proving), server)
    if serving is not None:
        serving.attach(health_servicer, ("", *services))
    if reflect:
        names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
    return server


Handler = Callable[[Any, grpc.ServicerContext], Any]
"""Makes the answer to a request of its method, or, for a method with a stream of answers, an iterator of them."""


def add_service(server: grpc.Server, service: ServiceDescriptor, handlers: Mapping[str, Handler]) -> None:
    """Let ``handlers``, by name of method, answer the calls of ``service``. Raises ValueError if a method has no
    handler, or a handler no method."""
    methods = service.methods_by_name
    if different := set(methods) ^ set(handlers):
        raise ValueError(f"{service.full_name}: without a handler or a method: {', '.join(sorted(different))}")
    made: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for name, method in methods.items():
        make = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        made[name] = make(
            handlers[name],
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, made),))


def _most_connections() -> int:
    """Half of the files that this process may open: the rest is for its own connections and files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 10_000 if soft == resource.RLIM_INFINITY else max(soft // 2, 100)


class _Identity(identity_pb2_grpc.IdentityServicer):
    def __init__(self, callers: CallerCheck) -> None:
        self._callers = callers

    def Prove(self, request: identity_pb2.ProveRequest, context: grpc.ServicerContext) -> identity_pb2.ProveResponse:
        return self._callers.prove(request)


class Serving:
    """Lets the health service report whether the daemon is ready, as /readyz does. Thread-safe."""

    def __init__(self) -> None:
        self._servicer: health.HealthServicer | None = None
        self._services: tuple[str, ...] = ()
        self._is_ready = True

    def attach(self, servicer: health.HealthServicer, services: tuple[str, ...]) -> None:
        """Set whose answers change. Until the first :meth:`update` they report that nothing is serving."""
        self._servicer, self._services = servicer, services
        self.update(is_ready=False)

    def update(self, *, is_ready: bool) -> None:
        """Report from now on that the services are serving, or not. Call it often: no change costs nothing."""
        if is_ready == self._is_ready or self._servicer is None:
            return
        self._is_ready = is_ready
        status = health_pb2.HealthCheckResponse.SERVING if is_ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in self._services:
            self._servicer.set(service, status)


class _Health(health.HealthServicer):
    """The library's servicer stores something for every requested service; this one only for existing services."""

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

    With :func:`shardmerge.proto.tls.process.use` it accepts only TLS, from callers that show a certificate.
    """
    certificates = tls.certificate_store()
    # For gRPC the unspecified address of IPv6 includes every address of IPv4; without IPv6 it means only these.
    where = f"[::]{address}" if address.startswith(":") else address
    try:
        if certificates is None:
            port = server.add_insecure_port(where)
        else:
            port = server.add_secure_port(where, certificates.server_credentials())
    except RuntimeError as error:
        raise errors.master.CANNOT_LISTEN(address=address, reason=bind_error_reason(where)) from error
    if port == 0:
        raise errors.master.CANNOT_LISTEN(address=address, reason=bind_error_reason(where))
    return port


def bind_error_reason(address: str) -> str:
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
    """Bind ``local`` as well: in plain text, as its folder allows this user only. Raises
    ``errors.master.SOCKET_UNUSABLE``."""
    try:
        server.add_insecure_port(local.address)
        local.restrict()
    except (RuntimeError, OSError) as error:
        raise errors.master.SOCKET_UNUSABLE(path=local.path, reason="it cannot be bound") from error
