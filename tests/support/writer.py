"""Writes randomly and concurrently, as applications write to shard tables during a merge.

Insert, update, delete, change of a key, re-use of a deleted key, large transactions, rollbacks. Each thread draws from
its own seeded generator, so a run can be repeated up to the servers' scheduling. It does not depend on the code under
test: it only sends SQL to the sources.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from tests.support.wait import until

Value = str | int | bytes | None

_DUPLICATE = 1062
# Lock wait timeout; a table that was altered after the transaction had begun to read others; deadlock.
_AGAIN = frozenset({1205, 1412, 1213})
_LOST = frozenset({0, 1053, 1927, 2003, 2006, 2013})  # the server was killed or is starting
# Updates move rows to keys from here on: far above what AUTO_INCREMENT reaches, below 2**32.
_MOVED_KEYS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of shard table: its columns, and how its rows are drawn.

    ``definition``: the text between the parentheses of CREATE TABLE; the key is an integer column ``id`` with
    AUTO_INCREMENT. ``row`` draws values for ``columns`` (without ``id``).
    """

    definition: str
    columns: tuple[str, ...]
    row: Callable[[random.Random], tuple[Value, ...]]


_NAMES = ("Ada", "Jürgen", "Zoë", "北京", "Ömer", "O'Brien", "back\\slash", "emoji 🚀", "", "Łukasz")


def _order(rng: random.Random) -> tuple[Value, ...]:
    return (
        f"{rng.choice(_NAMES)} {rng.randrange(10_000)}",
        f"{rng.randrange(-99_999, 9_999_999)}.{rng.randrange(100):02d}",
        rng.choice(("new", "paid", "sent", "returned")),
        None if rng.random() < 0.2 else "x" * rng.randrange(80),
        rng.randbytes(rng.randrange(12)),
        f"20{rng.randrange(20, 30)}-0{rng.randrange(1, 10)}-{rng.randrange(10, 28)} "
        f"{rng.randrange(24):02d}:30:{rng.randrange(60):02d}.{rng.randrange(1000):03d}",
    )


ORDERS = Shape(
    definition=(
        "id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, customer VARCHAR(64) NOT NULL, "
        "amount DECIMAL(12,2) NOT NULL, state ENUM('new','paid','sent','returned') NOT NULL, "
        "note VARCHAR(120) NULL, token VARBINARY(16) NOT NULL, created DATETIME(3) NOT NULL"
    ),
    columns=("customer", "amount", "state", "note", "token", "created"),
    row=_order,
)


@dataclass(frozen=True, slots=True)
class ShardTable:
    """One table at one source, and how to reach that source."""

    connect: Callable[[], Connection]
    schema: str
    table: str

    @property
    def name(self) -> str:
        return f"`{self.schema}`.`{self.table}`"


