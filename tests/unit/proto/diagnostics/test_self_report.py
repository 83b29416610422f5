"""Stacks have the names and frames of all threads, and no values."""

from __future__ import annotations

import threading

from shardmerge.proto.diagnostics.self_report import ThreadStack, text_of_stacks, thread_stacks


def test_the_threads_of_this_process() -> None:
    release, began = threading.Event(), threading.Event()

    def waits_for_release(secret: str) -> None:
        began.set()
        release.wait()

    thread = threading.Thread(target=waits_for_release, args=("Geheim-4711",), name="waiter\n1")
    thread.start()
    try:
        assert began.wait(60)
        [found] = [stack for stack in thread_stacks() if stack.name == "waiter\\x0a1"]
        text = text_of_stacks(thread_stacks())
    finally:
        release.set()
        thread.join()
    assert any("waits_for_release" in frame and "test_self_report.py:" in frame for frame in found.frames)
    assert "waiter\\x0a1:\n" in text and "MainThread" in text and "Geheim" not in text


def test_equal_stacks_are_written_once() -> None:
    stacks = [ThreadStack(f"grpc-{number:02}", ("a.py:1 f",)) for number in range(30)]
    text = text_of_stacks([*stacks, ThreadStack("main", ("b.py:2 g", "a.py:1 f"))])
    assert text.count("a.py:1 f") == 2
    assert "grpc-19, and 10 more:\n  a.py:1 f\n" in text
    assert text.endswith("main:\n  b.py:2 g\n  a.py:1 f\n")


def test_the_text_is_bounded() -> None:
    stacks = [ThreadStack(f"t{number}", (f"{number} {'x' * 1000}",)) for number in range(1000)]
    text = text_of_stacks(stacks)
    assert len(text) < (513 << 10) and text.endswith("(cut)\n")
