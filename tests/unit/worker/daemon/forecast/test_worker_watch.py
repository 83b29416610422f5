"""Tests the thread that measures the worker itself."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from shardmerge.proto.warnings.certificates import CertificateFile, Use
from shardmerge.worker.core.task_runner import JvmHeap
from shardmerge.worker.daemon.forecast import worker_watch
from shardmerge.worker.daemon.forecast.figures import NOTHING_MEASURED
from shardmerge.worker.daemon.forecast.worker_watch import WorkerWatch
from tests.support.certificates import Authority
from tests.support.wait import until


def test_a_heap_that_was_read_long_ago_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    heaps = [JvmHeap(1, 2, 3)]
    silent = threading.Event()

    def heap() -> JvmHeap | None:
        if not heaps:
            silent.wait(60)
            return None
        return heaps.pop()

    monkeypatch.setattr(worker_watch, "_SECONDS", 0.01)
    monkeypatch.setattr(worker_watch, "_OLD_SECONDS", 0.5)
    watch = WorkerWatch(heap, list)
    assert watch.current() == NOTHING_MEASURED
    watch.start()
    try:
        until(lambda: watch.current().heap == JvmHeap(1, 2, 3), "the heap is read", 10)
        until(lambda: watch.current().heap is None, "it is too old", 10)
    finally:
        watch.stop()
        silent.set()


def test_a_round_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    heaps = iter([RuntimeError("unexpected"), JvmHeap(1, 2, 3)])

    def heap() -> JvmHeap | None:
        found = next(heaps, None)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(worker_watch, "_SECONDS", 0.2)
    watch = WorkerWatch(heap, list)
    watch.start()
    try:
        until(lambda: watch.current().heap == JvmHeap(1, 2, 3), "the next round measures", 10)
    finally:
        watch.stop()


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
