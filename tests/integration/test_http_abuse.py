"""Tests that callers who misuse the HTTP endpoint of a worker disturb neither its task nor its gRPC server."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import psutil
import pytest

from tests.support.daemon import Daemon
from tests.support.metrics import request, scrape
from tests.support.world import World

_CONNECTIONS = 2_000
_SECONDS = 6.0
_MOST_DESCRIPTORS = 60
_HEADS = (
    b"",
    b"G",
    b"GET /metrics HTTP/1.1\r\nHost:",
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /" + b"x" * 60_000,
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 10_000,
    b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n" + b"z" * 60_000,
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,
)


@pytest.fixture(autouse=True)
def many_descriptors() -> Iterator[None]:
    """Let this process open as many connections as the test needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, _CONNECTIONS + 1_000), hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _open(worker: Daemon, head: bytes) -> socket.socket | None:
    host, _, port = worker.http.rpartition(":")
    with suppress(OSError):
        made = socket.create_connection((host, int(port)), timeout=5)
        with suppress(OSError):
            made.sendall(head)
        return made
    return None


def _in_a_loop(worker: Daemon, path: str, until: float) -> None:
    while time.monotonic() < until:
        with suppress(OSError):
            request(worker, path)


@pytest.mark.turns
def test_a_task_and_dmctl_continue_while_callers_misuse_the_endpoint(world: World) -> None:
    family = world.family("abused")
    family.create(50)
    world.cluster.start_task(family.task())
    world.cluster.wait_replicating("abused")
    source_id, server = world.sources[0]
    worker = world.cluster.worker_of(source_id)
    process = psutil.Process(worker.pid)
    epoch = scrape(worker).one("dm_task_epoch", task="abused")
    descriptors, resident = process.num_fds(), process.memory_info().rss
    most_descriptors, probes = 0, list[float]()
    ends = time.monotonic() + _SECONDS
    threads = [
        threading.Thread(target=_in_a_loop, args=(worker, path, ends))
        for path in ("/metrics", "/metrics", "/livez", "/readyz")
    ]
    for thread in threads:
        thread.start()
    with ExitStack() as opened:
        for number in range(_CONNECTIONS):
            made = _open(worker, _HEADS[number % len(_HEADS)])
            if made is not None:
                opened.enter_context(made)
            if number % 100 == 0:
                most_descriptors = max(most_descriptors, process.num_fds())
                began = time.monotonic()
                assert request(worker, "/livez").status == 200
                probes.append(time.monotonic() - began)
                server.execute(f"UPDATE {family.name}_01.order_01 SET amount = amount + 1")
            if number % 500 == 0:
                world.cluster.dmctl("query-status", "abused")
        for thread in threads:
            thread.join()
    assert most_descriptors - descriptors < _MOST_DESCRIPTORS
    assert process.memory_info().rss - resident < 200 << 20
    assert max(probes) < 5, probes
    world.cluster.wait_caught_up("abused", dict(world.sources))
    found = scrape(worker)
    assert found.one("dm_task_epoch", task="abused") == epoch, "no run has ended"
    assert found.sum("dm_task_failures_total", task="abused") == 0
    assert found.one("dm_worker_registered") == 1
    assert family.verdict().differences == 0
    world.cluster.dmctl("stop-task", "abused")
