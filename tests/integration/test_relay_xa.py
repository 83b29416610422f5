"""Tests two-phase transactions of real servers, also compressed ones: rows are served where they commit."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from pymysql.cursors import Cursor

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.events import HEADER_SIZE, EventType, checksum_matches
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.model import BlockData
from shardmerge.worker.relay.relay import Relay
from tests.integration.relay_rig import (
    START,
    Servers,
    blocks,
    caught_up,
    create_table,
    end_of,
    insert,
    mysql,
    served,
    servers,
)
from tests.support.binlog import split
from tests.support.database import Database
from tests.support.wait import until

pytestmark = pytest.mark.turns

__all__ = ["mysql", "servers"]

_ROWS = (EventType.WRITE_ROWS_V1, EventType.WRITE_ROWS_V2)


def marks(relay: Relay, start: RelayOffset | None = None, end: RelayOffset | None = None) -> list[str]:
    """Return the inserted texts, in the order in which the relay serves them."""
    found: list[str] = []
    for made in served(relay, start, end):
        assert made[4] != EventType.TRANSACTION_PAYLOAD
        # MySQL ends XA COMMIT … ONE PHASE with an XA_PREPARE event that has a flag for it: it is the commit.
        assert made[4] != EventType.XA_PREPARE or made[HEADER_SIZE]
        if made[4] in _ROWS:
            assert checksum_matches(made)
            found += [mark.decode() for mark in re.findall(rb"<([a-z0-9-]+)>", made)]
    return found


@contextmanager
def session(server: Database, *settings: str) -> Generator[Cursor]:
    connection = server.connect("d")
    with connection.cursor() as cursor:
        for setting in settings:
            cursor.execute(setting)
        yield cursor
    connection.close()


def prepared(server: Database, name: str, *texts: str, settings: tuple[str, ...] = ()) -> None:
    """Prepare a transaction in a connection that is closed afterwards."""
    with session(server, *settings) as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        [(thread,)] = cursor.fetchall()
        cursor.execute(f"XA START '{name}', 'branch', 7")
        for text in texts:
            cursor.execute("INSERT INTO t (v) VALUES (%s)", (f"<{text}>",))
        cursor.execute(f"XA END '{name}', 'branch', 7")
        cursor.execute(f"XA PREPARE '{name}', 'branch', 7")
    # When MariaDB notices that the connection is closed, other sessions can end the transaction.
    until(lambda: thread not in {one.id for one in server.threads()}, "the connection is gone")


def ended(server: Database, name: str, how: str = "COMMIT") -> None:
    server.execute(f"XA {how} '{name}', 'branch', 7")


def plain(server: Database, text: str) -> None:
    insert(server, 1, f"<{text}>")


def started(servers: Servers, source: Database, name: str = "relay") -> Relay:
    relay = servers.relay(source, name)
    relay.ensure_from(START)
    relay.start()
    return relay


COMPRESSED = "SET SESSION binlog_transaction_compression = ON"


def test_rows_come_where_they_commit(servers: Servers) -> None:
    source = servers.server("source")
    create_table(source)
    relay = started(servers, source)
    plain(source, "one")
    prepared(source, "a", "a1", "a2")
    plain(source, "two")
    prepared(source, "b", "b1")
    if not servers.is_mariadb:
        prepared(source, "c", "c1", settings=(COMPRESSED,))
    plain(source, "three")
    ended(source, "a")
    ended(source, "b", "ROLLBACK")
    plain(source, "four")
    source.execute("FLUSH BINARY LOGS")
    with session(source) as cursor:
        for statement in (
            "XA START 'nothing'", "SELECT * FROM t", "XA END 'nothing'", "XA PREPARE 'nothing'", "XA COMMIT 'nothing'",
            "XA START 'phase'", "INSERT INTO t (v) VALUES ('<phase>')", "XA END 'phase'", "XA COMMIT 'phase' ONE PHASE",
        ):  # fmt: skip
            cursor.execute(statement)
    late = [] if servers.is_mariadb else ["c1"]
    if late:
        ended(source, "c")
    plain(source, "five")
    end = caught_up(relay, source)
    wanted = ["one", "two", "three", "a1", "a2", "four", "phase", *late, "five"]
    assert marks(relay) == wanted
    assert sorted(wanted) == sorted(str(v)[1:-1] for (v,) in source.query("SELECT v FROM d.t"))
    # From every offset the remaining rows are served, also by a relay that was opened again.
    relay.stop()
    again = servers.relay(source)
    for block in blocks(again):
        if block.ends_group:
            assert marks(again, end=block.end) + marks(again, start=block.end, end=end) == wanted


def test_what_was_prepared_before_the_relay_log_began_is_fetched(servers: Servers) -> None:
    """A snapshot between PREPARE and COMMIT; a relay that another worker starts at a checkpoint between them."""
    source = servers.server("source")
    create_table(source)
    plain(source, "before")
    prepared(source, "early", "e1")
    for _ in range(3):
        source.execute("FLUSH BINARY LOGS")
        plain(source, "between")
    start = end_of(source)
    relay = servers.relay(source)
    relay.ensure_from(start)
    relay.start()
    caught_up(relay, source)
    began = relay.relay_id
    plain(source, "after")
    ended(source, "early")
    plain(source, "last")
    caught_up(relay, source)
    assert relay.relay_id != began
    assert marks(relay, relay.locate(start, 60, StopSignal())) == ["after", "e1", "last"]
    assert relay.failure() is None


def test_what_was_prepared_in_a_purged_file_is_an_error_for_who_would_need_it(servers: Servers) -> None:
    source = servers.server("source")
    create_table(source)
    prepared(source, "gone", "g1")
    source.purge()
    start = end_of(source)
    relay = servers.relay(source)
    relay.ensure_from(start)
    relay.start()
    plain(source, "before")
    caught_up(relay, source)
    behind = end_of(source)
    ended(source, "gone")
    plain(source, "after")
    caught_up(relay, source)
    with pytest.raises(ShardmergeError) as caught:
        marks(relay)
    assert caught.value.spec is errors.relay.XA_PREPARE_MISSING
    assert "X'676f6e65',X'6272616e6368',7" in caught.value.message
    assert relay.failure() is None  # the relay itself continues
    # The relay had started anew to find the prepared transaction: offsets have changed.
    assert marks(relay, end=relay.locate(behind, 60, StopSignal())) == ["before"]
    # The relay does not search for it again.
    relay.stop()
    again = servers.relay(source)
    again.start()
    plain(source, "later")
    caught_up(again, source)
    assert again.relay_id == relay.relay_id


def test_a_rollback_without_its_prepare_is_nothing(servers: Servers) -> None:
    source = servers.server("source")
    create_table(source)
    prepared(source, "early", "e1")
    start = end_of(source)
    relay = servers.relay(source)
    relay.ensure_from(start)
    relay.start()
    ended(source, "early", "ROLLBACK")
    plain(source, "after")
    caught_up(relay, source)
    assert marks(relay) == ["after"]


def test_a_prepared_transaction_outlives_server_relay_and_switch(servers: Servers) -> None:
    old, new = servers.server("old"), servers.server("new")
    create_table(old)
    servers.follow(new, old)
    relay = started(servers, old)
    prepared(old, "long", "l1", "l2")
    plain(old, "one")
    caught_up(relay, old)
    old.kill()
    old.start()
    plain(old, "two")
    caught_up(relay, old)
    relay.stop()
    servers.caught_up(new, old)
    old.stop()
    servers.promote(new)
    again = servers.relay(new)
    again.start()
    plain(new, "three")
    ended(new, "long")
    plain(new, "four")
    caught_up(again, new)
    assert marks(again) == ["one", "two", "three", "l1", "l2", "four"]


def test_compressed_transactions_of_every_size(mysql: Servers) -> None:
    source = mysql.server("source", "--max-allowed-packet=256M")
    create_table(source)
    source.execute("ALTER TABLE d.t MODIFY v LONGTEXT")
    relay = started(mysql, source)
    wanted: list[str] = []
    for number in range(12):
        compression = "ON" if number % 3 else "OFF"
        with session(source, f"SET SESSION binlog_transaction_compression = {compression}") as cursor:
            cursor.execute("BEGIN")
            for row in range(4 ** (number % 6)):
                wanted.append(f"t{number}-{row}")
                cursor.execute("INSERT INTO t (v) VALUES (%s)", (f"<{wanted[-1]}>" + "x" * 300 * (number % 5),))
            if number == 7:  # one row of many MiB, which is small in the compressed file
                wanted.append("huge")
                cursor.execute("INSERT INTO t (v) VALUES (CONCAT('<huge>', REPEAT('y', 40 << 20)))")
            cursor.execute("COMMIT")
    end = caught_up(relay, source)
    assert marks(relay) == wanted
    made = blocks(relay)
    assert max(len(block.events) for block in made if b"<huge>" not in block.events) < 300_000
    assert any(not block.ends_group for block in made)
    assert relay.status().bytes_on_disk < 3 << 20
    relay.stop()
    again = mysql.relay(source)
    for block in made:
        if block.ends_group:
            assert marks(again, end=block.end) + marks(again, start=block.end, end=end) == wanted
    _pieces_resume(again, made)


def _pieces_resume(relay: Relay, made: list[BlockData]) -> None:
    """The pieces of a group may have other boundaries when they are served again; their events, and the number of
    events before each piece, are the same."""
    for block in made:
        if not block.ends_group and block.first_event == 0:
            events = b"".join(one.events for one in made if one.group_start == block.group_start)
            served_again = blocks(relay, block.group_start)
            assert b"".join(one.events for one in served_again).startswith(events)
            before = 0
            for piece in served_again:
                if piece.ends_group:
                    break
                assert (piece.group_start, piece.first_event) == (block.group_start, before)
                before += len(list(split(piece.events)))
