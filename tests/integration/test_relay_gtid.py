"""Tests the relay by GTID with both flavors: it starts at a set, continues at another server, and names missing
GTIDs."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect, current_position, server_info
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.log.files import relay_path
from tests.integration.relay_rig import (
    START,
    Servers,
    Writer,
    caught_up,
    create_table,
    cut_dumps,
    end_of,
    executed,
    failed_with,
    gtids,
    insert,
    mysql,
    served,
    servers,
    written,
)
from tests.support.mysql import MySQL
from tests.support.wait import until

__all__ = ["mysql", "servers"]


@pytest.mark.turns
def test_it_begins_at_a_set_alone(servers: Servers) -> None:
    source = servers.server("source")
    create_table(source)
    insert(source, 5)
    source.execute("FLUSH BINARY LOGS")
    insert(source, 5)
    given = executed(source)
    insert(source, 5)
    source.execute("FLUSH BINARY LOGS")
    insert(source, 5)
    relay = servers.relay(source)
    relay.ensure_from(SourcePosition("", 0, given))
    relay.start()
    caught_up(relay, source)
    wanted = gtids(written(source))[-10:]
    assert gtids(served(relay)) == wanted
    at = relay.locate(SourcePosition("", 0, given), 60, StopSignal())
    assert gtids(served(relay, at)) == wanted
    assert relay.head().position.gtid_set == executed(source)
    # After a restart of the worker it continues.
    relay.stop()
    insert(source, 5)
    again = servers.relay(source)
    again.start()
    caught_up(again, source)
    assert gtids(served(again)) == gtids(written(source))[-15:]


@pytest.mark.turns
def test_it_begins_at_the_end_while_transactions_commit(servers: Servers) -> None:
    """MySQL reports its GTID set and its file position at different moments: this may neither lose nor repeat a
    transaction."""
    source = servers.server("source")
    create_table(source)
    whole = servers.relay(source, "whole")
    whole.ensure_from(START)
    whole.start()
    session = connect(Endpoint(source.host, source.port, "root"), Side.SOURCE, name="s")
    info = server_info(session)
    with Writer(source, connections=4) as writer:
        for number in range(5):
            done = writer.done
            until(lambda done=done: writer.done > done + 20, "the writers go on")
            start = current_position(session, info)
            relay = servers.relay(source, f"relay-{number}")
            relay.ensure_from(start)
            relay.start()
            at = relay.locate(start, 120, StopSignal())
            done = writer.done
            until(lambda done=done: writer.done > done + 20, "the writers go on")
            end = caught_up(relay, source)
            position = relay.position_at(end)
            relay.stop()
            found = gtids(served(relay, at, end))
            other = whole.locate(start, 120, StopSignal()), whole.locate(position, 120, StopSignal())
            wanted = gtids(served(whole, *other))
            same = found == wanted
            assert same, f"{len(found)} transactions, {len(wanted)} are there"
            # The set that is stored with a position is the set at that position.
            assert relay.position_at(at).gtid_set == whole.position_at(other[0]).gtid_set
    session.close()


@pytest.mark.turns
def test_it_continues_at_another_server_with_the_same_data(servers: Servers) -> None:
    old, new = servers.server("old"), servers.server("new")
    new.execute(*["FLUSH BINARY LOGS"] * 3)
    create_table(old)
    servers.follow(new, old)
    relay = servers.relay(old)
    relay.ensure_from(START)
    relay.start()
    with Writer(old) as writer:
        until(lambda: writer.done > 60, "rows")
        new.execute("FLUSH BINARY LOGS")
        until(lambda: writer.done > 120, "rows")
    place = end_of(old)
    end_of_old = caught_up(relay, old)
    assert place.server == relay.head().position.server
    before = gtids(served(relay))
    relay.stop()
    insert(old, 20)  # the relay has not read these from the old server
    servers.caught_up(new, old)
    old.kill()
    servers.promote(new)
    insert(new, 20)
    again = servers.relay(new)
    relay_id = again.relay_id
    again.start()
    caught_up(again, new)
    found = gtids(served(again))
    assert found[: len(before)] == before
    assert len(set(found)) == len(found)
    assert sorted(found) == sorted(gtids(written(new)))
    assert again.relay_id != relay_id
    assert again.head().position.gtid_set == executed(new)
    # Positions of the old server are found at the same offset.
    assert again.locate(place, 60, StopSignal()) == end_of_old
    assert again.head().position.server != place.server


@pytest.mark.turns
def test_cut_connections_after_a_switch_lose_and_repeat_nothing(servers: Servers) -> None:
    """Until the new server's next file the relay connects by GTID each time."""
    old, new = servers.server("old"), servers.server("new")
    create_table(old)
    insert(old, 30)
    servers.follow(new, old)
    relay = servers.relay(old)
    relay.ensure_from(START)
    relay.start()
    caught_up(relay, old)
    relay.stop()
    servers.caught_up(new, old)
    servers.promote(new)
    old.stop()
    again = servers.relay(new)
    again.start()
    with Writer(new) as writer:
        killed: set[int] = set()
        for number in range(6):
            done = writer.done
            until(lambda done=done: writer.done > done + 20, "the writer goes on")
            killed |= cut_dumps(new, killed)
            if number == 3:
                new.execute("FLUSH BINARY LOGS")
    caught_up(again, new)
    found = gtids(served(again))
    same = found == gtids(written(new))
    assert same, f"{len(found)} served, {len(gtids(written(new)))} written"
    new.kill()
    new.start()
    insert(new, 5)
    caught_up(again, new)
    assert gtids(served(again)) == gtids(written(new))


