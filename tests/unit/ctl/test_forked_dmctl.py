"""The dmctl of the end-to-end tests (tests/support/dmctl.py) is the console script, to its output and exit code."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest

from tests.support.daemon import ROOT, command
from tests.support.dmctl import dmctl
from tests.support.ports import free_port


@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("help", "start-task"),
        ("no-such-command",),
        ("--output", "json", "decode-id", "merge", "7"),
        ("--master-addr", "127.0.0.1:%port", "--output", "json", "query-status"),
    ],
    ids=lambda words: words[0],
)
def test_it_ends_as_the_console_script_does(words: tuple[str, ...]) -> None:
    port = str(free_port())
    words = tuple(word.replace("%port", port) for word in words)
    environment = {**os.environ, "COLUMNS": "77", "DM_MASTER_ADDR": ""}
    real = subprocess.run(
        [command("dmctl"), *words],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    forked = dmctl(words, environment, 300)
    assert (forked.returncode, forked.stdout, forked.stderr) == (real.returncode, real.stdout, real.stderr)
    assert forked.stdout or forked.stderr


def test_one_that_does_not_end_in_time_is_killed() -> None:
    # It accepts connections and never answers.
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(subprocess.TimeoutExpired):
        dmctl(("--master-addr", f"127.0.0.1:{silent.getsockname()[1]}", "query-status"), os.environ, 0.5)
