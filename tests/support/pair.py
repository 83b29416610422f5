"""Provides a source and a target for all tests of a module, emptied before each test."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL

Kind = Callable[[Path, int], Database]

KINDS: dict[str, Kind] = {"mariadb": MariaDB, "mysql": MySQL}
"""The servers that tests run on, by their flavor."""


@contextmanager
def started_pair(
    folder: Path, source_kind: Kind = MariaDB, target_kind: Kind = MariaDB
) -> Generator[tuple[Database, Database]]:
    source, target = source_kind(folder / "source", 101), target_kind(folder / "target", 102)
    try:
        yield source.start(), target.start()
    finally:
        source.stop()
        target.stop()


def emptied(server: Database) -> Database:
    """Return ``server`` without any schema of a test."""
    own = {"mysql", "sys", "information_schema", "performance_schema"}
    for (schema,) in server.query("SHOW DATABASES"):
        if schema not in own:
            server.execute(f"DROP DATABASE `{schema}`")
    return server
