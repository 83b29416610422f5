"""Tests the warnings of a worker and its source."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.proto.warnings.certificates import CertificateEnd, CertificateFile, Use
from shardmerge.proto.warnings.clocks import ClockDifference
from shardmerge.worker.daemon.forecast.binlog_expiry import Expiry
from shardmerge.worker.daemon.forecast.figures import (
    NO_FORECAST,
    NOTHING_MEASURED,
    SourceForecast,
    WorkerForecast,
)
from shardmerge.worker.daemon.forecast.rates import Rate
from shardmerge.worker.daemon.forecast.relay_disk import RelayDisk
from shardmerge.worker.daemon.forecast.warnings import source_warnings, warnings_of

_AT = 1_700_000_000.0
_GIB = 1 << 30


def test_nothing_to_warn_of() -> None:
    assert list(warnings_of(NOTHING_MEASURED, "mysql-01", NO_FORECAST, _AT)) == []
    fine = SourceForecast(_AT, Expiry(6e5, 6e5, None), RelayDisk(100, 90))
    assert list(source_warnings("mysql-01", fine)) == []


def test_binlog_that_expires() -> None:
    [found] = source_warnings("mysql-01", SourceForecast(_AT, Expiry(86_400.0, 3_000.0, 3_600.0)))
    assert (found.name, found.due) == ("binlog-expiring", _AT + 3_600)
    assert found.message == (
        "source mysql-01 may delete binlog that is not fetched at 2023-11-14 23:13:20 UTC, in 60 min: it keeps its "
        "binlog for 24 h 00 min"
    )
    # resume-relay has no effect on a relay that an error has stopped.
    assert "`dmctl resume-relay -s mysql-01` if it is paused; otherwise correct the relay's error" in found.workaround
    assert "`dmctl resume-task <task> -s mysql-01`" in found.workaround
    # A fixed value may be less than the present one.
    assert "a larger value than the present one" in found.workaround
    assert "0: the age has no limit" in found.workaround


def test_a_disk_that_fills() -> None:
    disk = RelayDisk(100 * _GIB, 10 * _GIB, 0, Rate(1 << 20, 3_600.0))
    [found] = source_warnings("mysql-01", SourceForecast(_AT, disk=disk))
    assert (found.name, found.due) == ("relay-disk-filling", _AT + 10_240)
    assert "10 GiB are left, and 1 MiB/s were written in the last 60 min" in found.message


def test_clocks_that_differ_each_once() -> None:
    source = ClockDifference("source mysql-01", "the worker", 2.5, 0.1)
    target = ClockDifference("target 10.0.0.1:3306", "the worker", -3.0, 0.1)
    forecast = SourceForecast(
        _AT, source_clock=source, target_clocks={"a": target, "b": target, "c": replace(target, ahead=0.5)}
    )
    found = [(each.name, each.message) for each in source_warnings("mysql-01", forecast)]
    assert found == [
        ("clocks-differ", "the clock of target 10.0.0.1:3306 is 3.0 s earlier than that of the worker"),
        ("clocks-differ", "the clock of source mysql-01 is 2.5 s later than that of the worker"),
    ]


def test_certificates_of_a_free_worker() -> None:
    end = CertificateEnd(CertificateFile(Use.OWN, "this daemon", "own.pem"), _AT + 86_400)
    [found] = warnings_of(WorkerForecast(certificates=(end,)), "", NO_FORECAST, _AT)
    assert (found.name, found.due) == ("certificate-expiring", _AT + 86_400)
