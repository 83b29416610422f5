"""Tests whether a source may be read from another address: proven at real servers, or refused with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from shardmerge.proto import errors
from shardmerge.proto.common_pb2 import Stage
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.fetch.server_change import AddressProof, check_reach
from shardmerge.worker.relay.relay import Relay
from tests.integration.relay_rig import (
    START,
    Servers,
    caught_up,
    create_table,
    end_of,
    executed,
    gtids,
    insert,
    mysql,
    servers,
    written,
)
from tests.support.database import Database
from tests.support.mysql import MySQL
from tests.support.wait import until

__all__ = ["mysql", "servers"]


def _reading(servers: Servers, source: Database, name: str = "relay") -> Relay:
    """Return a relay that has read all of ``source`` and continues."""
    relay = servers.relay(source, name)
    if not relay.relay_id:
        relay.ensure_from(START)
    relay.start()
    caught_up(relay, source)
    return relay


def _proven(
    relay: Relay, server: Database, host: str = "127.0.0.1", lowest: SourcePosition | None = None
) -> AddressProof:
    return relay.prove_switch(Endpoint(host, server.port, "root"), lowest)


def _refused(call: Callable[[], object], spec: ErrorSpec) -> str:
    with pytest.raises(ShardmergeError) as caught:
        call()
    assert caught.value.spec is spec, caught.value
    return caught.value.message


def _pair(servers: Servers) -> tuple[Database, Database]:
    """Return two servers; ``new`` follows ``old``."""
    old, new = servers.server("old"), servers.server("new")
    create_table(old)
    insert(old, 5)
    servers.follow(new, old)
    servers.caught_up(new, old)
    return old, new


def _has_all_of(replica: Database, source: Database) -> bool:
    """Return whether the replica has executed all transactions of the source; it may have others of its own."""
    if replica.flavor == "mariadb":
        return executed(replica) == executed(source)
    return replica.query(f"SELECT GTID_SUBSET('{executed(source)}', @@GLOBAL.gtid_executed)") == [(1,)]


@pytest.mark.turns
def test_the_same_server_at_another_address(servers: Servers) -> None:
    source = servers.server("source")
    create_table(source)
    insert(source, 300)
    source.execute("FLUSH BINARY LOGS")
    insert(source, 300)
    relay = _reading(servers, source)
    relay.stop()
    insert(source, 5)  # the source continues: the compared position is the relay log's end
    proof = _proven(relay, source, "localhost")
    assert proof.same and proof.server == end_of(source).server
    # The same right after the beginning of a file.
    relay.start()
    source.execute("FLUSH BINARY LOGS")
    caught_up(relay, source)
    assert _proven(relay, source, "localhost").same


@pytest.mark.turns
def test_a_server_whose_data_was_copied(servers: Servers) -> None:
    """The copy has the identity of the original: it counts as the same server, until both have diverged."""
    source = servers.server("source")
    create_table(source)
    insert(source, 20)
    relay = _reading(servers, source)
    relay.stop()
    source.stop()
    shutil.copytree(source.directory / "data", servers.directory / "copy" / "data")
    (servers.directory / "copy" / "tmp").mkdir()
    copy = servers.server("copy", start=False)
    copy.server_id = source.server_id
    copy.start()
    proof = _proven(relay, copy)
    assert proof.same, proof
    # Both continue separately: the same number of bytes and GTIDs, but different rows.
    source.start()
    insert(source, 5, "aaaa")
    relay.start()
    caught_up(relay, source)
    relay.stop()
    insert(copy, 2, "bbbbbbbb")
    _refused(lambda: _proven(relay, copy), errors.relay.SWITCH_OTHER_BINLOG)
    insert(copy, 20, "cc")
    spec = errors.relay.SWITCH_OTHER_BINLOG
    assert "was read up to" in _refused(lambda: _proven(relay, copy), spec)
    # MariaDB reports the GTIDs at a position: a worker without the relay log can check only these
    if servers.is_mariadb:
        empty = servers.relay(copy, "empty")
        _refused(lambda: _proven(empty, copy, lowest=relay.head().position), spec)
    assert _proven(relay, source).same


@pytest.mark.turns
def test_a_replica_that_was_promoted(servers: Servers) -> None:
    old, new = _pair(servers)
    relay = _reading(servers, old)
    insert(old, 3)
    caught_up(relay, old)
    servers.caught_up(new, old)
    new.execute("FLUSH BINARY LOGS")
    # Not promoted yet: it has written no transaction of its own.
    proof = _proven(relay, new)
    assert not proof.same and proof.server == end_of(old).server
    servers.promote(new)
    insert(new, 5)
    new.execute("FLUSH BINARY LOGS")
    insert(new, 5)
    old.stop()
    proof = _proven(relay, new)
    assert not proof.same and "continues by GTID" in proof.text
    # A worker that is new to the source has only the tasks' positions.
    place = relay.head().position
    empty = servers.relay(new, "empty")
    assert not _proven(empty, new, lowest=place).same
    assert _proven(empty, new) == AddressProof("", same=False, text="nothing was read yet")


def test_what_a_replica_wrote_itself_in_between(servers: Servers) -> None:
    old, new = _pair(servers)
    relay = _reading(servers, old)
    new.execute("INSERT INTO d.t VALUES (4711, 'own')")
    own = gtids(written(new))[-1]
    new.execute("FLUSH BINARY LOGS")
    insert(old, 3)
    caught_up(relay, old)
    until(lambda: len(new.query("SELECT id FROM d.t")) == 9, "all is applied")
    # Rows become visible a moment before their GTIDs.
    until(lambda: _has_all_of(new, old), "their GTIDs are executed")
    message = _refused(lambda: _proven(relay, new), errors.relay.SWITCH_ERRANT)
    assert f"transaction {own} of its own" in message
    # Neither a promotion nor missing files correct that.
    servers.promote(new)
    assert own in _refused(lambda: _proven(relay, new), errors.relay.SWITCH_ERRANT)
    new.purge()
    _refused(
        lambda: _proven(relay, new),
        errors.relay.SWITCH_UNPROVEN if servers.is_mariadb else errors.relay.SWITCH_LACKS_GTIDS,
    )


def test_what_a_server_wrote_when_it_was_the_source_is_no_such_thing(servers: Servers) -> None:
    a, b = _pair(servers)
    relay = _reading(servers, a)
    servers.caught_up(b, a)
    servers.promote(b)
    assert not _proven(relay, b).same
    relay.stop()
    servers.follow(a, b)
    insert(b, 4)
    a.execute("FLUSH BINARY LOGS")
    again = _reading(servers, b)
    servers.caught_up(a, b)
    servers.promote(a)
    insert(a, 2)
    b.stop()
    again.stop()
    proof = _proven(again, a)
    assert proof.server == end_server(again) and not proof.same


def test_what_a_server_wrote_and_was_read_from_its_replica_is_no_such_thing(servers: Servers) -> None:
    """``b`` is the primary for a while, and all of it is read from ``a``, which is its replica then: by a relay that
    was started before and stopped meanwhile, and by one that was running all the time. These are no transactions of
    ``b``'s own."""
    a, b = _pair(servers)
    left, steady = _reading(servers, a, "left"), _reading(servers, a, "steady")
    left.stop()
    servers.caught_up(b, a)
    servers.promote(b)
    servers.follow(a, b)
    insert(b, 4)
    servers.caught_up(a, b)
    caught_up(steady, a)
    servers.promote(a)
    servers.follow(b, a)
    insert(a, 3)
    servers.caught_up(b, a)
    left.start()
    caught_up(left, a)
    caught_up(steady, a)
    for relay in (left, steady):
        assert not _proven(relay, b).same
    # The read events may be purged from the disk, and the relay may have reconnected.
    for _ in range(2):
        a.execute("FLUSH BINARY LOGS")
        insert(a, 3)
        caught_up(steady, a)
    steady.stop()
    steady.set_needed(lambda: steady.head().offset)
    assert steady.purge_before(end_of(a).file).segments > 0
    again = servers.relay(a, "steady")
    again.start()
    insert(a, 3)
    caught_up(again, a)
    servers.caught_up(b, a)
    assert not _proven(again, b).same
    if servers.is_mariadb:  # its positions name only the last GTID of a domain
        empty = servers.relay(b, "empty")
        place = again.head().position
        assert "whether that was read" in _refused(
            lambda: _proven(empty, b, lowest=place), errors.relay.SWITCH_UNPROVEN
        )


