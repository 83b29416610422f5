"""Makes the tables and the changes with sysbench.

One `oltp_write_only` transaction is an UPDATE of an indexed column, an UPDATE of another one, a DELETE and an INSERT of
the same id: 4 row changes. `special` ids: three quarters of them in a hot hundredth of the table; `uniform`: all alike.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

from tests.benchmarks.settings import Shards
from tests.support.database import Database

SCHEMA = "sbtest"
CHANGES_PER_TRANSACTION = 4

_COMMITTED = re.compile(r"^\s*transactions:\s+(\d+)", re.MULTILINE)
_WRITERS = 2
"""Threads per source: few, because all share the same cores; more would only wait for each other on the hot rows."""


class SysbenchFailed(Exception):
    """sysbench has failed; the message is its output."""


def prepare(servers: Sequence[Database], shards: Shards) -> None:
    """Create ``sbtest.sbtest1`` … on each server, with ids from 1 upwards."""
    for server in servers:
        server.execute(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    for process in [_start(server, shards, "prepare", f"--threads={_WRITERS}") for server in servers]:
        _finish(process)


def write(servers: Sequence[Database], shards: Shards, transactions: int, ids: str, seed: int) -> int:
    """Execute ``transactions`` on each server, in parallel; return how many were committed in total. ``ids``: special
    or uniform.

    ``seed``: must differ each time, because the same values again would be no changes.
    """
    running = [
        _start(
            server,
            shards,
            "run",
            f"--threads={_WRITERS}",
            f"--events={transactions}",
            "--time=0",
            f"--rand-type={ids}",
            f"--rand-seed={100 * seed + number}",
        )
        for number, server in enumerate(servers, 1)
    ]
    return sum(_committed(_finish(process)) for process in running)


class Background:
    """Executes ``per_second`` transactions on each server until closed."""

    def __init__(self, servers: Sequence[Database], shards: Shards, per_second: int) -> None:
        self._running = [
            _start(server, shards, "run", "--threads=1", "--events=0", "--time=3600", f"--rate={per_second}")
            for server in servers
        ]

    @property
    def alive(self) -> bool:
        return all(process.poll() is None for process in self._running)

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.communicate()


def _start(server: Database, shards: Shards, command: str, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            "sysbench",
            "oltp_write_only",
            "--db-driver=mysql",
            f"--mysql-host={server.host}",
            f"--mysql-port={server.port}",
            "--mysql-user=root",
            f"--mysql-db={SCHEMA}",
            f"--tables={shards.tables}",
            f"--table-size={shards.rows}",
            *options,
            command,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _finish(process: subprocess.Popen[str]) -> str:
    text, _ = process.communicate()
    if process.returncode != 0:
        raise SysbenchFailed(f"sysbench ended with {process.returncode}:\n{text[-2000:]}")
    return text


def _committed(text: str) -> int:
    found = _COMMITTED.search(text)
    if found is None:
        raise SysbenchFailed(f"sysbench does not say how many transactions there were:\n{text[-2000:]}")
    return int(found.group(1))
