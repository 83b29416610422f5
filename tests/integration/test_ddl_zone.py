"""Tests statements of a source whose clock has summer time: the target's values equal the source's (I1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.ways_out.printed import Operator, Printed
from tests.support.cluster import Cluster
from tests.support.database import Database
from tests.support.judge import Shard, Target, compare
from tests.support.mariadb import MariaDB
from tests.support.pair import KINDS

pytestmark = pytest.mark.turns

_CENTRAL_EUROPE = "CET-1CEST,M3.5.0,M10.5.0/3"
_IN_WINTER = "SET SESSION timestamp = 1700000000, time_zone = SYSTEM"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, MariaDB]]:
    folder = tmp_path_factory.mktemp("zone")
    target, cluster = MariaDB(folder / "target", 78).start(), Cluster(folder / "cluster", workers=1)
    try:
        yield cluster.start(), target
    finally:
        cluster.stop()
        target.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_moments_of_both_halves_of_a_year(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: tuple[Cluster, MariaDB]
) -> None:
    """The source has a time zone of its own."""
    monkeypatch.setenv("TZ", _CENTRAL_EUROPE)
    source = KINDS[kind](tmp_path / "local", 77).start()
    monkeypatch.delenv("TZ")
    cluster, target = place
    target.execute("DROP DATABASE IF EXISTS d", "DROP DATABASE IF EXISTS dm_meta")
    try:
        _follow(source, target, cluster)
        cluster.dmctl("stop-task", "one")
        cluster.dmctl("operate-source", "stop", "mysql-01")
    finally:
        source.stop()


def _follow(source: Database, target: MariaDB, cluster: Cluster) -> None:
    source.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, dt DATETIME)",
        "INSERT INTO d.t VALUES (1, '2020-01-01 12:00:00'), (2, '2020-07-01 12:00:00')",
    )
    cluster.create_source("mysql-01", source)
    cluster.start_task(
        "name: one\ntask-mode: all\nmeta-schema: dm_meta\n"
        f"target-database: {{host: {target.host}, port: {target.port}, user: root, password: ''}}\n"
        "mysql-instances:\n  - source-id: mysql-01\n    block-allow-list: one\n"
        "block-allow-list:\n  one: {do-dbs: [d]}\n"
    )
    cluster.wait_replicating("one")

    def judged() -> None:
        cluster.wait_caught_up("one", {"mysql-01": source})
        verdict = compare([Shard(source.connect, "d", "t")], Target(target.connect, "d", "t"))
        assert verdict.differences == 0 and verdict.rows >= 2, verdict

    source.execute(
        _IN_WINTER,
        "ALTER TABLE d.t ADD a TIMESTAMP NOT NULL DEFAULT '2000-01-01 12:00:00'",
        "ALTER TABLE d.t ADD b TIMESTAMP NOT NULL DEFAULT '2000-07-01 12:00:00'",
        "ALTER TABLE d.t ADD n TIMESTAMP NOT NULL DEFAULT NOW()",
        "INSERT INTO d.t (id, b) VALUES (3, '2000-07-02 00:00:00')",
    )
    judged()
    source.execute(
        _IN_WINTER,
        "ALTER TABLE d.t ADD x TIMESTAMP NOT NULL DEFAULT '2000-01-01', ADD y TIMESTAMP NOT NULL DEFAULT '2000-07-01'",
        "INSERT INTO d.t (id) VALUES (4)",
    )
    # The ways out are followed as they are printed.
    operator = Operator(cluster, "one", "")
    printed = _stopped(operator, "it ran at +01:00; its offset is +01:00 at '2000-01-01', +02:00 at '2000-07-01'")
    one, other = "ADD x TIMESTAMP NOT NULL DEFAULT '2000-01-01'", "ADD y TIMESTAMP NOT NULL DEFAULT '2000-06-30 23:00'"
    operator.runs(printed, "binlog replace", statement=f"ALTER TABLE d.t {one}; ALTER TABLE d.t {other}")
    judged()
    change = "ALTER TABLE d.t MODIFY dt TIMESTAMP NULL"
    source.execute(_IN_WINTER, change, "INSERT INTO d.t (id, dt) VALUES (5, '2020-07-02 00:00:00')")
    printed = _stopped(operator, "values of column `dt` are converted, at offsets from +01:00 to +02:00")
    operator.runs(printed, "binlog replace", statement=change)
    cluster.wait_caught_up("one", {"mysql-01": source})
    operator.runs(printed, "compare")
    judged()
    # A zone that only the source has: the way out loads it at the target.
    zone = f"Test/{source.flavor}"
    load = (
        "INSERT INTO mysql.time_zone (Use_leap_seconds) VALUES ('N')",
        "SET @zone = LAST_INSERT_ID()",
        f"INSERT INTO mysql.time_zone_name VALUES ('{zone}', @zone)",
        "INSERT INTO mysql.time_zone_transition_type VALUES (@zone, 0, 7200, 0, 'X')",
    )
    source.execute(
        *load,
        f"SET SESSION time_zone = '{zone}'",
        "ALTER TABLE d.t ADD z TIMESTAMP NOT NULL DEFAULT '2000-07-01 12:00:00'",
        "INSERT INTO d.t (id, z) VALUES (6, '2000-01-01 12:00:00')",
    )
    printed = operator.stopped(40102)
    assert f"does not know the time zone {zone}," in printed.message
    target.execute(*load)
    operator.runs(printed, "resume-task")
    judged()


def _stopped(operator: Operator, reason: str) -> Printed:
    printed = operator.stopped(50017)
    assert reason in printed.message, printed.message
    return printed
