"""Spans of one operation are one trace, whose id is the operation's. A span that fails has its error."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
import structlog

from shardmerge.proto.diagnostics.recent_lines import RecentLines
from shardmerge.proto.errors import ShardmergeError, config, replicate
from shardmerge.proto.log import configure
from shardmerge.proto.tracing import otel
from shardmerge.proto.tracing.operation import Operation, new_operation, present_operation, within
from shardmerge.proto.tracing.otel import check_installed, otel_tracer
from shardmerge.proto.tracing.spans import begin_span, end_tracing, span, use_tracer
from tests.support.trace_collector import TraceCollector


@pytest.fixture
def kept_log() -> Iterator[RecentLines]:
    """Provide what this process logs."""
    kept = RecentLines()
    configure("dm-test", keeper=kept)
    yield kept
    structlog.reset_defaults()


@pytest.fixture
def collector() -> Iterator[TraceCollector]:
    with TraceCollector() as made:
        use_tracer(otel_tracer(made.url, "dm-test", "w1"))
        yield made
        end_tracing()


def test_parts_of_an_operation_are_one_trace(collector: TraceCollector) -> None:
    operation = new_operation()
    with span("StartTask", operation, method="/m"):
        inner = begin_span("lane start", lane="0")
        assert inner is not None
        inner.end()
        inner.end()
        with pytest.raises(ShardmergeError), span("asks", present_operation() or operation):
            raise config.TRACING_MISSING(module="m")
    assert present_operation() is None
    end_tracing()
    found = {each.name: each for each in collector.spans}
    assert set(found) == {"StartTask", "lane start", "asks"}
    assert {each.trace_id for each in collector.spans} == {operation.id}
    assert not found["StartTask"].parent_id
    assert found["lane start"].parent_id == found["asks"].parent_id == found["StartTask"].span_id
    assert found["StartTask"].attributes == {"method": "/m"}
    assert (found["asks"].is_error, found["lane start"].is_error) == (True, False)
    assert found["StartTask"].service == ("dm-test", "w1")


def test_a_caller_with_a_trace_has_ours_below_its_span(collector: TraceCollector) -> None:
    above = Operation(new_operation().id, "00f067aa0ba902b7")
    with span("StartTask", above):
        pass
    end_tracing()
    [found] = collector.spans
    assert (found.trace_id, found.parent_id) == (above.id, above.span)


def test_nothing_is_recorded_without_a_tracer_or_an_operation(collector: TraceCollector) -> None:
    assert begin_span("of nothing") is None
    end_tracing()
    with within(new_operation()):
        begun = begin_span("not recorded")
        assert begun is not None
        assert begun.operation == present_operation()
        begun.end()
    assert collector.spans == []


_ANSWERS = {
    "silent": b"",
    "garbage": b"\0\xff garbage\r\n" * 1000,
    "redirect": b"HTTP/1.1 307 X\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n",
    "endless": b"HTTP/1.1 200 OK\r\n\r\n",
}


@pytest.mark.parametrize("kind", ["down", *_ANSWERS])
def test_a_collector_of_any_kind_delays_nothing(
    kind: str, kept_log: RecentLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "_CLOSE_SECONDS", 1.5)
    requests: list[bytes] = []
    with ExitStack() as held:
        port = 1
        if kind != "down":
            server = held.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = server.getsockname()[1]
            threading.Thread(target=_serve, args=(server, kind, requests), daemon=True).start()
        use_tracer(otel_tracer(f"http://127.0.0.1:{port}/v1/traces", "dm-test", "w1"))
        # Spans of the test before may have failed in the meantime, and have been logged under its own limit.
        logged_before = _count(kept_log)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.monotonic()
        for _ in range(3000):  # more than the queue holds
            with span("StartTask", new_operation()):
                pass
        assert time.monotonic() - began < 10
        end_tracing()
        assert time.monotonic() - began < 12
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10, "KiB"
    assert all(request.startswith(b"POST /v1/traces ") for request in requests if request)
    assert _count(kept_log) - logged_before <= 1
    assert not [line for line in kept_log.lines().first if "garbage" in line]


def _count(kept_log: RecentLines) -> int:
    lines = kept_log.lines()
    return len(lines.first) + len(lines.last)


def _serve(server: socket.socket, kind: str, requests: list[bytes]) -> None:
    with suppress(OSError), ExitStack() as connections:
        while True:
            taken, _ = server.accept()
            connections.callback(taken.close)
            requests.append(taken.recv(65536))
            threading.Thread(target=_answer, args=(taken, kind), daemon=True).start()


def _answer(taken: socket.socket, kind: str) -> None:
    with suppress(OSError):
        taken.sendall(_ANSWERS[kind])
        while kind == "endless":
            taken.sendall(b"x" * 65536)


def test_a_failed_span_has_no_text_of_an_error(collector: TraceCollector) -> None:
    """A text may have the key of a row, or a statement."""
    for error in (replicate.QUARANTINE_BROKEN(key="Geheim-4711"), ValueError("Geheim-4711")):
        with pytest.raises(type(error)), span("StartTask", new_operation()):
            raise error
    end_tracing()
    assert [found.error for found in collector.spans] == ["[40062 quarantine-broken]", "ValueError"]


def test_opentelemetry_is_imported_only_for_an_endpoint() -> None:
    code = "import sys, shardmerge.master.main, shardmerge.worker.daemon.main; print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_the_extra_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed()

    def none(name: str) -> None:
        return None

    monkeypatch.setattr(otel, "find_spec", none)
    with pytest.raises(ShardmergeError, match=r"opentelemetry\.sdk") as caught:
        check_installed()
    assert "shardmerge[tracing]" in caught.value.workaround
