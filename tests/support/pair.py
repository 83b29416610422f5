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


@contextmanager
def started_kinds(folder: Path) -> Generator[dict[str, Database]]:
    """A started server of each kind, by its flavor."""
    made = {name: kind(folder / name, 101 + number) for number, (name, kind) in enumerate(KINDS.items())}
    try:
        for server in made.values():
            server.start()
        yield made
    finally:
        for server in made.values():
            server.stop()


def login(server: Database) -> dict[str, str]:
    """Return the options of one source of a Spark data source."""
    options = {"host": server.host, "port": str(server.port), "user": server.user, "password": server.password}
    return options | ({"allow-public-key-retrieval": "true"} if server.takes_key else {})


def emptied(server: Database) -> Database:
    """Return ``server`` without any schema of a test."""
    own = {"mysql", "sys", "information_schema", "performance_schema"}
    for (schema,) in server.query("SHOW DATABASES"):
        if schema not in own:
            server.execute(f"DROP DATABASE `{schema}`")
    return server
