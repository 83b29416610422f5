"""Writes randomly to the sources of a soak: several connections per source, all operations of an application.

Each thread draws from its own seeded generator, so that a run can be repeated up to the servers' scheduling. It only
sends SQL, and only to the sources.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from tests.soak.kinds import MOVED_KEYS
from tests.soak.merge import ELSEWHERE, SCHEMA, SoakTable, Source, insert_head, marks
from tests.support.writer import Counts

_DUPLICATE = 1062
_AGAIN = frozenset({1205, 1213, 3572})  # lock wait time-out, deadlock, lock not available
_LOST = frozenset({0, 1053, 1927, 2002, 2003, 2006, 2013, 2014, 2055})  # the server was killed or is starting
_LOST_PAUSE_SECONDS = 0.3
_COUNT_EVERY = 60
_ROWS_PER_STATEMENT = 1000


@dataclass(slots=True)
class _Hand:
    """The data of one thread. ``crowded``: by table name, whether it holds more rows than its kind should."""

    rng: Random
    source: Source
    tables: tuple[SoakTable, ...]
    weights: tuple[int, ...]
    next_moved_key: int
    connection: Connection | None = None
    crowded: dict[str, bool] = field(default_factory=dict[str, bool])
    touched: int = 0


class Writers:
    """``threads`` writers per source that write until stopped.

    ``pause_seconds``: between two transactions of a thread, on average; it leaves processor time to the program under
    test. ``large_share``: of transactions that are large. Threads wait for a killed source; any other failure ends the
    thread and is kept in :attr:`failure`.
    """

    def __init__(
        self,
        tables: Sequence[SoakTable],
        *,
        seed: int,
        threads: int,
        pause_seconds: float = 0.03,
        large_share: float = 0.001,
    ) -> None:
        self.counts = Counts()
        self._pause_seconds = pause_seconds
        self._large_share = large_share
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failures: list[BaseException] = []
        hands: list[_Hand] = []
        for source in {table.source.number: table.source for table in tables}.values():
            mine = tuple(table for table in tables if table.source is source)
            for number in range(threads):
                hands.append(
                    _Hand(
                        Random(f"{seed}/{source.number}/{number}"),
                        source,
                        mine,
                        tuple(table.kind.share for table in mine),
                        MOVED_KEYS + number * 100_000,
                    )
                )
        self._threads = [
            threading.Thread(target=self._run, args=(hand,), name=f"writer-{number}", daemon=True)
            for number, hand in enumerate(hands)
        ]

    def start(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    @property
    def failure(self) -> BaseException | None:
        """Return the error that has ended a thread early."""
        return self._failures[0] if self._failures else None

    def stop(self) -> Counts:
        """End all threads and return what they committed."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        return self.counts

    # -- one thread

    def _run(self, hand: _Hand) -> None:
        try:
            while not self._stop.wait(hand.rng.random() * 2 * self._pause_seconds):
                done = self._turn(hand)
                with self._lock:
                    self.counts.add(done)
        except Exception as error:  # noqa: BLE001 - the soak reads it
            self._failures.append(error)
        finally:
            _drop(hand)

    def _turn(self, hand: _Hand) -> Counts:
        """Run one transaction; no changes when the server has rejected it."""
        try:
            if hand.connection is None:
                hand.connection = _connected(hand)
            with hand.connection.cursor() as cursor:
                return self._transaction(hand, hand.connection, cursor)
        except pymysql.MySQLError as error:
            number = error.args[0] if error.args else 0
            if number not in _AGAIN and number not in _LOST:
                raise
            _drop(hand)
            if number in _LOST:
                self._stop.wait(_LOST_PAUSE_SECONDS)
            return Counts(retries=1)

    def _transaction(self, hand: _Hand, connection: Connection, cursor: Cursor) -> Counts:
        rng, done = hand.rng, Counts()
        what = rng.random()
        if what < 0.003:
            _elsewhere(rng, cursor)
            return done
        if what < 0.08:  # a single statement is a transaction too
            _change(hand, cursor, done)
            done.transactions = 1
            return done
        connection.begin()
        if what < 0.08 + self._large_share:
            _large(hand, cursor, done)
        else:
            for _ in range(min(1 + int(rng.expovariate(0.5)), 25)):
                if rng.random() < 0.02:
                    _with_savepoint(hand, cursor, done)
                else:
                    _change(hand, cursor, done)
        if rng.random() < 0.04:
            connection.rollback()
            return Counts(rollbacks=1)
        connection.commit()
        done.transactions = 1
        return done


