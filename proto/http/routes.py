"""The pages of a daemon's HTTP endpoint. None of them names a task, a source or a server, except /metrics.

Every caller gets the others. /metrics is for callers that the daemon knows: by a certificate, or in plain text by a
token that is derived from the cluster's key, for other users of the machine reach a loopback address, too.
"""

from __future__ import annotations

import asyncio
import hmac
import threading
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from shardmerge.proto.http.hosts import is_asked_for, is_host
from shardmerge.proto.http.loops import stuck
from shardmerge.proto.http.probes import Probes
from shardmerge.proto.log import get_logger
from shardmerge.proto.log_rate_limit import RateLimit
from shardmerge.proto.metrics.exposition import CONTENT_TYPE, exposition

log = get_logger()

_COLLECT_SECONDS = 5.0
_REST = 4.0
"""A collection begins no earlier than this multiple of the time of the one before it has passed since then: callers in
a loop take at most a fifth of the daemon's processor time. Until then they get the same answer."""
MOST_HEAD_BYTES = 8192
_METHODS = frozenset({"GET", "HEAD"})
_ALLOWED = ", ".join(sorted(_METHODS))
_HINT = "send the token that `dmctl encrypt --metrics-token` prints (docs/how-to/monitor.md)"

Page = Callable[[Request], Awaitable[Response]]
Tokens = Callable[[], Collection[str]]
"""The tokens that are accepted now."""

OF_CALLERS = frozenset({"/metrics"})
"""The pages for known callers."""


def pages(probes: Probes) -> dict[str, Page]:
    """Every page by its path."""
    return {
        "/metrics": _metrics(probes),
        "/livez": _livez(probes),
        "/readyz": _readyz(probes),
        "/leader": _leader(probes),
        "/version": _version(probes),
    }


def application(probes: Probes, host: str | None = None, tokens: Tokens | None = None) -> ASGIApp:
    """The pages of a daemon. ``host``: see :func:`shardmerge.proto.http.hosts.checked_host`. ``tokens``: a caller of
    :data:`OF_CALLERS` must send one of them; None: something else shows who calls, or every caller gets them."""
    served = {
        path: page if tokens is None or path not in OF_CALLERS else _with_token(page, tokens)
        for path, page in pages(probes).items()
    }
    inner = Starlette(routes=[Route(path, page, methods=["GET"]) for path, page in served.items()])
    inner.router.redirect_slashes = False  # a redirection would repeat the request's host
    return _OnlyReads(inner, host)


class _OnlyReads:
    """Refuses other methods than GET and HEAD, requests with a body, before anything of the body is read, and requests
    for other hosts."""

    def __init__(self, inner: ASGIApp, host: str | None) -> None:
        self._inner = inner
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = _refusal(scope, self._host)
        await (self._inner if refusal is None else refusal)(scope, receive, send)


def _refusal(scope: Scope, host: str | None) -> Response | None:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    closing = {"Connection": "close"}
    if scope["method"] not in _METHODS:
        return PlainTextResponse("only GET and HEAD\n", 405, {"Allow": _ALLOWED, **closing})
    size = len(scope["raw_path"]) + len(scope["query_string"])
    if size + sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEAD_BYTES:
        return PlainTextResponse(f"the head has more than {MOST_HEAD_BYTES} bytes\n", 431, closing)
    if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
        return PlainTextResponse("no body is read\n", 413, closing)
    asked = headers.get(b"host", b"").decode("latin-1")
    if not is_host(asked):
        return PlainTextResponse("Host must be a host with or without a port\n", 400, closing)
    if host is not None and not is_asked_for(asked, host):
        return PlainTextResponse("this address answers for localhost, its own name and addresses only\n", 421, closing)
    return None


def _with_token(page: Page, tokens: Tokens) -> Page:
    """The page, for callers with a token."""
    refusals = RateLimit()

    async def checked(request: Request) -> Response:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = token.strip().encode()
        if scheme.lower() == "bearer" and any(hmac.compare_digest(given, each.encode()) for each in tokens()):
            return await page(request)
        left_out = refusals.left_out("token")
        if left_out is not None:
            log.warning("metrics refused: the caller has no token", workaround=_HINT, left_out=left_out)
        return PlainTextResponse(f"{_HINT}\n", 401, {"WWW-Authenticate": "Bearer"})

    return checked


def _metrics(probes: Probes) -> Page:
    running: list[asyncio.Future[bytes]] = []
    rests_until = 0.0
    failures = RateLimit()

    def collect() -> bytes:
        nonlocal rests_until
        began = time.monotonic()
        try:
            return exposition(probes.samples())
        finally:
            ended = time.monotonic()
            rests_until = ended + _REST * (ended - began)

    async def page(request: Request) -> Response:
        # Scrapes at the same time get the same answer. A slow one blocks neither its successors nor other pages.
        if not running or (running[0].done() and time.monotonic() >= rests_until):
            running[:] = [_in_thread(collect)]
        try:
            text = await asyncio.wait_for(asyncio.shield(running[0]), _COLLECT_SECONDS)
        except TimeoutError:
            return PlainTextResponse(f"not collected within {_COLLECT_SECONDS:g} s\n", 503)
        except Exception:
            left_out = failures.left_out("collect")
            if left_out is not None:
                log.exception("metrics not collected", left_out=left_out)
            return PlainTextResponse("not collected: the log has the reason\n", 500)
        return Response(text, media_type=CONTENT_TYPE)

    return page


def _in_thread(work: Callable[[], bytes]) -> asyncio.Future[bytes]:
    """Run ``work`` in a thread of its own: one that hangs must not keep the process from ending, as a thread of an
    executor would."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bytes] = loop.create_future()

    def run() -> None:
        result: bytes | Exception
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - the future raises it
            result = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(_complete, future, result)

    threading.Thread(target=run, name="metrics", daemon=True).start()
    return future


def _complete(future: asyncio.Future[bytes], result: bytes | Exception) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def _livez(probes: Probes) -> Page:
    async def page(request: Request) -> Response:
        late = stuck(probes.loop_ages())
        if late:
            return PlainTextResponse(f"loops that hang: {', '.join(late)}\n", 503)
        return PlainTextResponse("ok\n")

    return page


def _readyz(probes: Probes) -> Page:
    async def page(request: Request) -> Response:
        role = request.query_params.get("role", "")
        if role not in ("", *probes.roles):
            return PlainTextResponse(f"role must be one of: {', '.join(probes.roles)}\n", 400)
        found = probes.readiness(role)
        if found.is_ready:
            return PlainTextResponse("ok\n")
        return PlainTextResponse("".join(f"{phrase}\n" for phrase in found.missing), 503)

    return page


def _leader(probes: Probes) -> Page:
    async def page(request: Request) -> Response:
        if probes.leads is None:
            return PlainTextResponse("this daemon is no master\n", 404)
        return PlainTextResponse("ok\n") if probes.leads() else PlainTextResponse("not the leader\n", 503)

    return page


def _version(probes: Probes) -> Page:
    async def page(request: Request) -> Response:
        return JSONResponse({"daemon": probes.daemon, "version": probes.version})

    return page
