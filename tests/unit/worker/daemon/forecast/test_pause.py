"""Tests how long a task or a relay may stay paused."""

from __future__ import annotations

import pytest

from shardmerge.worker.daemon.forecast.binlog_expiry import BinlogExpiry, Expiry, ExpiryUnknown, NoLimit
from shardmerge.worker.daemon.forecast.pause import (
    Lasts,
    NothingRunsOut,
    PauseForecast,
    PauseUnknown,
    relay_pause,
    task_pause,
    to_proto,
)
from shardmerge.worker.daemon.forecast.rates import Rate
from shardmerge.worker.daemon.forecast.relay_disk import RelayDisk

_NOW = 1_700_000_000.0
_GIB = 1 << 30
_DAY = Expiry(172_800.0, 86_400.0, None)


def _disk(written: Rate | None) -> RelayDisk:
    return RelayDisk(100 * _GIB, 10 * _GIB, 0, None, written)


def _task(disk: RelayDisk | None, expiry: BinlogExpiry = _DAY, *, is_fetching: bool = True) -> PauseForecast:
    return task_pause(disk, expiry, _NOW, is_fetching=is_fetching)


def test_a_paused_relay_lasts_until_the_source_deletes() -> None:
    found = relay_pause(_DAY, _NOW)
    assert isinstance(found, Lasts)
    assert (found.limit, found.seconds) == ("source-binlog", 86_400)
    assert found.text == (
        "the relay may stay paused for at least 24 h 00 min, until 2023-11-15 22:13:20 UTC: then the source may delete "
        "binlog that is not fetched"
    )


@pytest.mark.parametrize("expiry", [NoLimit(), Expiry(1e12, 1e12, None)])
def test_a_paused_relay_without_a_limit(expiry: BinlogExpiry) -> None:
    assert isinstance(relay_pause(expiry, _NOW), NothingRunsOut)


def test_unknown_is_reported_with_its_reason() -> None:
    why = "the source's settings have not been read yet"
    assert relay_pause(ExpiryUnknown(why), _NOW) == PauseUnknown(why)
    assert to_proto(PauseUnknown(why), "mysql-01", _NOW).text.endswith(f"is not known: {why}")


def test_a_paused_task_lasts_until_the_disk_is_full() -> None:
    found = _task(_disk(Rate(1 << 20, 3_600.0)))
    assert isinstance(found, Lasts)
    assert (found.limit, found.seconds) == ("relay-disk", 10_240)
    assert "the task may stay paused for about 2 h 50 min" in found.text
    assert "(10 GiB left, 1 MiB/s in the last 60 min)" in found.text


def test_a_paused_task_of_a_source_that_writes_nothing() -> None:
    found = _task(_disk(Rate(0.0, 3_600.0)))
    assert isinstance(found, NothingRunsOut) and "almost nothing for 60 min" in found.text


@pytest.mark.parametrize("disk", [None, _disk(None), _disk(Rate(5.0, 20.0))])
def test_a_paused_task_right_after_the_start(disk: RelayDisk | None) -> None:
    assert isinstance(_task(disk), PauseUnknown)


def test_while_the_relay_does_not_fetch_the_source_is_the_limit() -> None:
    found = _task(_disk(Rate(1 << 20, 3_600.0)), is_fetching=False)
    assert isinstance(found, Lasts)
    assert (found.limit, found.seconds) == ("source-binlog", 86_400)
    assert "the relay does not fetch" in found.text
    assert isinstance(_task(None, NoLimit(), is_fetching=False), NothingRunsOut)
    assert _task(None, ExpiryUnknown("x"), is_fetching=False) == PauseUnknown("x")


def test_a_program_reads_numbers_only_if_they_are_known() -> None:
    lasts = to_proto(relay_pause(_DAY, _NOW), "mysql-01", _NOW)
    assert (lasts.limit, lasts.seconds, lasts.until) == ("source-binlog", 86_400, _NOW + 86_400)
    for forecast in (NothingRunsOut("x"), PauseUnknown("y")):
        found = to_proto(forecast, "mysql-01", _NOW)
        assert (found.limit, found.HasField("seconds"), found.HasField("until")) == ("", False, False)
        assert found.text