@dataclass(slots=True)
class Counts:
    """The number of committed statements that changed a row; rolled back work is not counted."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    key_changes: int = 0
    transactions: int = 0
    rollbacks: int = 0
    retries: int = 0

    def add(self, other: Counts) -> None:
        for name in Counts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def changes(self) -> int:
        return self.inserts + self.updates + self.deletes + self.key_changes


def create_tables(shards: Sequence[ShardTable], shape: Shape = ORDERS) -> None:
    """Create the schemas and tables of ``shards``, empty."""
    for shard in shards:
        connection = shard.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE DATABASE IF NOT EXISTS `{shard.schema}`")
                cursor.execute(f"CREATE TABLE {shard.name} ({shape.definition}) DEFAULT CHARSET=utf8mb4 ENGINE=InnoDB")
        finally:
            connection.close()


def fill(shard: ShardTable, rows: int, seed: int, shape: Shape = ORDERS, per_statement: int = 1000) -> None:
    """Insert ``rows`` rows with ids from 1 upwards, so that the ids of different shards collide."""
    rng = random.Random(f"{seed}/{shard.name}")
    connection = shard.connect()
    try:
        with connection.cursor() as cursor:
            for start in range(0, rows, per_statement):
                batch = [shape.row(rng) for _ in range(min(per_statement, rows - start))]
                _insert(cursor, shard, shape, batch)
    finally:
        connection.close()


def _insert(cursor: Cursor, shard: ShardTable, shape: Shape, rows: Sequence[tuple[Value, ...]]) -> int:
    columns = ", ".join(f"`{column}`" for column in shape.columns)
    marks = "(" + ", ".join(["%s"] * len(shape.columns)) + ")"
    values: list[Value] = [value for row in rows for value in row]
    return cursor.execute(f"INSERT INTO {shard.name} ({columns}) VALUES {', '.join([marks] * len(rows))}", values)


def _unless_taken(change: Callable[[], int]) -> int:
    """Return the number of rows of ``change``; 0 if its key is taken: the server has undone this statement only.

    The key may come from AUTO_INCREMENT: a table that the server opens anew continues from its largest moved key.
    """
    try:
        return change()
    except pymysql.err.IntegrityError as error:
        if error.args[0] != _DUPLICATE:
            raise
        return 0


@dataclass(slots=True)
class _Hand:
    """The data of one thread."""

    rng: random.Random
    connections: dict[Callable[[], Connection], Connection] = field(
        default_factory=dict[Callable[[], Connection], Connection]
    )
    next_moved_key: int = 0


def beside_a_writer(shard: ShardTable, *statements: str) -> None:
    """Run the statements at the table's server, in parallel with a writer; a statement that loses a deadlock with the
    transactions of the writer, or of lanes, runs again."""
    connection = shard.connect()
    with closing(connection), connection.cursor() as cursor:
        for statement in statements:
            done = False
            while not done:
                try:
                    cursor.execute(statement)
                    done = True
                except pymysql.MySQLError as error:
                    if error.args[0] not in _AGAIN:
                        raise


class Writer:
    """Threads that keep changing ``shards`` until stopped.

    ``pause_seconds``: between a thread's transactions; leaves the two cores of a test machine to the code under test.
    Threads wait for a killed source; any other failure ends the thread and is raised by :meth:`stop`.
    """

    def __init__(
        self,
        shards: Sequence[ShardTable],
        *,
        shape: Shape = ORDERS,
        seed: int = 1,
        threads: int = 2,
        pause_seconds: float = 0.03,
        large_transaction: int = 200,
    ) -> None:
        self.shards = tuple(shards)
        self.shape = shape
        self.counts = Counts()
        self._pause_seconds = pause_seconds
        self._large = large_transaction
        self._stop = threading.Event()
        self._may_run = threading.Event()
        self._may_run.set()
        self._lock = threading.Condition()
        self._busy = 0
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(_Hand(random.Random(f"{seed}/{n}"), next_moved_key=_MOVED_KEYS + n * 50_000_000),),
                name=f"writer-{n}",
                daemon=True,
            )
            for n in range(threads)
        ]

    def start(self) -> Writer:
        for thread in self._threads:
            thread.start()
        return self

    def pause(self) -> None:
        """Return when no transaction is open; :meth:`resume` continues."""
        self._may_run.clear()
        with self._lock:
            self._lock.wait_for(lambda: self._busy == 0)

    def resume(self) -> None:
        self._may_run.set()

    def go_on(self, changes: int = 200) -> None:
        """Return when more than this number of further changes has been made."""
        wanted = self.counts.changes + changes
        until(lambda: self.counts.changes > wanted or bool(self._errors), f"{changes} further changes")

    def stop(self) -> Counts:
        """End all threads and return what they committed; raises the first thread's failure."""
        self._stop.set()
        self._may_run.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        if self._errors:
            raise self._errors[0]
        return self.counts

    def __enter__(self) -> Writer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- one thread

    def _run(self, hand: _Hand) -> None:
        try:
            while not self._stop.wait(self._pause_seconds):
                self._may_run.wait()
                with self._lock:
                    if not self._may_run.is_set():
                        continue
                    self._busy += 1
                try:
                    self._transaction(hand)
                finally:
                    with self._lock:
                        self._busy -= 1
                        self._lock.notify_all()
        except Exception as error:  # noqa: BLE001 - raised by stop()
            self._errors.append(error)
        finally:
            for connection in hand.connections.values():
                connection.close()

    def _transaction(self, hand: _Hand) -> None:
        done = Counts()
        # One source per transaction: each source is a separate server.
        connect = hand.rng.choice(self.shards).connect
        shards = [shard for shard in self.shards if shard.connect == connect]
        try:
            connection = hand.connections.get(connect)
            if connection is None:
                connection = hand.connections[connect] = connect()
            connection.begin()
            with connection.cursor() as cursor:
                for _ in range(self._size(hand.rng)):
                    self._change(hand, cursor, hand.rng.choice(shards), done)
            if hand.rng.random() < 0.03:
                connection.rollback()
                done = Counts(rollbacks=1)
            else:
                connection.commit()
                done.transactions = 1
        except pymysql.MySQLError as error:
            number = error.args[0] if error.args else 0
            if number not in _AGAIN and number not in _LOST:
                raise
            done = Counts(retries=1)
            lost = hand.connections.pop(connect, None)
            if lost is not None:
                lost.close()
            if number in _LOST:
                self._stop.wait(0.2)
        with self._lock:
            self.counts.add(done)

    def _size(self, rng: random.Random) -> int:
        if rng.random() < 0.01:
            return self._large
        return min(1 + int(rng.expovariate(0.7)), 20)

    def _change(self, hand: _Hand, cursor: Cursor, shard: ShardTable, done: Counts) -> None:
        rng = hand.rng
        what = rng.random()
        if what < 0.4:
            rows = [self.shape.row(rng) for _ in range(rng.choice((1, 1, 1, 5)))]
            done.inserts += _unless_taken(lambda: _insert(cursor, shard, self.shape, rows))
        elif what < 0.75:
            column = rng.randrange(len(self.shape.columns))
            done.updates += cursor.execute(
                f"UPDATE {shard.name} SET `{self.shape.columns[column]}` = %s WHERE id = %s",
                (self.shape.row(rng)[column], self._some_id(rng, cursor, shard)),
            )
        elif what < 0.9:
            done.deletes += cursor.execute(
                f"DELETE FROM {shard.name} WHERE id = %s", (self._some_id(rng, cursor, shard),)
            )
        else:
            self._change_key(hand, cursor, shard, done)

    def _change_key(self, hand: _Hand, cursor: Cursor, shard: ShardTable, done: Counts) -> None:
        """Move a row to a new key, or to one that may be free because its row was deleted."""
        rng = hand.rng
        if rng.random() < 0.5:
            hand.next_moved_key += 1
            new_id = hand.next_moved_key
        else:
            new_id = rng.randrange(1, 1000)
        old_id = self._some_id(rng, cursor, shard)
        done.key_changes += _unless_taken(
            lambda: cursor.execute(f"UPDATE {shard.name} SET id = %s WHERE id = %s", (new_id, old_id))
        )

    def _some_id(self, rng: random.Random, cursor: Cursor, shard: ShardTable) -> int:
        """The first key at or after a random one: mostly where AUTO_INCREMENT is, sometimes a moved one."""
        if rng.random() < 0.1:
            wanted = _MOVED_KEYS
        else:
            cursor.execute(f"SELECT MAX(id) FROM {shard.name} WHERE id < {_MOVED_KEYS}")
            row = cursor.fetchone()
            wanted = rng.randrange(1, 2 + int(row[0] if row and row[0] else 0))
        cursor.execute(f"SELECT id FROM {shard.name} WHERE id >= %s ORDER BY id LIMIT 1", (wanted,))
        row = cursor.fetchone()
        return int(row[0]) if row else wanted
