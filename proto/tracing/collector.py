"""What a collector of traces can do to the daemon: answer, and no more.

It may be down, slow, or another program. Its answer is not read beyond the head. It cannot redirect the spans to
another address. The log has one line in ten minutes about it.
"""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING, Any

import structlog

from shardmerge.proto.log_rate_limit import RateLimit

if TYPE_CHECKING:
    from requests import PreparedRequest, Response, Session

_LOG_SECONDS = 600.0
_LIBRARY = "opentelemetry"


def collector_session() -> Session:
    """The session for the exporter of spans. It is only imported with the extra."""
    from requests import Response as MadeResponse
    from requests import Session as RequestsSession

    class HeadOnly(RequestsSession):
        def send(self, request: PreparedRequest, **options: Any) -> Response:
            answer = super().send(request, **{**options, "stream": True, "allow_redirects": False})
            answer.close()
            # With the library's own answer the exporter would read the body, whatever its size.
            made = MadeResponse()
            made.status_code, made.reason, made.headers = answer.status_code, answer.reason, answer.headers
            made.url, made.request, made.raw = answer.url, request, io.BytesIO()
            return made

    return HeadOnly()


def limit_log() -> None:
    """Log rarely that spans are not taken: the library logs several lines for each batch, with texts of the
    collector."""
    logger = logging.getLogger(_LIBRARY)
    logger.handlers[:] = [_RareLines()]
    logger.propagate = False


class _RareLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._limit = RateLimit(_LOG_SECONDS)

    def emit(self, record: logging.LogRecord) -> None:
        left_out = self._limit.left_out(_LIBRARY)
        if left_out is not None:
            # Not the function of proto/log.py, which adds the operation and so imports this package.
            structlog.get_logger().warning("the collector does not take traces", library=record.name, left_out=left_out)