@pytest.mark.turns
def test_back_and_forth_between_two_servers(servers: Servers) -> None:
    """Each server writes for a while, then follows the other: files of both names alternate."""
    pair = [servers.server("a"), servers.server("b")]
    create_table(pair[0])
    servers.follow(pair[1], pair[0])
    for number in range(4):
        source, replica = pair[number % 2], pair[(number + 1) % 2]
        insert(source, 10)
        relay = servers.relay(source)
        if number == 0:
            relay.ensure_from(START)
        relay.start()
        caught_up(relay, source)
        insert(source, 3)
        if number == 2:
            caught_up(relay, source)
        relay.stop()
        servers.caught_up(replica, source)
        servers.promote(replica)
        servers.follow(source, replica)
    relay = servers.relay(pair[0])
    relay.start()
    insert(pair[0], 1)
    servers.caught_up(pair[1], pair[0])
    caught_up(relay, pair[0])
    found = gtids(served(relay))
    assert len(found) == 4 * 13 + 3 == len(set(found))
    assert sorted(found) == sorted(gtids(written(pair[0])))
    assert sorted(found) == sorted(gtids(written(pair[1])))


@pytest.mark.turns
def test_a_replica_that_lags_is_waited_for(servers: Servers) -> None:
    old, new = servers.server("old"), servers.server("new")
    create_table(old)
    servers.follow(new, old)
    servers.caught_up(new, old)
    servers.detach(new)
    insert(old, 5)
    relay = servers.relay(old)
    relay.ensure_from(START)
    relay.start()
    caught_up(relay, old)
    relay.stop()
    again = servers.relay(new)
    again.start()
    error = failed_with(again, errors.relay.SOURCE_LACKS_GTIDS)
    last = gtids(written(old))[-1 if servers.is_mariadb else -5]
    assert last in error.message
    assert again.failure() is None
    servers.follow(new, old) if servers.is_mariadb else new.execute("START REPLICA")
    servers.caught_up(new, old)
    servers.promote(new)
    insert(new, 5)
    caught_up(again, new)
    assert gtids(served(again)) == gtids(written(new))
    until(lambda: again.status().error is None, "the error is forgotten")


@pytest.mark.turns
@pytest.mark.parametrize("by_gtid", [True, False])
@pytest.mark.parametrize("is_connected", [True, False])
def test_a_server_that_lost_its_end_and_uses_its_gtids_again(
    servers: Servers, *, by_gtid: bool, is_connected: bool
) -> None:
    """The lost transactions may be applied: the new ones with their GTIDs are others."""
    source = servers.server("source")
    create_table(source)
    insert(source, 5)
    relay = servers.relay(source)
    relay.ensure_from(SourcePosition("", 0, executed(source)) if by_gtid else START)
    relay.start()
    insert(source, 5)
    caught_up(relay, source)
    kept = end_of(source)
    insert(source, 5)
    caught_up(relay, source)
    lost, before = executed(source), relay.head()
    if not is_connected:
        relay.stop()
    source.kill()
    with (source.directory / "data" / kept.file).open("r+b") as file:
        file.truncate(kept.pos)
    source.start()
    insert(source, 20)
    assert not GtidSet(executed(source)).never_had(GtidSet(lost)), "they are used again"
    if not is_connected:
        relay.start()
    failure = until(relay.failure, "the relay stops for good")
    assert failure.spec is errors.relay.SOURCE_LOG_RESET
    assert relay.head() == before
    assert "--remove-meta" in failure.workaround


