"""binlog skip|replace|inject: what an answer says about a position that a source does not have."""

from __future__ import annotations

import pytest

from shardmerge.master.commands.task.binlog import StatementPosition, place_note
from shardmerge.proto.worker_pb2 import RelayStatus

_RELAY = RelayStatus(master_binlog="(mysql-bin.000007, 500)", relay_binlog="(mysql-bin.000007, 400)")


@pytest.mark.parametrize(
    "place", [StatementPosition("mysql-bin.000007", 499), StatementPosition("mysql-bin.000006", 9999)]
)
def test_a_place_of_the_binlog(place: StatementPosition) -> None:
    assert place_note(place, _RELAY) == ""


@pytest.mark.parametrize(
    "place", [StatementPosition("mysql-bin.000007", 500), StatementPosition("mysql-bin.000010", 4)]
)
def test_a_place_past_the_end(place: StatementPosition) -> None:
    assert "past the end of the source's binlog, mysql-bin.000007:500" in place_note(place, _RELAY)


def test_the_relay_log_may_be_further_than_the_last_reading() -> None:
    ahead = RelayStatus(master_binlog="(mysql-bin.000007, 500)", relay_binlog="(mysql-bin.000007, 600)")
    assert place_note(StatementPosition("mysql-bin.000007", 550), ahead) == ""


def test_a_file_of_another_server() -> None:
    assert "the source has no such file" in place_note(StatementPosition("binlog.000007", 4), _RELAY)


def test_after_a_switch_the_relay_log_has_the_former_servers_files() -> None:
    switched = RelayStatus(master_binlog="(mysql-bin.000001, 500)", relay_binlog="(binlog.000007, 600)")
    assert place_note(StatementPosition("binlog.000003", 4), switched) == ""


@pytest.mark.parametrize("relay", [None, RelayStatus()])
def test_a_worker_that_knows_nothing(relay: RelayStatus | None) -> None:
    assert "it is unknown" in place_note(StatementPosition("mysql-bin.000007", 4), relay)
