"""Measures what the target can do alone: prepared bytes from memory, over as many connections as the program has.

The table is like the merged one, with as many rows of the same size. Each statement is a transaction.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack

import pymysql
from pymysql.connections import Connection

from tests.benchmarks.settings import APPLY_ROWS, LOAD_ROWS, SOURCES, Settings
from tests.benchmarks.task import CEILING, BenchmarkFailed, create_table, merged_id
from tests.benchmarks.world import World, say
from tests.support.database import Database

_DEADLOCK = 1213
_TEXTS = 997
"""Number of different texts that rows draw from; the content of a text does not affect a server's speed."""


def load(world: World) -> float:
    """Return rows per second of LOAD DATA LOCAL into the empty table, 8,096 rows a statement, without other writers. At
    TiDB: of INSERT, which the program uses too."""
    settings, target = world.settings, world.target
    connections = SOURCES * settings.threads
    say(f"ceiling: LOAD DATA of {settings.all_rows:,} rows over {connections} connections")
    create_table(target, CEILING, auto_increment=settings.auto_increment)
    maker = _Rows(settings)
    with ExitStack() as files:
        statements: list[bytes] = []
        for start in range(0, settings.all_rows, LOAD_ROWS):
            numbers = range(start, min(start + LOAD_ROWS, settings.all_rows))
            if target.flavor == "tidb":
                values = b"),(".join(b"%d,%d,'%b','%b'" % maker.row(number) for number in numbers)
                statements.append(b"INSERT INTO %b (id, k, c, pad) VALUES (%b)" % (CEILING.encode(), values))
                continue
            path = _in_memory(files, b"".join(b"%d\t%d\t%b\t%b\n" % maker.row(number) for number in numbers))
            statements.append(
                f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE {CEILING} CHARACTER SET utf8mb4 (id, k, c, pad)".encode()
            )
        seconds = _run(target, [statements[share::connections] for share in range(connections)])
    [(rows,)] = target.query(f"SELECT COUNT(*) FROM {CEILING}")
    if rows != settings.all_rows:
        raise BenchmarkFailed(f"{rows} of {settings.all_rows} rows were loaded")
    return settings.all_rows / seconds


def apply(world: World) -> float:
    """Return rows per second of REPLACE of random rows into the full table, 8,000 rows a statement."""
    settings, target = world.settings, world.target
    connections = SOURCES * settings.lanes
    rows = min(APPLY_ROWS, settings.all_rows // connections)
    transactions = max(settings.changes // rows, connections)
    say(f"ceiling: {transactions} REPLACEs of {rows:,} random rows over {connections} connections")
    rng = random.Random(2)
    maker = _Rows(settings)
    shares: list[list[bytes]] = [[] for _ in range(connections)]
    for transaction in range(transactions):
        # As with lanes, no two connections touch the same row.
        share = transaction % connections
        numbers = rng.sample(range(share, settings.all_rows, connections), rows)
        values = b"),(".join(b"%d,%d,'%b','%b'" % maker.row(number) for number in numbers)
        shares[share].append(b"REPLACE INTO %b (id, k, c, pad) VALUES (%b)" % (CEILING.encode(), values))
    return transactions * rows / _run(target, shares)


class _Rows:
    """Rows as sysbench makes them, with the ids that they have in the merged table."""

    def __init__(self, settings: Settings) -> None:
        self._rows, self._tables = settings.rows, settings.tables
        self._rng = random.Random(1)
        self._c = [self._digits(10) for _ in range(_TEXTS)]
        self._pad = [self._digits(5) for _ in range(_TEXTS)]

    def row(self, number: int) -> tuple[int, int, bytes, bytes]:
        """Return (id, k, c, pad) of row ``number`` of all sources' rows."""
        table, original = divmod(number, self._rows)
        source, table = divmod(table, self._tables)
        text = self._rng.randrange(_TEXTS)
        k = self._rng.randrange(self._rows) + 1
        return merged_id(source + 1, table + 1, original + 1), k, self._c[text], self._pad[text]

    def _digits(self, groups: int) -> bytes:
        return "-".join(f"{self._rng.randrange(10**11):011}" for _ in range(groups)).encode()


def _in_memory(files: ExitStack, content: bytes) -> str:
    """Return a path under which the content can be read until ``files`` is closed; it is never on a disk."""
    descriptor = os.memfd_create("chunk")
    files.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    return f"/proc/self/fd/{descriptor}"


def _run(server: Database, shares: Sequence[Sequence[bytes]]) -> float:
    """Execute each share over its own connection, all at once; return the seconds. Deadlocks are retried and
    reported."""
    connections = [_connect(server) for _ in shares]
    deadlocks: list[int] = []
    failures: list[BaseException] = []

    def work(connection: Connection, statements: Sequence[bytes]) -> None:
        try:
            deadlocks.append(sum(_execute(connection, statement) for statement in statements))
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(connections, shares, strict=True)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - started
    for connection in connections:
        connection.close()
    if failures:
        raise failures[0]
    if sum(deadlocks):
        say(f"ceiling: {sum(deadlocks)} deadlocks")
    return seconds


def _execute(connection: Connection, statement: bytes) -> int:
    """Return how often the statement was the victim of a deadlock."""
    run = vars(type(connection))["query"]  # the published stubs do not accept bytes
    deadlocks = 0
    while True:
        try:
            run(connection, statement)
        except pymysql.err.OperationalError as error:
            if error.args[0] != _DEADLOCK:
                raise
            deadlocks += 1
        else:
            return deadlocks


def _connect(server: Database) -> Connection:
    """Return a session like those of the program at the target."""
    return pymysql.connect(
        host=server.host,
        port=server.port,
        user="root",
        charset="utf8mb4",
        autocommit=True,
        local_infile=True,
        init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )
