"""Tests the thread that measures the worker itself."""

from __future__ import annotations

import threading
from pathlib import Path

from shardmerge.proto.warnings.certificates import CertificateFile, Use
from shardmerge.worker.core.task_runner import JvmHeap
from shardmerge.worker.daemon.forecast.figures import NOTHING_MEASURED
from shardmerge.worker.daemon.forecast.worker_watch import WorkerWatch
from tests.support.certificates import Authority
from tests.support.fake_clock import FakeClock
from tests.support.wait import until


def test_a_heap_that_was_read_long_ago_is_not_known() -> None:
    clock = FakeClock()
    heaps = [JvmHeap(1, 2, 3)]
    seen: list[JvmHeap | None] = []

    def heap() -> JvmHeap | None:
        if heaps:
            return heaps.pop()
        for seconds in (50, 10):  # the JVM does not answer in the second round, five seconds after the first one
            clock.advance(seconds)
            seen.append(watch.current().heap)
        raise RuntimeError("no answer")

    watch = WorkerWatch(heap, list, clock)
    assert watch.current() == NOTHING_MEASURED
    clock.run_for(8, watch.run)
    assert seen == [JvmHeap(1, 2, 3), None]


def test_a_round_that_fails_ends_nothing() -> None:
    clock = FakeClock()
    heaps = iter([RuntimeError("unexpected"), JvmHeap(1, 2, 3)])

    def heap() -> JvmHeap | None:
        found = next(heaps, None)
        if isinstance(found, Exception):
            raise found
        return found

    watch = WorkerWatch(heap, list, clock)
    clock.run_for(6, watch.run)
    assert watch.current().heap == JvmHeap(1, 2, 3), "the next round, after five seconds, measures"


def test_certificates_are_read_before_the_jvm_answers_for_the_first_time(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("own", "own")
    silent = threading.Event()

    def heap() -> JvmHeap | None:
        silent.wait(60)
        return None

    watch = WorkerWatch(heap, lambda: [CertificateFile(Use.OWN, "this daemon", files.cert)])
    watch.start()
    try:
        until(lambda: watch.current().certificates, "the certificate is read", 10)
    finally:
        watch.stop()
        silent.set()
