"""Serves a daemon's HTTP pages in a thread of its own, so that a slow caller delays nothing else."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from uvicorn import Config
from uvicorn.server import ServerState

from shardmerge.proto import errors
from shardmerge.proto.config.address import EVERY_INTERFACE
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.http.acceptor import Acceptor
from shardmerge.proto.http.connection import IDLE_SECONDS, LimitedConnection
from shardmerge.proto.http.hosts import checked_host
from shardmerge.proto.http.probes import Probes
from shardmerge.proto.http.routes import MOST_HEAD_BYTES, Tokens, application
from shardmerge.proto.log import get_logger
from shardmerge.proto.rpc.server import bind_error_reason
from shardmerge.proto.tls import process as tls

if TYPE_CHECKING:
    from shardmerge.proto.tls.files import Certificates

_LOOK_SECONDS = 5.0
"""How often the certificate files are checked for new content."""
_BACKLOG = 64
_GRACE_SECONDS = 0.5
"""For answers in progress when the daemon ends."""
_START_SECONDS = 10.0


class HttpEndpoint:
    """One per daemon: :meth:`start` once, then :meth:`stop`.

    With :func:`shardmerge.proto.tls.process.use` it accepts only TLS, from callers that show a certificate.
    """

    def __init__(self, address: str, probes: Probes, tokens: Tokens | None = None) -> None:
        """``address``: host:port, without a host every interface. ``tokens``: those of the callers in plain text that
        get the metrics; None: all callers get them."""
        self._address = address
        has_tls = tls.of_process() is not None
        self._config = Config(
            application(probes, checked_host(address, has_tls=has_tls), None if has_tls else tokens),
            http=LimitedConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # its messages would appear outside of the daemon's log
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(IDLE_SECONDS),
            h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        )
        self._state = ServerState()
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._begun = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Listen. Raises CANNOT_LISTEN, and what the certificates raise; then nothing remains."""
        self._socket = _bound(self._address)
        self._thread.start()
        self._begun.wait(_START_SECONDS)
        if self._failure is not None:
            self.stop()
            if isinstance(self._failure, ShardmergeError):
                raise self._failure
            raise errors.master.CANNOT_LISTEN(address=self._address, reason=self._failure) from self._failure

    def stop(self, seconds: float = 2.0) -> None:
        """End all connections; returns when the thread has ended, at the latest after ``seconds``."""
        if self._loop is not None and self._ending is not None:
            with suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._ending.set)
        if self._thread.is_alive():
            self._thread.join(seconds)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001 - start() raises it, or the log has it
            self._failure = error
            if self._begun.is_set():
                get_logger().exception("the HTTP endpoint has ended")
        finally:
            self._begun.set()

    async def _serve(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        self._config.load()
        store = tls.certificate_store()
        served = None if store is None else store.current()
        loop = self._loop
        assert self._socket is not None  # noqa: S101 - for the type checker: start() has bound it
        with self._socket.dup() as listening:
            acceptor = Acceptor(
                listening,
                lambda: LimitedConnection(self._config, self._state, {}, loop),
                lambda: [each for each in self._state.connections if isinstance(each, LimitedConnection)],
            )
            acceptor.context = None if served is None else _context(served)
            accepting = loop.create_task(acceptor.run())
            self._begun.set()
            while not await _is_set(self._ending, _LOOK_SECONDS):
                if accepting.done():
                    accepting.result()  # raises
                now = None if store is None else store.current()
                if now is not None and now is not served:
                    served = now
                    try:
                        acceptor.context = _context(now)
                    except (ssl.SSLError, OSError) as error:
                        get_logger().warning("the HTTP endpoint keeps its former certificate", error=str(error))
            accepting.cancel()
            await asyncio.wait([accepting])
        await self._end_connections()

    async def _end_connections(self) -> None:
        for connection in list(self._state.connections):
            connection.shutdown()
        for _ in range(10):
            if not self._state.connections:
                return
            await asyncio.sleep(_GRACE_SECONDS / 10)
        for connection in list(self._state.connections):
            if isinstance(connection, LimitedConnection):
                connection.transport.abort()


def started_endpoint(
    address: str, probes: Probes, *, is_default: bool, tokens: Tokens | None = None
) -> HttpEndpoint | None:
    """A started endpoint at ``address``; None for "". ``is_default``: nobody has configured the address, so the daemon
    starts without the endpoint if it is in use. ``tokens``: see :class:`HttpEndpoint`. Raises what
    :meth:`HttpEndpoint.start` raises."""
    if not address:
        return None
    endpoint = HttpEndpoint(address, probes, tokens)
    try:
        endpoint.start()
    except ShardmergeError as error:
        if not is_default:
            raise
        get_logger().warning("no HTTP endpoint", error=str(error), workaround=error.workaround)
        return None
    scheme = "http" if tls.of_process() is None else "https"
    get_logger().info("HTTP endpoint", metrics=f"{scheme}://{address}/metrics")
    return endpoint


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    """Whether ``event`` is set within ``seconds``."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _bound(address: str) -> socket.socket:
    """A socket that listens at host:port. Raises CANNOT_LISTEN."""
    host, _, port = address.rpartition(":")
    try:
        if host not in EVERY_INTERFACE:
            plain = host.strip("[]")
            family = socket.getaddrinfo(plain, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
            made = socket.create_server((plain, int(port)), family=family, backlog=_BACKLOG)
        elif host != "0.0.0.0" and socket.has_dualstack_ipv6():  # noqa: S104 - compared, not bound
            made = socket.create_server(
                ("::", int(port)), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
            )
        else:
            made = socket.create_server(("", int(port)), backlog=_BACKLOG)
    except OSError as error:
        raise errors.master.CANNOT_LISTEN(address=address, reason=bind_error_reason(address)) from error
    made.setblocking(False)
    return made


def _context(certificates: Certificates) -> ssl.SSLContext:
    """Mutual TLS, as for gRPC."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificates.ca.decode("ascii", "replace"))
    _load_pair(context, certificates)
    return context


def _load_pair(context: ssl.SSLContext, certificates: Certificates) -> None:
    """``ssl`` reads certificate and key from files only. The configured files may have changed since they were read,
    and may not match at this moment: so both come from a file in memory."""
    place = os.memfd_create("certificate")
    try:
        with open(place, "wb", closefd=False) as file:
            file.write(certificates.cert + b"\n" + certificates.key)
        context.load_cert_chain(f"/proc/self/fd/{place}")
    finally:
        os.close(place)
