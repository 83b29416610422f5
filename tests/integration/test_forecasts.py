"""Tests forecasts and warnings of real daemons: what expires, how long a pause may last, clocks, heap, comparisons."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect
from shardmerge.worker.daemon.forecast.target_clocks import read_target_clock
from shardmerge.worker.relay.binlog_retention import BinlogLimits, bytes_from, read_files, read_limits
from shardmerge.worker.relay.source_clock import PollingClock
from tests.support.mariadb import MariaDB
from tests.support.metrics import Scrape, scrape
from tests.support.pair import started_kinds
from tests.support.wait import until
from tests.support.world import Family, World

pytestmark = pytest.mark.spark

_KEPT_SECONDS = 12.0
_TASK = "forecasts"


def _source_status(world: World, source: str) -> dict[str, Any]:
    answer: Any = world.cluster.dmctl("query-status", _TASK, "-s", source).json
    return answer["sources"][0]["sourceStatus"]


def _warnings(world: World, source: str) -> Mapping[str, dict[str, Any]]:
    return {each["name"]: each for each in _source_status(world, source)["warnings"]}


def _pause_limits(answer: Any) -> Mapping[str, dict[str, Any]]:
    return {each["source"]: each for each in answer.json["pauseLimits"]}


def _limit_seconds(world: World, source: str) -> float:
    return float(_source_status(world, source)["relayStatus"]["relayPause"].get("seconds", 1e9))


def test_what_becomes_an_error_is_foreseen(world: World) -> None:
    family = world.family(_TASK)
    family.create(60)
    world.cluster.start_task(family.task())
    world.cluster.wait_replicating(_TASK)
    world.cluster.wait_caught_up(_TASK, dict(world.sources))
    source, server = world.sources[0]
    worker = world.cluster.worker_of(source)
    [(kept,)] = server.query("SELECT @@GLOBAL.binlog_expire_logs_seconds")
    server.execute(f"SET GLOBAL binlog_expire_logs_seconds = {_KEPT_SECONDS:.0f}")
    try:
        until(lambda: _limit_seconds(world, source) <= _KEPT_SECONDS, "the worker has read the source's limit", 30)
        found = scrape(worker)
        assert found.one("dm_source_binlog_retention_seconds", source_id=source) == _KEPT_SECONDS
        assert found.one("dm_source_binlog_retention_left_seconds", source_id=source) == pytest.approx(
            _KEPT_SECONDS, abs=3
        )
        assert "binlog-expiring" not in _warnings(world, source), "the relay keeps up"
        _pauses(world, source)
        began = time.time()
        server.execute("FLUSH BINARY LOGS")  # the file in which the relay has stopped is no longer the present one
        until(lambda: "binlog-expiring" in _warnings(world, source), "a warning", 40, every=0.5)
        warning = _warnings(world, source)["binlog-expiring"]
        [listed] = [task for task in world.cluster.dmctl("query-status").json["tasks"] if task["taskName"] == _TASK]
        [short] = [each for each in listed["warnings"] if each["warning"]["name"] == "binlog-expiring"]
        assert (short["source"], short["others"]) == (source, 0)
        assert short["warning"]["due"] == pytest.approx(warning["due"], abs=1)
        assert warning["due"] == pytest.approx(began + _KEPT_SECONDS, abs=6)
        assert f"source {source} may delete binlog that is not fetched" in warning["message"]
        assert f"resume-relay -s {source}" in warning["workaround"]
        found = scrape(worker)
        expires = found.one("dm_source_binlog_expires_in_seconds", source_id=source)
        assert expires < _KEPT_SECONDS / 2
        assert expires == found.one("dm_source_binlog_retention_left_seconds", source_id=source)
    finally:
        server.execute(f"SET GLOBAL binlog_expire_logs_seconds = {kept}")
        world.cluster.dmctl("resume-relay", "-s", source)
    until(lambda: "binlog-expiring" not in _warnings(world, source), "the relay has caught up", 40)
    world.cluster.wait_caught_up(_TASK, dict(world.sources))
    _clocks_and_heap(world)
    _calls(world)
    _comparisons(world, family)
    world.cluster.dmctl("stop-task", _TASK)


def _pauses(world: World, source: str) -> None:
    """pause-task and pause-relay report how long the pause may last."""
    tasks = _pause_limits(world.cluster.dmctl("pause-task", _TASK))
    assert tasks.keys() == {name for name, _ in world.sources}
    for limit in tasks.values():
        # The speed of the source may not have been measured for a minute yet.
        if limit["unknown"]:
            assert "seconds" not in limit and limit["unknown"] in limit["text"] and "left on its disk" in limit["text"]
        else:
            assert limit["limit"] == ("relay-disk" if "seconds" in limit else "")
            assert limit["text"].startswith("the task may stay paused")
    [relay] = _pause_limits(world.cluster.dmctl("pause-relay", "-s", source)).values()
    assert relay["limit"] == "source-binlog"
    assert 0 < relay["seconds"] <= _KEPT_SECONDS
    assert relay["until"] == pytest.approx(time.time() + _KEPT_SECONDS, abs=6)
    assert relay["text"].startswith("the relay may stay paused for at least ")
    world.cluster.dmctl("resume-task", _TASK)


def _clocks_and_heap(world: World) -> None:
    """The servers run on this machine: their clocks are the same."""
    for source, _ in world.sources:
        worker = world.cluster.worker_of(source)
        until(lambda: scrape(worker).of("dm_clock_difference_seconds", task=_TASK), "the target's clock is read", 60)  # noqa: B023
        found = scrape(worker)
        for of in ("source", "target"):
            [difference] = found.of("dm_clock_difference_seconds", source_id=source, of=of)
            assert abs(difference.value) < 1, difference
        heap = {each.labels["type"]: each.value for each in found.of("dm_worker_jvm_heap_bytes")}
        assert 0 < heap["used"] <= heap["committed"] <= heap["max"]
        assert "clocks-differ" not in _warnings(world, source)
    [master] = world.cluster.masters
    workers = {each.name for each in world.cluster.workers}
    until(
        lambda: {each.labels["worker"] for each in scrape(master).of("dm_worker_clock_difference_seconds")} == workers,
        "the clocks of all workers are read",
        60,
    )
    assert all(abs(each.value) < 1 for each in scrape(master).of("dm_worker_clock_difference_seconds"))


def _calls(world: World) -> None:
    [master] = world.cluster.masters

    def count(found: Scrape, **labels: str) -> float:
        return found.sum("dm_api_requests_total", **labels)

    before = scrape(master)
    for _ in range(3):
        world.cluster.dmctl("list-member")
    world.cluster.dmctl("query-status", "no-such-task", check=False)
    after = scrape(master)
    assert count(after, method="ListMember", code="OK") == count(before, method="ListMember", code="OK") + 3
    seconds = [found.sum("dm_api_request_seconds_total", method="ListMember") for found in (before, after)]
    assert 0 <= seconds[0] < seconds[1]
    refused = [
        count(found, method="QueryStatus") - count(found, method="QueryStatus", code="OK") for found in (before, after)
    ]
    assert refused[1] == refused[0] + 1


def _comparisons(world: World, family: Family) -> None:
    """The metrics are those that the command prints."""
    world.cluster.wait_replicating(_TASK)
    world.target.execute("DELETE FROM forecasts.orders ORDER BY id LIMIT 1")
    compared = world.cluster.compare(_TASK, check=False)
    _equal(world, compared.total, {"missing": 1})
    tables = compared.answer.json["tables"]
    missing = {each["sourceTable"] for each in tables if int(each.get("missing", 0))}
    [other, *_] = sorted({each["sourceTable"] for each in tables} - missing)
    world.cluster.compare(_TASK, "-t", other)
    _equal(world, compared.total, {"missing": 1})
    _equal(world, world.cluster.compare(_TASK, "--repair").total, {"missing": 1, "repaired": 1})
    assert family.verdict().differences == 0
    _equal(world, world.cluster.compare(_TASK).total, {})


def _equal(world: World, printed: Callable[[str], int], expected: Mapping[str, int]) -> None:
    found = Scrape(tuple(series for worker in world.cluster.workers for series in scrape(worker).series))
    assert found.sum("dm_compare_rows", task=_TASK) == printed("rows") == 60 * 2 * len(world.sources)
    for kind in ("missing", "extra", "different", "unjudged", "repaired"):
        counted = found.sum("dm_compare_differences", task=_TASK, kind=kind)
        assert counted == printed(kind) == expected.get(kind, 0), kind
    ended = found.of("dm_compare_finished_timestamp_seconds", task=_TASK)
    assert [each.value for each in ended] == [pytest.approx(time.time(), abs=60)] * len(world.sources)


def test_a_clock_that_is_hours_ahead(make_server: Callable[..., MariaDB]) -> None:
    """The session's timestamp is the server's clock if SYSDATE() is NOW()."""
    server = make_server("ahead", "--sysdate-is-now")
    ahead = 7_200.0
    endpoint = Endpoint(server.host, server.port, "root")
    shifted = replace(endpoint, session=(("timestamp", f"{time.time() + ahead:.6f}"),))
    clock = PollingClock(shifted, "mysql-01")
    try:
        reading = until(lambda: clock.reading().clock, "the clock is read", 30)
    finally:
        clock.stop()
    assert reading.ahead == pytest.approx(ahead, abs=30)
    target = read_target_clock(shifted)
    assert target is not None and target.ahead == pytest.approx(ahead, abs=30)
    same = read_target_clock(endpoint)
    assert same is not None and abs(same.ahead) <= same.error + 0.1
    server.stop()
    assert read_target_clock(endpoint) is None


def test_the_limits_and_the_clock_of_both_kinds_of_server(tmp_path: Path) -> None:
    with started_kinds(tmp_path) as servers:
        for server in servers.values():
            server.execute("SET GLOBAL binlog_expire_logs_seconds = 3600", "FLUSH BINARY LOGS")
            endpoint = Endpoint(server.host, server.port, server.user, server.password, retrieves_key=server.takes_key)
            session = connect(endpoint, Side.SOURCE, name="mysql-01")
            assert read_limits(session) == BinlogLimits(3600.0)
            files = read_files(session)
            assert len(files) > 1 and all(file.size > 100 for file in files)
            session.close()
            clock = PollingClock(endpoint, "mysql-01")
            try:
                until(lambda: clock.reading().limits, "the limits are read", 30)  # noqa: B023
                reading = clock.reading()
            finally:
                clock.stop()
            assert reading.clock is not None and abs(reading.clock.ahead) <= reading.clock.error + 0.1
            assert abs(reading.now - time.time()) < 5
            assert bytes_from(files, reading.end.position) == files[-1].size
