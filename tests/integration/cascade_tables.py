"""Makes shard tables that foreign keys connect by cascade, changes them at random, and compares them with a target."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import pymysql
from pymysql.constants import ER

from shardmerge.proto import config_pb2
from tests.integration.snapshot_rig import subtask_config
from tests.support.database import Database

SHARDS = (1, 2)
_CASCADE = "ON DELETE CASCADE ON UPDATE CASCADE"
_KEYS = {
    "p": (),
    "c": (("p", "p", _CASCADE),),
    "g": (("c", "c", _CASCADE),),
    "n": (("p", "p", "ON DELETE SET NULL ON UPDATE CASCADE"), ("s", "s", "ON DELETE CASCADE")),
    "s": (("up", "s", "ON DELETE CASCADE"),),
}
"""Columns of each table with the tables to which they refer: three levels, a table that refers to itself, and one that
refers to two."""

_TOO_DEEP = 6575  # MySQL 9.6 and later: a cascade over more than 30 tables
_LOST = {
    _TOO_DEEP,
    ER.LOCK_DEADLOCK,
    ER.DUP_ENTRY,
    ER.NO_REFERENCED_ROW_2,
    ER.ROW_IS_REFERENCED_2,
    ER.LOCK_WAIT_TIMEOUT,
}
_IDS = 60


def make_family(source: Database, shards: Sequence[int] = SHARDS) -> None:
    source.execute("CREATE DATABASE shard_1")
    for shard in shards:
        for table in ("p", "s", "c", "g", "n"):
            columns = [f"{name} BIGINT NULL" for name, _, _ in _KEYS[table]]
            keys = [
                f"CONSTRAINT {table}_{name}_{shard} FOREIGN KEY ({name}) REFERENCES {to}_{shard} (id) {action}"
                for name, to, action in _KEYS[table]
            ]
            moment = "at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)"
            items = ", ".join(["id BIGINT PRIMARY KEY", *columns, "v INT", moment, *keys])
            source.execute(f"CREATE TABLE shard_1.{table}_{shard} ({items}) ENGINE=InnoDB")


def family_config(target: Database, **snapshot: object) -> config_pb2.SubTaskConfig:
    """Return the configuration of a task that merges the tables of all shards and derives cascades."""
    config = subtask_config(target, **snapshot)
    config.derive_cascades = True
    for table, keys in _KEYS.items():
        config.routes.add(
            name=table,
            schema_pattern="shard_*",
            table_pattern=f"{table}_*",
            target_schema="merged",
            target_table=table,
        )
        config.column_mappings.add(
            name=table,
            schema_pattern="shard_*",
            table_pattern=f"{table}_*",
            source_column="id",
            target_column="id",
            expression="partition id",
            arguments=["1", "shard_", f"{table}_"],
        )
        for column, to, _ in keys:
            config.references.add(table=table, column=column, to_table=to, to_column="id")
    return config


def differences(source: Database, target: Database, shards: Sequence[int] = SHARDS) -> list[str]:
    """Compare all rows. The target's ids are computed here, by the layout that the documentation describes."""
    found: list[str] = []
    for table, keys in _KEYS.items():
        wanted: set[tuple[object, ...]] = set()
        for shard in shards:
            prefix = (1 << 59) | (1 << 52) | (shard << 44)
            names = ["id", *(name for name, _, _ in keys)]
            mapped = ", ".join(f"{name} + {prefix}" for name in names)
            wanted.update(source.query(f"SELECT {mapped}, v, at FROM shard_1.{table}_{shard}"))
        names = ", ".join(["id", *(name for name, _, _ in keys), "v", "at"])
        there = set(target.query(f"SELECT {names} FROM merged.{table}"))
        found += [f"{table}: missing {row}" for row in sorted(wanted - there, key=str)]
        found += [f"{table}: extra {row}" for row in sorted(there - wanted, key=str)]
    return found


class FamilyWriter:
    """Changes the tables of all shards in threads of its own until it is stopped."""

    def __init__(self, source: Database, threads: int = 3, pause: float = 0.0, *, cycles: bool = True) -> None:
        """``pause``: seconds between two transactions of a thread. ``cycles``: rows of the table that refers to itself
        may refer to themselves, also over other rows."""
        self._source = source
        self._pause = pause
        self._cycles = cycles
        self._stop = threading.Event()
        self.transactions = 0
        self._threads = [threading.Thread(target=self._write, args=(seed,)) for seed in range(threads)]

    def __enter__(self) -> FamilyWriter:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, seed: int) -> None:
        draw = random.Random(seed)
        session = self._source.connect()
        with session, session.cursor() as cursor:
            while not self._stop.wait(self._pause):
                checks = int(draw.random() < 0.9)
                cursor.execute(f"SET foreign_key_checks = {checks}")
                try:
                    cursor.execute("BEGIN")
                    for _ in range(draw.randint(1, 6)):
                        cursor.execute(statement(draw, draw.choice(SHARDS), cycles=self._cycles))
                    cursor.execute("COMMIT" if draw.random() < 0.95 else "ROLLBACK")
                except pymysql.MySQLError as error:
                    assert error.args[0] in _LOST, error
                    cursor.execute("ROLLBACK")
                self.transactions += 1


def statement(draw: random.Random, shard: int, *, cycles: bool = True) -> str:
    """Return one random change of a table of the shard."""
    table = draw.choice("ppcccgggnnss")
    name = f"shard_1.{table}_{shard}"
    columns = [column for column, _, _ in _KEYS[table]]
    # Without cycles, a row refers to rows of lower ids.
    below = table == "s" and not cycles
    low = draw.randint(1, _IDS)
    kind = draw.random()
    if kind < 0.55:
        rows = ", ".join(_values(draw, len(columns), below=below) for _ in range(draw.randint(1, 3)))
        verb = draw.choice(["INSERT IGNORE", "INSERT IGNORE", "REPLACE"])
        return f"{verb} INTO {name} ({', '.join(['id', *columns, 'v'])}) VALUES {rows}"
    if kind < 0.75:
        return f"DELETE FROM {name} WHERE id BETWEEN {low} AND {low + draw.randint(0, 3)}"
    if kind < 0.85 and table in "pc":
        return f"UPDATE {name} SET id = {draw.randint(1, _IDS)} WHERE id = {low}"
    if columns and kind < 0.93:
        return f"UPDATE {name} SET {draw.choice(columns)} = {_referred(draw, low if below else None)} WHERE id = {low}"
    return f"UPDATE {name} SET v = v + 1 WHERE id BETWEEN {low} AND {low + 5}"


def _values(draw: random.Random, columns: int, *, below: bool) -> str:
    row = draw.randint(1, _IDS)
    referred = [_referred(draw, row if below else None) for _ in range(columns)]
    return f"({', '.join([str(row), *referred, str(draw.randint(0, 9))])})"


def _referred(draw: random.Random, below: int | None = None) -> str:
    """Return an id, less than ``below`` if that is given, or NULL."""
    last = _IDS if below is None else below - 1
    return "NULL" if draw.random() < 0.1 or last < 1 else str(draw.randint(1, last))