def end_server(relay: Relay) -> str:
    return relay.head().position.server


def test_a_replica_that_lacks_or_has_purged_something(servers: Servers) -> None:
    old, new = _pair(servers)
    relay = _reading(servers, old)
    known = executed(old)
    servers.detach(new)
    insert(old, 2)
    caught_up(relay, old)
    lacks = _refused(lambda: _proven(relay, new), errors.relay.SWITCH_LACKS_GTIDS)
    assert "it does not have GTID" in lacks
    relay.stop()
    if servers.is_mariadb:
        servers.follow(new, old)
    else:
        new.execute("START REPLICA")
    servers.caught_up(new, old)
    servers.promote(new)
    insert(new, 3)
    new.purge()
    gone = _refused(lambda: _proven(relay, new), errors.relay.SWITCH_LACKS_GTIDS)
    assert "it no longer has GTID" in gone
    assert known


@pytest.mark.turns
def test_without_gtids_only_the_same_server_will_do(mysql: Servers) -> None:
    pair = [MySQL(mysql.directory / f"plain-{number}", 200 + number, gtid=False) for number in (1, 2)]
    try:
        for server in pair:
            server.start()
            create_table(server)
            insert(server, 5)
        relay = _reading(mysql, pair[0])
        assert _proven(relay, pair[0], "localhost").same
        assert "gtid_mode" in _refused(lambda: _proven(relay, pair[1]), errors.relay.SWITCH_UNPROVEN)
    finally:
        for server in pair:
            server.stop()


