"""Tests users' mistakes and failures around the program: one coded error that names the way out, and no lost data."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec
from tests.support.cluster import Answer, Cluster, source_yaml
from tests.support.disk import fill, small_disk
from tests.support.mariadb import MariaDB
from tests.support.wait import until
from tests.support.world import Family, World
from tests.support.writer import Writer

pytestmark = pytest.mark.turns


def _refused(answer: Answer, spec: ErrorSpec) -> None:
    """Check that dmctl failed with this error, its message and its way out, and no traceback."""
    assert answer.code != 0, answer.text
    assert str(spec.code) in answer.text, answer.text
    assert "Traceback" not in answer.text


def test_wrong_password(world: World) -> None:
    server = world.sources[0][1]
    server.execute("CREATE OR REPLACE USER known IDENTIFIED BY 'right'")
    file = world.cluster.write("wrong.yaml", source_yaml("wrong-01", server, "known", "not-it"))
    answer = world.cluster.dmctl("operate-source", "create", file, check=False)
    _refused(answer, errors.relay.ACCESS_DENIED)
    assert "known" in answer.text
    assert "not-it" not in answer.text
    shown = world.cluster.dmctl("operate-source", "show").text
    assert "wrong-01" not in shown, "a source that cannot be reached was stored"


def test_missing_privilege_names_the_grant(world: World, make_server: Callable[..., MariaDB]) -> None:
    server = make_server("limited")
    server.execute("CREATE USER limited", "GRANT SELECT ON *.* TO limited")
    file = world.cluster.write("limited.yaml", source_yaml("limited-01", server, "limited"))
    answer = world.cluster.dmctl("operate-source", "create", file, check=False)
    _refused(answer, errors.check.PRIVILEGE)
    assert "GRANT REPLICATION SLAVE" in answer.text.upper()


def test_binlog_off(world: World, make_server: Callable[..., MariaDB]) -> None:
    server = make_server("silent", "--skip-log-bin")
    file = world.cluster.write("silent.yaml", source_yaml("silent-01", server))
    answer = world.cluster.dmctl("operate-source", "create", file, check=False)
    _refused(answer, errors.check.BINLOG_OFF)


def test_unknown_key_with_file_line_and_the_nearest_name(world: World) -> None:
    text = world.family("typo").task().replace("meta-schema:", "meta-shema:")
    file = world.cluster.write("typo.task.yaml", text)
    answer = world.cluster.dmctl("start-task", file, check=False)
    _refused(answer, errors.config.INVALID)
    assert "typo.task.yaml:3" in answer.text
    assert "meta-shema" in answer.text
    assert "meta-schema" in answer.text


def test_id_overflow_is_found_by_the_pre_check(world: World) -> None:
    family = world.family("wide")
    shards = family.create(10)
    connection = shards[0].connect()
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {shards[0].name} SET id = {1 << 44} WHERE id = 1")
    file = world.cluster.write("wide.task.yaml", family.task())
    answer = world.cluster.dmctl("start-task", file, check=False)
    _refused(answer, errors.check.ID_RANGE)
    assert world.target.query("SHOW DATABASES LIKE 'wide'") == []
    assert world.cluster.subtasks("wide") == {}


def test_id_overflow_in_the_stream_stops_before_the_row(world: World) -> None:
    family = world.family("over")
    shards = family.create(10)
    world.cluster.start_task(family.task())
    world.cluster.wait_replicating("over")
    source_id, server = world.sources[0]
    big = (1 << 44) + 5
    columns = "(id, customer, amount, state, token, created)"
    server.execute(
        f"INSERT INTO {shards[0].name} {columns} VALUES (900, 'fits', 1, 'new', '', '2024-01-01')",
        f"INSERT INTO {shards[0].name} {columns} VALUES ({big}, 'too big', 1, 'new', '', '2024-01-01')",
        f"INSERT INTO {shards[0].name} {columns} VALUES (901, 'later', 1, 'new', '', '2024-01-01')",
    )

    def errors_seen() -> tuple[tuple[int, str], ...]:
        found = world.cluster.subtasks("over").get(source_id)
        return () if found is None else found.errors

    [(code, message)] = until(errors_seen, "the subtask is paused with an error")
    assert code == errors.config.ID_OVERFLOW.code
    assert str(big) in message
    assert "order_01" in message
    names = {str(row[0]) for row in world.target.query("SELECT customer FROM `over`.orders")}
    assert "too big" not in names
    assert "later" not in names
    world.cluster.dmctl("stop-task", "over")


def test_target_down_pauses_and_continues_by_itself(world: World) -> None:
    family = world.family("down")
    shards = family.create(100)
    with Writer(shards, seed=41) as writer:
        world.cluster.start_task(family.task())
        world.cluster.wait_replicating("down")
        world.target.kill()

        def seen() -> bool:
            found = world.cluster.subtasks("down").values()
            return bool(found) and all(
                sub.stage == "Paused" and sub.errors and sub.errors[0][0] == errors.replicate.TARGET_LOST.code
                for sub in found
            )

        until(seen, "both subtasks say that the target is away")
        world.target.start()
        world.cluster.wait_replicating("down")
        writer.stop()
    world.judge(family)
    world.cluster.dmctl("stop-task", "down")


def test_start_task_with_the_target_down(world: World) -> None:
    family = world.family("absent")
    family.create(10)
    world.target.kill()
    try:
        file = world.cluster.write("absent.task.yaml", family.task())
        answer = world.cluster.dmctl("start-task", file, check=False)
    finally:
        world.target.start()
    _refused(answer, errors.replicate.TARGET_LOST)


def test_collision_of_two_shards_names_both_and_keeps_both_rows(world: World) -> None:
    """Without a column mapping the shards' ids collide: neither row may be lost (I8)."""
    family = world.family("clash")
    family.create(0)
    lines = family.task().splitlines()
    text = "\n".join(line for line in lines[: lines.index("column-mappings:")] if "column-mapping" not in line) + "\n"
    world.cluster.start_task(text)
    world.cluster.wait_replicating("clash")
    columns = "(id, customer, amount, state, token, created)"
    for (_, server), name in zip(world.sources, ("one", "two"), strict=True):
        server.execute(f"INSERT INTO clash_01.order_01 {columns} VALUES (7, '{name}', 1, 'new', '', '2024-01-01')")

    def collided() -> list[tuple[int, str]]:
        return [error for sub in world.cluster.subtasks("clash").values() for error in sub.errors]

    [(code, message)] = until(collided, "one of the subtasks is paused")
    assert code == errors.replicate.COLLISION.code
    assert "7" in message
    assert "clash" in message
    assert len(world.target.query("SELECT id FROM clash.orders WHERE id = 7")) == 1
    world.cluster.dmctl("stop-task", "clash")


