"""Records spans with OpenTelemetry and sends them by OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp/).

The packages are an optional extra: only :func:`otel_tracer` imports them.
"""

from __future__ import annotations

import io
import logging
import threading
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import structlog

from shardmerge.proto.errors import ShardmergeError, config
from shardmerge.proto.log_rate_limit import RateLimit
from shardmerge.proto.tracing.operation import Operation, present_operation, within
from shardmerge.proto.tracing.spans import Attributes, Tracer, TraceSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OtelSpan
    from requests import PreparedRequest, Response, Session

_EXPORT_SECONDS = 5
_QUEUE_SPANS = 2048
_CLOSE_SECONDS = 3.0
_LOG_SECONDS = 600.0
_LIBRARY = "opentelemetry"


def check_installed() -> None:
    """Raises ``config.TRACING_MISSING`` if the extra is not installed."""
    for module in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"):
        try:
            found = find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise config.TRACING_MISSING(module=module)


def otel_tracer(endpoint: str, program: str, name: str) -> Tracer:
    """A tracer that sends to ``endpoint``, the URL of a collector's `/v1/traces`; ``name``: of this daemon.

    Spans are sent by a thread of their own; those that the collector does not take are dropped.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class OperationIds(RandomIdGenerator):
        """Gives a trace the id of the operation, which the logs have, too."""

        def generate_trace_id(self) -> int:
            operation = present_operation()
            return super().generate_trace_id() if operation is None else int(operation.id, 16)

    of_process = Resource.create(
        {"service.name": program, "service.instance.id": name, "service.version": version("shardmerge")}
    )
    provider = TracerProvider(resource=of_process, shutdown_on_exit=False, id_generator=OperationIds())
    _limit_log()
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS, session=_collector_session())
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=_QUEUE_SPANS))
    return _OtelTracer(provider)


def _collector_session() -> Session:
    """The session for the exporter of spans: a collector can answer, and no more.

    It may be down, slow, or another program. Its answer is not read beyond the head. It cannot redirect the spans to
    another address."""
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


def _limit_log() -> None:
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


class _OtelTracer:
    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("shardmerge")

    def begin(self, name: str, parent: Operation, attributes: Attributes) -> TraceSpan:
        from opentelemetry.context import Context
        from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

        above = Context()
        if parent.span:
            sampled = TraceFlags(TraceFlags.SAMPLED)
            place = SpanContext(int(parent.id, 16), int(parent.span, 16), is_remote=True, trace_flags=sampled)
            above = set_span_in_context(NonRecordingSpan(place), above)
        # A span without one above it gets its trace id from the generator below.
        with within(parent):
            begun = self._tracer.start_span(name, context=above, attributes=dict(attributes))
        return _OtelSpan(begun, parent.id)

    def close(self) -> None:
        # The library waits up to 30 s for a collector that does not answer.
        end = threading.Thread(target=self._provider.shutdown, name="traces-end", daemon=True)
        end.start()
        end.join(_CLOSE_SECONDS)


class _OtelSpan:
    def __init__(self, span: OtelSpan, operation: str) -> None:
        self._span = span
        self.operation = Operation(operation, f"{span.get_span_context().span_id:016x}")

    def end(self, error: BaseException | None = None) -> None:
        from opentelemetry.trace import StatusCode

        if error is not None:
            self._span.set_status(StatusCode.ERROR, _name_of(error))
        self._span.end()


def _name_of(error: BaseException) -> str:
    """Code and name, or the type: a text may have the key of a row, or a statement."""
    if isinstance(error, ShardmergeError):
        return f"[{error.code} {error.spec.name}]"
    return type(error).__name__
