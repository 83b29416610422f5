"""A source and a target for all tests of a module, emptied for each of them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.mariadb import MariaDB


@contextmanager
def started_pair(folder: Path) -> Generator[tuple[MariaDB, MariaDB]]:
    source, target = MariaDB(folder / "source", 101), MariaDB(folder / "target", 102)
    try:
        yield source.start(), target.start()
    finally:
        source.stop()
        target.stop()


def emptied(server: MariaDB) -> MariaDB:
    """``server`` without any schema of a test."""
    own = {"mysql", "sys", "information_schema", "performance_schema"}
    for (schema,) in server.query("SHOW DATABASES"):
        if schema not in own:
            server.execute(f"DROP DATABASE `{schema}`")
    return server