def test_disk_full_under_the_relay(
    tmp_path: Path, make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]
) -> None:
    source, target = make_server("source"), make_server("target")
    with small_disk(tmp_path / "relay", 32) as disk:
        cluster = make_cluster(workers=1, worker_settings={"relay-dir": str(disk)})
        cluster.create_source("mysql-01", source)
        family = Family("disk", (("mysql-01", source),), target)
        shards = family.create(100)
        cluster.start_task(family.task())
        cluster.wait_replicating("disk")
        ballast = fill(disk, 64 << 10)
        with Writer(shards, seed=42) as writer:

            def full() -> bool:
                text = cluster.dmctl("query-status", "disk", check=False).text
                return str(errors.relay.DISK_FULL.code) in text and f"no space left for the relay log in {disk}" in text

            until(full, "the relay says that its disk is full", 30)
            ballast.unlink()
            writer.go_on()
            writer.stop()
        cluster.wait_caught_up("disk", {"mysql-01": source})
        assert family.verdict().differences == 0, family.verdict()
        cluster.stop()


@pytest.mark.parametrize("moment", ["copying", "replicating", "paused"])
def test_the_relay_directory_is_removed_under_load(world: World, moment: str) -> None:
    """Running tasks fetch their binlog again by themselves; a paused one with the printed command."""
    cluster, name = world.cluster, f"removed_{moment}"
    family = world.family(name)
    shards = family.create(2000)
    if moment == "copying":
        cluster.hooks.hold("snapshot.before_commit")
    with Writer(shards, seed=43) as writer:
        cluster.start_task(family.task())
        if moment == "copying":
            cluster.hooks.reached("snapshot.before_commit")
        else:
            cluster.wait_replicating(name)
        if moment == "paused":
            cluster.dmctl("pause-task", name)
        writer.go_on()
        logs = list(cluster.directory.glob("*-relay/*/relay.json"))
        assert len(logs) == 2
        for log in logs:
            shutil.rmtree(log.parent)

        def noticed() -> bool:
            answer = cluster.dmctl("query-status", name, "--more", check=False)
            return str(errors.relay.RELAY_REMOVED.code) in answer.text or _began_again()

        def _began_again() -> bool:
            return len(list(cluster.directory.glob("*-relay/*/relay.json"))) == 2

        until(noticed, "the workers notice it", 10)
        cluster.hooks.release_all()
        if moment == "paused":
            assert "dmctl resume-task <task> -s {source}" in errors.relay.RELAY_REMOVED.workaround
            for source_id, _ in world.sources:
                cluster.dmctl("resume-task", name, "-s", source_id)
        cluster.wait_replicating(name)
        assert _began_again()
        writer.go_on()
        writer.stop()
    world.judge(family)
    cluster.dmctl("stop-task", name)