def _connected(hand: _Hand) -> Connection:
    connection = hand.source.server.connect(SCHEMA)
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES'")
        cursor.execute(f"SET SESSION time_zone = '{hand.rng.choice(('+00:00', '+05:30', '-08:00'))}'")
    return connection


def _drop(hand: _Hand) -> None:
    connection, hand.connection = hand.connection, None
    if connection is not None:
        with suppress(pymysql.MySQLError):
            connection.close()


# -- inside a transaction


def _pick(hand: _Hand) -> SoakTable:
    return hand.rng.choices(hand.tables, hand.weights)[0]


def _change(hand: _Hand, cursor: Cursor, done: Counts) -> None:
    """Run one statement, in most cases. The server rolls back a statement that meets a taken key, and no other."""
    table = _pick(hand)
    rng = hand.rng
    what = rng.random()
    if what < 0.42 and _is_crowded(hand, cursor, table):
        what = 0.7
    with _unless_taken():
        if what < 0.3:
            done.inserts += _insert(cursor, table, rng, rng.choice((1, 1, 1, 2, 7)))
        elif what < 0.36:
            done.updates += _replace(cursor, table, rng)
        elif what < 0.42:
            done.updates += _upsert(cursor, table, rng)
        elif what < 0.64:
            done.updates += _update(cursor, table, rng, rng.choice((1, 1, 1, 5)))
        elif what < 0.67:
            _update_nothing(cursor, table, rng)
        elif what < 0.69:
            done.updates += _update_inside(hand, cursor)
        elif what < 0.85:
            done.deletes += _delete(cursor, table, rng, rng.choice((1, 1, 4)))
        elif what < 0.95:
            done.key_changes += _change_key(hand, cursor, table)
        elif what < 0.98:
            done.updates += _wander(cursor, table, rng)
        else:
            done.updates += _two_tables(hand, cursor)


@contextmanager
def _unless_taken() -> Generator[None]:
    """Suppress the error of a taken key, and no other."""
    try:
        yield
    except pymysql.err.IntegrityError as error:
        if error.args[0] != _DUPLICATE:
            raise


def _insert(cursor: Cursor, table: SoakTable, rng: Random, count: int, verb: str = "INSERT") -> int:
    rows = [table.kind.row(rng, table.place) for _ in range(count)]
    values = [value for row in rows for value in row]
    return cursor.execute(insert_head(table, verb) + ", ".join([marks(table)] * count), values)


def _low_id(rng: Random) -> int:
    """Return a key that may exist, may have existed, or is 0."""
    return rng.choice((0, rng.randrange(1, 50), rng.randrange(1, 6000)))


def _with_id(table: SoakTable, rng: Random, verb: str) -> tuple[str, list[object]]:
    """Return an INSERT or REPLACE of one row with an explicit integer key."""
    values: list[object] = list(table.kind.row(rng, table.place))
    if not table.kind.counted:
        return insert_head(table, verb) + marks(table), values
    names = ", ".join(f"`{name}`" for name in ("id", *table.kind.columns))
    placeholders = ", ".join(("%s", *table.kind.marks))
    return f"{verb} INTO {table.name} ({names}) VALUES ({placeholders})", [_low_id(rng), *values]


