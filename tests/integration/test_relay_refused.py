"""Tests sources that a relay cannot or must not follow: no access, or a binlog that is missing, reset or another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.common_pb2 import Stage
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.relay import Relay
from tests.integration.mariadb_relay_rig import (
    START,
    MakeRelay,
    MakeServer,
    assert_same,
    caught_up,
    end_of,
    failed_with,
    make_relay,
    served,
    source,
)
from tests.support.mariadb import MariaDB
from tests.support.wait import until

__all__ = ["make_relay", "source"]


def test_a_wrong_password_is_named_and_mends_with_a_new_start(
    source: MariaDB, make_relay: MakeRelay, tmp_path: Path
) -> None:
    source.execute("CREATE USER u@'%' IDENTIFIED BY 'right'", "GRANT REPLICATION SLAVE ON *.* TO u@'%'")
    relay = make_relay(source, user="u", password="wrong")
    relay.ensure_from(START)
    relay.start()
    error = failed_with(relay, errors.relay.ACCESS_DENIED)
    assert "mysql-01" in error.message
    assert "wrong" not in str(error)
    until(lambda: relay.status().stage == Stage.STAGE_PAUSED, "the relay pauses")
    with pytest.raises(ShardmergeError) as caught:
        relay.locate(end_of(source), 300, StopSignal())
    assert caught.value.spec is errors.relay.ACCESS_DENIED
    source.execute("ALTER USER u@'%' IDENTIFIED BY 'wrong'")
    relay.start()
    assert_same(relay, source)
    source.execute("REVOKE REPLICATION SLAVE ON *.* FROM u@'%'")
    relay.stop()
    relay.start()
    failed_with(relay, errors.relay.PRIVILEGE_MISSING)


def test_a_purged_binlog_is_named_with_the_way_out(source: MariaDB, make_relay: MakeRelay) -> None:
    source.purge()
    last = end_of(source)
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    error = failed_with(relay, errors.relay.SOURCE_LOG_GONE)
    assert "mysql-bin.000001" in error.message
    assert "1236" in error.message
    assert "--remove-meta" in error.workaround
    until(lambda: relay.status().stage == Stage.STAGE_PAUSED, "the relay pauses")
    # While a task needs its contents, the log stays unchanged; otherwise a task may start it anew.
    assert not relay.ensure_from(last)
    relay.set_needed(lambda: None)
    assert relay.ensure_from(last)
    relay.start()
    assert relay.locate(last, 300, StopSignal()) == relay.head().offset


def test_a_position_after_the_end_is_refused_by_the_source(source: MariaDB, make_relay: MakeRelay) -> None:
    relay = make_relay(source)
    relay.ensure_from(SourcePosition("mysql-bin.000001", 10_000_000))
    relay.start()
    error = failed_with(relay, errors.relay.SOURCE_LOG_GONE)
    assert "10000000" in error.message


def test_another_server_behind_the_address_is_refused(
    source: MariaDB, make_server: MakeServer, make_relay: MakeRelay
) -> None:
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    caught_up(relay, source)
    relay.stop()
    other = make_server("other")
    moved = make_relay(other)
    moved.start()
    error = failed_with(moved, errors.relay.SOURCE_LACKS_GTIDS)
    assert "server-id" in error.message


def reset_when_the_clock_has_moved(server: MariaDB) -> None:
    """Reset the binlog in a later second: a file holds its creation time in whole seconds."""
    [(began,)] = server.query("SELECT UNIX_TIMESTAMP()")
    until(lambda: server.query("SELECT UNIX_TIMESTAMP()") != [(began,)], "the next second")
    server.execute("RESET MASTER")


def stopped_with(relay: Relay, spec: ErrorSpec) -> ShardmergeError:
    failure = until(relay.failure, "the relay stops for good")
    assert failure.spec is spec, failure
    assert not failure.spec.retryable
    return failure


@pytest.mark.turns
def test_a_reset_under_a_connected_relay_is_noticed(source: MariaDB, make_relay: MakeRelay) -> None:
    for number in range(30):
        source.execute(f"INSERT INTO d.t (v) VALUES ('{number}')")
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    head = caught_up(relay, source)
    before = end_of(source)
    source.execute("RESET MASTER")
    ends = [end_of(source)]
    source.execute("INSERT INTO d.t (v) VALUES ('lost')")
    ends.append(end_of(source))
    failure = stopped_with(relay, errors.relay.SOURCE_LOG_RESET)
    assert str(before) in failure.message
    # The relay may have read the position between the two resets.
    assert any(str(place) in failure.message for place in ends)
    assert "--remove-meta" in failure.workaround
    assert served(relay, end=head)
    with pytest.raises(ShardmergeError) as caught:
        list(relay.subscribe(relay.first().offset, None, None, StopSignal()))
    assert caught.value is failure
    # Only a task that begins anew discards the log; it has started the relay before this call.
    relay.start()
    # With the former place it may have failed again already.
    assert relay.failure() is not failure
    start = end_of(source)
    relay_id = relay.relay_id
    assert relay.ensure_from(start, fresh=True)
    assert relay.relay_id != relay_id
    source.execute("INSERT INTO d.t (v) VALUES ('new')")
    caught_up(relay, source)
    assert len(served(relay)) == 4
    assert not relay.ensure_from(start, fresh=True)  # a healthy log stays


def test_a_binlog_that_grew_again_beyond_the_old_place_is_noticed(source: MariaDB, make_relay: MakeRelay) -> None:
    """The statements are identical: the old position is the start of an event in the new file too."""
    statements = [f"INSERT INTO d.t (v) VALUES ('{number:06}')" for number in range(30)]
    reset_when_the_clock_has_moved(source)
    source.execute(*statements)
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    caught_up(relay, source)
    before = end_of(source)
    relay.stop()
    reset_when_the_clock_has_moved(source)
    source.execute(*statements)
    assert end_of(source) == before
    source.execute(*statements)
    relay.start()
    failure = stopped_with(relay, errors.relay.SOURCE_LOG_RESET)
    assert str(before) in failure.message and str(end_of(source)) in failure.message
    assert relay.head().position.file_order() == before.file_order()


def test_a_source_that_lost_its_latest_writes_is_an_error(source: MariaDB, make_relay: MakeRelay) -> None:
    """A failed machine loses what the source had not synced: those rows do not exist at the source any more."""
    relay = make_relay(source)
    relay.ensure_from(START)
    relay.start()
    caught_up(relay, source)
    kept = end_of(source)
    source.execute("INSERT INTO d.t (v) VALUES ('published'), ('and lost')")
    caught_up(relay, source)
    before = relay.head()
    source.kill()
    path = source.directory / "data" / kept.file
    with path.open("r+b") as file:
        file.truncate(kept.pos)
    source.start()
    failure = until(relay.failure, "the relay stops for good")
    assert failure.spec in (errors.relay.SOURCE_LOG_GONE, errors.relay.SOURCE_LOG_RESET)
    assert str(before.position.pos) in failure.message
    assert "--remove-meta" in failure.workaround
    assert relay.head() == before