@pytest.mark.turns
def test_what_another_worker_could_fetch(servers: Servers) -> None:
    old, new = _pair(servers)
    relay = _reading(servers, old)
    at = relay.position_at(RelayOffset(relay.head().offset.segment, relay.head().offset.byte))
    check_reach("s", Endpoint("127.0.0.1", old.port, "root"), at)
    servers.caught_up(new, old)
    check_reach("s", Endpoint("127.0.0.1", new.port, "root"), at)
    servers.promote(new)
    insert(new, 2)
    new.purge()
    insert(old, 2)
    old.purge()
    for server, says in ((old, "oldest binlog file"), (new, "is purged")):
        endpoint = Endpoint("127.0.0.1", server.port, "root")
        message = _refused(lambda endpoint=endpoint: check_reach("s", endpoint, at), errors.relay.MOVE_WOULD_LOSE)
        assert says in message
    _refused(
        lambda: check_reach(
            "s", Endpoint("127.0.0.1", new.port, "root"), SourcePosition("mysql-bin.000001", 4, "", "x")
        ),
        errors.relay.MOVE_WOULD_LOSE,
    )


def test_a_paused_relay_serves_what_it_has(servers: Servers) -> None:
    source = servers.server("source")
    create_table(source)
    relay = _reading(servers, source)
    relay.pause(paused=True)
    head = relay.head()
    insert(source, 5)
    relay.start()  # as every run of a task does
    assert (relay.status().stage, relay.status().error) == (Stage.STAGE_PAUSED, None)
    until(lambda: not source.dump_threads(), "the dump has ended")
    assert relay.head() == head
    relay.pause(paused=False)
    caught_up(relay, source)
    assert relay.head().offset > head.offset