def _replace(cursor: Cursor, table: SoakTable, rng: Random) -> int:
    return cursor.execute(*_with_id(table, rng, "REPLACE"))


def _upsert(cursor: Cursor, table: SoakTable, rng: Random) -> int:
    at = rng.randrange(len(table.kind.columns))
    statement, values = _with_id(table, rng, "INSERT")
    name = table.kind.columns[at]
    fresh = table.kind.row(rng, table.place)[at]
    return cursor.execute(f"{statement} ON DUPLICATE KEY UPDATE `{name}` = {table.kind.marks[at]}", [*values, fresh])


def _update(cursor: Cursor, table: SoakTable, rng: Random, most: int) -> int:
    where = table.kind.few(rng, most)
    chosen = rng.sample(range(len(table.kind.columns)), rng.choice((1, 1, 2)))
    row = table.kind.row(rng, table.place)
    changed = ", ".join(f"`{table.kind.columns[at]}` = {table.kind.marks[at]}" for at in chosen)
    return cursor.execute(
        f"UPDATE {table.name} SET {changed} {where.text}", [*(row[at] for at in chosen), *where.values]
    )


def _update_nothing(cursor: Cursor, table: SoakTable, rng: Random) -> None:
    """Update columns to their current values: no change, and usually no event."""
    where = table.kind.few(rng, 3)
    name = rng.choice(table.kind.columns)
    cursor.execute(f"UPDATE {table.name} SET `{name}` = `{name}` {where.text}", where.values)


def _update_inside(hand: _Hand, cursor: Cursor) -> int:
    """Update a part of a document, which a server may log as a partial change."""
    rng = hand.rng
    table = rng.choice([table for table in hand.tables if table.kind.name == "wide"])
    where = table.kind.few(rng, 3)
    change = rng.choice(
        ("JSON_SET(js, '$.a', %s)", "JSON_REPLACE(js, '$.b', %s)", "JSON_REMOVE(js, '$.a', CONCAT('$.', %s))")
    )
    return cursor.execute(
        f"UPDATE {table.name} SET js = {change} {where.text}", (rng.choice(("b", "c")), *where.values)
    )


def _delete(cursor: Cursor, table: SoakTable, rng: Random, most: int) -> int:
    where = table.kind.few(rng, most)
    return cursor.execute(f"DELETE FROM {table.name} {where.text}", where.values)


def _change_key(hand: _Hand, cursor: Cursor, table: SoakTable) -> int:
    """Move a row to a new key, to one that is free again, or to one that differs only in upper and lower case."""
    rng = hand.rng
    where = table.kind.few(rng, 1)
    if table.kind.counted:
        hand.next_moved_key += 1
        new = rng.choice((hand.next_moved_key, _low_id(rng)))
        return cursor.execute(f"UPDATE {table.name} SET id = %s {where.text}", (new, *where.values))
    if not table.kind.key:
        return _update(cursor, table, rng, 1)
    if rng.random() < 0.5:
        return cursor.execute(
            f"UPDATE {table.name} SET code = {rng.choice(('UPPER', 'LOWER'))}(code) {where.text}", where.values
        )
    region, code, num, *_ = table.kind.row(rng, table.place)
    return cursor.execute(
        f"UPDATE {table.name} SET region = %s, code = %s, num = %s {where.text}", (region, code, num, *where.values)
    )


def _wander(cursor: Cursor, table: SoakTable, rng: Random) -> int:
    """Delete a row and insert it again at once, unchanged or changed; move a unique value to another row."""
    if table.kind.name != "accounts":
        return _delete(cursor, table, rng, 1) + _replace(cursor, table, rng)
    cursor.execute(
        f"SELECT id, email, slot FROM {table.name} WHERE id >= %s AND email IS NOT NULL LIMIT 2", (_low_id(rng),)
    )
    found = cursor.fetchall()
    if len(found) < 2:
        return 0
    (one, email, slot), (two, _, _) = found
    changed = cursor.execute(f"UPDATE {table.name} SET email = NULL, slot = NULL WHERE id = %s", (one,))
    return changed + cursor.execute(f"UPDATE {table.name} SET email = %s, slot = %s WHERE id = %s", (email, slot, two))


