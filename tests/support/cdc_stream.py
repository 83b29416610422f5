"""Reads mysql-cdc as Spark does, without Spark: offsets as JSON, partitions and readers pickled; judges its rows."""

from __future__ import annotations

import json
import pickle
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pymysql
from pymysql.constants import ER
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from shardmerge.worker.datasource import MySQLChanges
from tests.support.database import Database

Change = dict[str, Any]
Offset = dict[str, Any]


def _through_json(offset: Offset) -> Offset:
    return json.loads(json.dumps(offset))


_STARTED: list[Query] = []


def stop_queries() -> None:
    """Close the connections of all queries: a server that stops waits for them."""
    while _STARTED:
        _STARTED.pop().stop()


@dataclass(slots=True)
class Query:
    """A query between two starts of its process."""

    options: dict[str, str]
    offset: Offset | None = None
    schema: StructType = field(init=False)
    _reader: Any = field(init=False)

    def __post_init__(self) -> None:
        made = MySQLChanges(self.options)
        self.schema = made.schema()
        copy: Any = pickle.loads(pickle.dumps(made))
        self._reader = copy.streamReader(self.schema)
        _STARTED.append(self)

    @property
    def columns(self) -> list[str]:
        """Return the columns of the merged table."""
        image: Any = next(field.dataType for field in self.schema.fields if field.name == "after")
        return list(image.names)

    def begin(self) -> Offset:
        """Return the offset. At the query's first start it is the one before the first batch, or after it if that has
        no rows."""
        if self.offset is None:
            self.offset = _through_json(self._reader.initialOffset())
            if self.options.get("start", "snapshot") != "snapshot":
                assert self.batch() == []
        return self.offset

    def next_offset(self, limit: ReadLimit | None = None) -> Offset:
        start = self.begin()
        limit = limit or self._reader.getDefaultReadLimit()
        return _through_json(self._reader.latestOffset(start, limit))

    def until_now(self) -> None:
        self._reader.prepareForTriggerAvailableNow()

    def rows(self, start: Offset, end: Offset) -> list[Change]:
        """Return the rows of the batch between two offsets, in the order of the partitions."""
        return [row for batch in self.batches(start, end) for row in batch]

    def batches(self, start: Offset, end: Offset) -> Iterator[list[Change]]:
        """Return the rows of the batch between two offsets as they arrive."""
        for partition in self._reader.partitions(start, end):
            reader = pickle.loads(pickle.dumps(self._reader))
            for batch in reader.read(pickle.loads(pickle.dumps(partition))):
                yield batch.to_pylist()

    def batch(self) -> list[Change] | None:
        """Return the rows of the next batch; None if there is none. Moves the offset."""
        start = self.begin()
        end = self.next_offset()
        if json.dumps(end) == json.dumps(start):
            return None
        found = self.rows(start, end)
        self.offset = end
        return found

    def drained(self) -> list[Change]:
        """Return the rows of all batches up to the present ends of the sources."""
        found: list[Change] = []
        self.begin()
        while (rows := self.batch()) is not None:
            found += rows
        return found

    def stop(self) -> None:
        self._reader.stop()


@dataclass(slots=True)
class Replica:
    """What the rows of a stream come to: the independent judge. ``keys``: of the key columns. An INSERT needs an absent
    key; the row before an UPDATE or DELETE must be the one that the replica has."""

    keys: tuple[str, ...]
    rows: dict[tuple[object, ...], Mapping[str, object]] = field(default_factory=dict[Any, Any])

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            before, after = change["before"], change["after"]
            if before is not None:
                held = self.rows.pop(self._key(change, before), None)
                assert held == before, (change, held)
            if after is not None:
                key = self._key(change, after)
                assert key not in self.rows, (change, self.rows[key])
                self.rows[key] = after

    def _key(self, change: Change, row: Mapping[str, object]) -> tuple[object, ...]:
        return (change["source_schema"], change["source_table"], *(row[name] for name in self.keys))

    def of(self, schema: str, table: str) -> list[tuple[object, ...]]:
        """Return the rows of a table."""
        found = [tuple(row.values()) for key, row in self.rows.items() if key[:2] == (schema, table)]
        return sorted(found, key=repr)


class RowsWriter(threading.Thread):
    """Changes rows of ``d.t_1`` (id, v) and so on, until it is ended: rows, ranges, keys, and rolled-back work."""

    def __init__(self, server: Database, seed: int, tables: int) -> None:
        super().__init__(daemon=True)
        self._server, self._seed, self._tables = server, seed, tables
        self._ended = threading.Event()
        self.count = 0

    def run(self) -> None:
        rng = random.Random(self._seed)
        with closing(self._server.connect()) as connection, connection.cursor() as cursor:
            while not self._ended.is_set():
                try:
                    self._change(rng, cursor)
                except pymysql.OperationalError as error:
                    if error.args[0] != ER.LOCK_DEADLOCK:
                        raise
                self.count += 1
                time.sleep(0.003)
                if self.count % 150 == 0:
                    cursor.execute("FLUSH BINARY LOGS")

    def _change(self, rng: random.Random, cursor: Any) -> None:
        cursor.execute("BEGIN")
        for _ in range(rng.randrange(1, 6)):
            table, number, other = rng.randrange(self._tables) + 1, rng.randrange(400), rng.randrange(400)
            cursor.execute(
                rng.choice(
                    (
                        f"REPLACE INTO d.t_{table} VALUES ({number}, 'it''s \\\\ {other}')",
                        f"UPDATE IGNORE d.t_{table} SET id = {other} WHERE id = {number}",
                        f"UPDATE d.t_{table} SET v = NULL WHERE id BETWEEN {number} AND {number + 20}",
                        f"DELETE FROM d.t_{table} WHERE id BETWEEN {number} AND {number + 5}",
                        f"INSERT IGNORE INTO d.t_{table} VALUES ({number}, 'n'), ({other}, REPEAT('x', 500))",
                    )
                )
            )
        cursor.execute("ROLLBACK" if rng.random() < 0.1 else "COMMIT")

    def end(self) -> None:
        self._ended.set()
        self.join()
