"""SIGTERM at moments when a Python signal handler would wait for ever, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

_BEGIN = """
import os, signal, sys, threading, time
from shardmerge.proto.process.termination import call_on_termination

lock = threading.Lock()
ended = threading.Event()

def end():
    with lock:
        ended.set()

call_on_termination(end)
"""
_CASES = {
    "while the main thread holds the lock that the end needs": """
with lock:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.2)
sys.exit(0 if ended.wait(10) else 1)
""",
    "received by another thread while the main thread waits": """
other = threading.Thread(target=time.sleep, args=(10,), daemon=True)
other.start()
threading.Timer(0.2, signal.pthread_kill, (other.ident, signal.SIGTERM)).start()
sys.exit(0 if ended.wait(5) else 1)
""",
    "before and after, other signals do nothing": """
signal.signal(signal.SIGUSR1, lambda *_: None)
os.kill(os.getpid(), signal.SIGUSR1)
time.sleep(0.2)
assert not ended.is_set()
os.kill(os.getpid(), signal.SIGTERM)
assert ended.wait(10)
os.kill(os.getpid(), signal.SIGUSR1)
time.sleep(0.2)
sys.exit(0)
""",
}


def _run(body: str) -> int:
    return subprocess.run([sys.executable, "-c", _BEGIN + body], timeout=60, check=False).returncode


@pytest.mark.parametrize("body", _CASES.values(), ids=_CASES.keys())
def test_the_first_signal_calls_the_end(body: str) -> None:
    assert _run(body) == 0


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_the_second_signal_ends_the_process_even_if_the_end_hangs(name: str, code: int) -> None:
    body = f"""
lock.acquire()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.2)
os.kill(os.getpid(), signal.{name})
time.sleep(10)
"""
    assert _run(body) == code