def _two_tables(hand: _Hand, cursor: Cursor) -> int:
    """Change two shard tables with one statement: two table maps in one event group."""
    one, two = (table for table in hand.tables if table.kind.name == "orders")
    pairs = f"{one.name} a JOIN {two.name} b ON a.id = b.id"
    at = hand.rng.randrange(1, 3000)
    if hand.rng.random() < 0.3:
        return cursor.execute(f"DELETE a, b FROM {pairs} WHERE a.id BETWEEN %s AND %s", (at, at + 3))
    return cursor.execute(
        f"UPDATE {pairs} SET a.note = b.note, b.amount = a.amount + 1 WHERE a.id BETWEEN %s AND %s", (at, at + 5)
    )


def _with_savepoint(hand: _Hand, cursor: Cursor, done: Counts) -> None:
    kept, undone = Counts(), Counts()
    cursor.execute("SAVEPOINT here")
    _change(hand, cursor, undone)
    _change(hand, cursor, undone)
    if hand.rng.random() < 0.6:
        cursor.execute("ROLLBACK TO SAVEPOINT here")
    else:
        cursor.execute("RELEASE SAVEPOINT here")
        kept = undone
    _change(hand, cursor, kept)
    done.add(kept)


def _large(hand: _Hand, cursor: Cursor, done: Counts) -> None:
    """Run a transaction of thousands of rows: such groups are applied in pieces."""
    table, rng = _pick(hand), hand.rng
    kind = table.kind
    cursor.execute(f"SELECT COUNT(*) FROM {table.name}")
    [(count,)] = cursor.fetchall()
    if count > kind.most:
        done.deletes += _delete(cursor, table, rng, kind.large)
    elif rng.random() < 0.5:
        name = kind.columns[-1]
        value = kind.row(rng, table.place)[-1]
        done.updates += cursor.execute(
            f"UPDATE {table.name} SET `{name}` = {kind.marks[-1]} LIMIT {kind.large}", (value,)
        )
    else:
        for _ in range(max(1, kind.large // _ROWS_PER_STATEMENT)):
            done.inserts += _insert(cursor, table, rng, min(kind.large, _ROWS_PER_STATEMENT), "INSERT IGNORE")
    # And another statement after it in the same group.
    _change(hand, cursor, done)


def _is_crowded(hand: _Hand, cursor: Cursor, table: SoakTable) -> bool:
    """Return whether the table was crowded at its last count, which is repeated now and then."""
    hand.touched += 1
    if table.name not in hand.crowded or hand.touched % _COUNT_EVERY == 0:
        cursor.execute(f"SELECT COUNT(*) FROM {table.name}")
        [(count,)] = cursor.fetchall()
        hand.crowded[table.name] = count > table.kind.most
    return hand.crowded[table.name]


def _elsewhere(rng: Random, cursor: Cursor) -> None:
    """Write to a schema that the task does not merge, including its definitions."""
    name = f"`{ELSEWHERE}`.`t{rng.randrange(3)}`"
    cursor.execute(
        rng.choice(
            (
                f"CREATE TABLE IF NOT EXISTS {name} (id INT PRIMARY KEY, v TEXT)",
                f"DROP TABLE IF EXISTS {name}",
                f"INSERT INTO `{ELSEWHERE}`.noise (v) VALUES (1), (2), (3)",
                f"UPDATE `{ELSEWHERE}`.noise SET v = v + 1 LIMIT 100",
                f"DELETE FROM `{ELSEWHERE}`.noise LIMIT 100",
                "FLUSH BINARY LOGS",
            )
        )
    )