def test_an_event_that_is_another_one_at_the_source(servers: Servers) -> None:
    """A machine that was set back goes on in the same file: another event may end at the same byte."""
    source = servers.server("source")
    create_table(source)
    relay = servers.relay(source)
    relay.ensure_from(START)
    relay.start()
    insert(source, 5)
    caught_up(relay, source)
    head = relay.head()
    relay.stop()
    relay.start()
    until(lambda: source.dump_threads(), "it continues")
    assert relay.failure() is None
    relay.stop()
    # Of the last event, whose last bytes are a checksum: as if another transaction was stored there.
    stored = relay_path(servers.directory / "relay", head.offset.segment)
    with stored.open("r+b") as file:
        file.seek(head.offset.byte - 5)
        byte = file.read(1)[0]
        file.seek(head.offset.byte - 5)
        file.write(bytes([byte ^ 1]))
    relay.start()
    failure = until(relay.failure, "the relay stops for good", 60)
    assert failure.spec is errors.relay.SOURCE_LOG_RESET
    assert "another one" in failure.message
    assert relay.head() == head


def test_a_place_without_a_relay_log_is_checked(servers: Servers) -> None:
    """A worker that is new to the source has only the place of a checkpoint and the time of its transaction."""
    source = servers.server("source")
    create_table(source)
    relay = servers.relay(source)
    relay.ensure_from(START)
    relay.start()
    insert(source, 5)
    caught_up(relay, source)
    kept = relay.head()
    relay.check_read(kept.position, kept.commit_time)
    source.execute("FLUSH BINARY LOGS")
    until(lambda: time.time() > kept.commit_time + 4, "the next file is begun later")
    source.execute("FLUSH BINARY LOGS")
    caught_up(relay, source)
    idle = replace(relay.head().position, pos=end_of(source).pos)
    relay.check_read(idle, kept.commit_time)  # no transaction since

    insert(source, 5)
    caught_up(relay, source)
    lost = relay.head()
    relay.check_read(lost.position, lost.commit_time)
    relay.stop()
    source.kill()
    with (source.directory / "data" / idle.file).open("r+b") as file:
        file.truncate(idle.pos)
    source.start()
    insert(source, 20)
    with pytest.raises(ShardmergeError) as caught:
        relay.check_read(lost.position, lost.commit_time)
    assert caught.value.spec is errors.relay.SOURCE_LOG_RESET
    assert "no event of its" in caught.value.message


@pytest.mark.turns
def test_a_place_in_a_file_that_was_begun_anew(servers: Servers) -> None:
    """The statements are the same: the place is one between two transactions in the new file too."""
    source = servers.server("source")
    create_table(source)
    source.execute("RESET MASTER" if servers.is_mariadb else "RESET BINARY LOGS AND GTIDS")
    insert(source, 5)
    relay = servers.relay(source)
    relay.ensure_from(START)
    relay.start()
    caught_up(relay, source)
    read = relay.head()
    relay.stop()
    until(lambda: time.time() > read.commit_time + 4, "the new file is begun later")
    source.execute("RESET MASTER" if servers.is_mariadb else "RESET BINARY LOGS AND GTIDS")
    insert(source, 10)
    with pytest.raises(ShardmergeError) as caught:
        relay.check_read(read.position, read.commit_time)
    assert caught.value.spec is errors.relay.SOURCE_LOG_RESET
    assert "has a transaction of" in caught.value.message
    relay.check_read(replace(read.position, server="another"), read.commit_time)
    relay.check_read(replace(read.position, file="mysql-bin.999999"), read.commit_time)


@pytest.mark.turns
def test_a_fresh_start_reads_a_server_with_another_history(servers: Servers) -> None:
    """After a fail-over the former server has a transaction of its own, and its address is configured again."""
    old, new = servers.server("old"), servers.server("new")
    create_table(old)
    servers.follow(new, old)
    servers.caught_up(new, old)
    relay = servers.relay(old)
    relay.ensure_from(START)
    relay.start()
    caught_up(relay, old)
    relay.stop()
    servers.promote(new)
    insert(new, 5)
    moved = servers.relay(new)
    moved.start()
    caught_up(moved, new)
    moved.stop()
    insert(old, 1)
    back = servers.relay(old)
    back.start()
    failed_with(back, errors.relay.SOURCE_LACKS_GTIDS)
    here = end_of(old)
    assert not back.ensure_from(here), "a task may need the log"
    assert back.ensure_from(here, fresh=True)
    insert(old, 3)
    begin = back.locate(here, 120, StopSignal())
    assert gtids(served(back, begin, caught_up(back, old))) == gtids(written(old))[-3:]


