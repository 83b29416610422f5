"""Receives traces by OTLP over HTTP, as a collector of OpenTelemetry does, and keeps the spans."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """One span. The ids are hexadecimal; ``parent_id``: "" for the first span of a trace. ``service``: the program and
    the name of its process."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    seconds: float
    is_error: bool
    error: str
    attributes: Mapping[str, str]
    service: tuple[str, str]


class TraceCollector:
    """Use it with ``with``."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        received = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                received.extend(_spans(ExportTraceServiceRequest.FromString(body)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Tests look at the spans."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="collector", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _spans(request: ExportTraceServiceRequest) -> list[ReceivedSpan]:
    found: list[ReceivedSpan] = []
    for resource in request.resource_spans:
        of_process = {each.key: each.value.string_value for each in resource.resource.attributes}
        for scope in resource.scope_spans:
            found += [
                ReceivedSpan(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                    span.status.code == Status.STATUS_CODE_ERROR,
                    span.status.message,
                    {each.key: each.value.string_value for each in span.attributes},
                    (of_process["service.name"], of_process["service.instance.id"]),
                )
                for span in scope.spans
            ]
    return found