def test_what_a_server_has_purged_is_named_with_the_way_out(servers: Servers) -> None:
    source = servers.server("source")
    create_table(source)
    insert(source, 5)
    known = executed(source)
    insert(source, 1)
    missing = gtids(written(source))[-1]
    source.execute("FLUSH BINARY LOGS")
    insert(source, 5)
    source.purge()
    if servers.is_mariadb:  # numbers run per domain, for all servers
        missing = "0-*-" + missing.rpartition("-")[2]
    relay = servers.relay(source)
    relay.ensure_from(SourcePosition("", 0, known))
    relay.start()
    error = failed_with(relay, errors.relay.SOURCE_GTIDS_GONE)
    assert f"the first missing GTID is {missing}:" in error.message
    assert "--remove-meta" in error.workaround
    assert relay.failure() is error
    # Even if it was read by files, the error names the GTID.
    relay.stop()
    by_file = servers.relay(source, "by-file")
    by_file.ensure_from(START)
    by_file.start()
    assert "mysql-bin.000001" in failed_with(by_file, errors.relay.SOURCE_LOG_GONE).message


def test_a_file_that_was_purged_while_the_worker_was_away(servers: Servers) -> None:
    source = servers.server("source")
    create_table(source)
    relay = servers.relay(source)
    relay.ensure_from(START)
    relay.start()
    caught_up(relay, source)
    relay.stop()
    insert(source, 1)
    missing = gtids(written(source))[-1]
    source.purge()
    again = servers.relay(source)
    again.start()
    error = failed_with(again, errors.relay.SOURCE_LOG_GONE)
    assert "mysql-bin.000001" in error.message
    assert missing.rpartition("-" if servers.is_mariadb else ":")[2] in error.message.rpartition("missing GTID is")[2]


@pytest.mark.turns
def test_without_gtids_another_server_is_an_error_with_the_way_out(mysql: Servers) -> None:
    old = MySQL(mysql.directory / "plain-1", 201, gtid=False)
    new = MySQL(mysql.directory / "plain-2", 202, gtid=False)
    for server in (old, new):
        server.start()
        create_table(server)
        insert(server, 5)
    try:
        relay = mysql.relay(old)
        relay.ensure_from(START)
        relay.start()
        caught_up(relay, old)
        relay.stop()
        again = mysql.relay(new)
        again.start()
        error = failed_with(again, errors.relay.SOURCE_CHANGED)
        assert "without GTIDs" in error.message
        assert "gtid_mode=ON" in error.workaround
        assert again.failure() is error
        back = mysql.relay(old)
        again.stop()
        insert(old, 5)
        back.start()
        caught_up(back, old)
        assert len(served(back)) == len(written(old)) + 1
    finally:
        old.stop()
        new.stop()


@pytest.mark.turns
def test_gtids_with_tags(mysql: Servers) -> None:
    old, new = mysql.server("old"), mysql.server("new")
    create_table(old)
    mysql.follow(new, old)
    connection = old.connect("d")
    with connection.cursor() as cursor:
        for tag, _ in itertools.product(("blue", "_red"), range(3)):
            cursor.execute(f"SET gtid_next = 'AUTOMATIC:{tag}'")
            cursor.execute("INSERT INTO t (v) VALUES ('tagged')")
            cursor.execute("SET gtid_next = 'AUTOMATIC'")
            cursor.execute("INSERT INTO t (v) VALUES ('plain')")
    connection.close()
    assert ":blue:1-3" in executed(old) and ":_red:1-3" in executed(old)
    old.execute("FLUSH BINARY LOGS")
    relay = mysql.relay(old)
    relay.ensure_from(START)
    relay.start()
    caught_up(relay, old)
    assert GtidSet(relay.head().position.gtid_set).lacks(GtidSet(executed(old))) == ""
    assert relay.head().position.gtid_set == executed(old)
    assert gtids(served(relay)) == gtids(written(old))
    relay.stop()
    mysql.caught_up(new, old)
    mysql.promote(new)
    with_tag = new.connect("d")
    with with_tag.cursor() as cursor:
        cursor.execute("SET gtid_next = 'AUTOMATIC:blue'")
        cursor.execute("INSERT INTO t (v) VALUES ('tagged')")
        cursor.execute("SET gtid_next = 'AUTOMATIC'")
    with_tag.close()
    again = mysql.relay(new)
    again.start()
    caught_up(again, new)
    assert gtids(served(again)) == gtids(written(new))
    assert again.head().position.gtid_set == executed(new)
    # The same from a set that has only tags.
    alone = mysql.relay(new, "alone")
    alone.ensure_from(SourcePosition("", 0, executed(old)))
    alone.start()
    caught_up(alone, new)
    assert gtids(served(alone)) == gtids(written(new))[-1:]


def test_an_unreadable_set_is_refused(servers: Servers) -> None:
    relay = servers.relay(servers.server("source", start=False))
    for given in ("", "what is this", "0-1"):
        with pytest.raises(ShardmergeError) as caught:
            relay.ensure_from(SourcePosition("", 0, given))
        assert caught.value.spec is errors.relay.POSITION_WITHOUT_FILE
