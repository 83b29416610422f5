"""Tests that refused rows are held with all later changes of their keys, and that nothing else stops (I2, I9)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pymysql
import pytest
from pymysql.constants import ER

from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.daemon.commands import quarantine
from shardmerge.worker.daemon.commands.quarantine import KeySelection
from shardmerge.worker.unit.contract import Failed, Stopped
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_rig import META, SOURCE, TASK, endpoint, subtask_config
from tests.support.hooks import Hooks
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.task_runners import ProcessRunner
from tests.support.wait import until

WHO = SubtaskKey(META, TASK, SOURCE)
TABLES = ("shard_1.t", "shard_1.u", "shard_1.log")


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hooks:
    made = Hooks(tmp_path / "hooks")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture(params=["mariadb"])
def rig(request: pytest.FixtureRequest, make_server: Callable[..., MariaDB], tmp_path: Path) -> Iterator[LaneRig]:
    source = make_server("source")
    target = make_server("target") if request.param == "mariadb" else MySQL(tmp_path / "target", server_id=9).start()
    source.execute(
        "CREATE DATABASE shard_1",
        "CREATE TABLE shard_1.t (id BIGINT PRIMARY KEY, v VARCHAR(40))",
        "CREATE TABLE shard_1.u (id BIGINT PRIMARY KEY, v VARCHAR(40), UNIQUE (v))",
        "CREATE TABLE shard_1.log (id BIGINT, v VARCHAR(40))",
    )
    config = subtask_config(target)
    config.replicate.quarantine = True
    try:
        with LaneRig(source, target, tmp_path, config) as made:
            yield made
    finally:
        if isinstance(target, MySQL):
            target.stop()


def _strict(rig: LaneRig, *tables: str) -> None:
    """Run once to create the targets, which accept only short values from then on."""
    run = rig.replicate(2)
    rig.source.execute(*(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')" for table in TABLES))
    run.until_synced()
    assert run.stop() == Stopped()
    for table in tables or ("shard_1.t",):
        rig.target.execute(f"ALTER TABLE {table} ADD CONSTRAINT {_check(table)} CHECK (CHAR_LENGTH(v) < 6)")


def _mend(rig: LaneRig, table: str = "shard_1.t") -> None:
    rig.target.execute(f"ALTER TABLE {table} DROP CONSTRAINT {_check(table)}")


def _check(table: str) -> str:
    return f"short_{table[-1]}"


def _content(rig: LaneRig, table: str = "shard_1.t", *, at_source: bool = False) -> list[tuple[object, ...]]:
    return (rig.source if at_source else rig.target).query(f"SELECT * FROM {table} ORDER BY id, v")


def _same(rig: LaneRig, *tables: str) -> None:
    for table in tables or TABLES:
        assert _content(rig, table) == _content(rig, table, at_source=True), table


def _held(rig: LaneRig) -> list[tuple[int, str]]:
    found = rig.target.query(f"SELECT key_value, operation FROM {META}.held_change WHERE operation <> 'dropped'")
    return sorted((int(bytes(str(key), "ascii") if isinstance(key, str) else bytes(key)), str(op)) for key, op in found)  # type: ignore[arg-type, call-overload]


def _until_held(rig: LaneRig, *wanted: tuple[int, str]) -> None:
    until(lambda: _held(rig) == sorted(wanted), f"{wanted} are held")


def _until_all_applied(run: Run) -> None:
    """Wait until all is applied except held changes. Also waits for lanes that have not reported a position yet: they
    add no lag."""

    def applied() -> bool:
        status = run.status()
        told = bool(status.lanes) and all(lane.HasField("committed") for lane in status.lanes)
        return told and not status.unknown and status.bytes_behind == 0 and not status.oldest_ms

    until(lambda: applied() or run.ended, "all is applied")
    assert not run.ended, run.join()


def _retry(rig: LaneRig, table: str = "", key: str = "") -> pb.WorkerQuarantineResponse:
    with closing(connect(endpoint(rig.target), Side.TARGET, name="target")) as session:
        return quarantine.retry(session, WHO, KeySelection(table, key), safe_mode=False)


def _end(rig: LaneRig, run: Run) -> None:
    """Correct the target; held changes are applied and later ones are written: the tables are equal."""
    assert _retry(rig).total_keys == 0
    assert _held(rig) == []
    rig.source.execute(
        "INSERT INTO shard_1.t (id, v) VALUES (900, 'end')", "UPDATE shard_1.t SET v = 'later' WHERE id < 900"
    )
    run.until_synced()
    assert run.stop() == Stopped()
    _same(rig)
    assert _held(rig) == []


@pytest.mark.parametrize("rig", ["mariadb", "mysql"], indirect=True)
def test_one_key_waits_and_all_others_flow(rig: LaneRig) -> None:
    """Other keys of the bad row's transaction and event are applied, and later ones; no change of its key overtakes
    it."""
    _strict(rig)
    run = rig.replicate(2)
    rig.source.execute(
        "BEGIN",
        "INSERT INTO shard_1.t VALUES (10, 'fine'), (11, 'much too long'), (12, 'fine')",
        "UPDATE shard_1.t SET v = 'c' WHERE id = 1",
        "COMMIT",
        "INSERT INTO shard_1.log VALUES (3, 'c')",
    )
    _until_held(rig, (11, "insert"))
    rig.source.execute("UPDATE shard_1.t SET v = 'short' WHERE id = 11", "UPDATE shard_1.t SET v = 'd' WHERE id = 2")
    _until_held(rig, (11, "insert"), (11, "update"))
    until(lambda: _content(rig) == [(1, "c"), (2, "d"), (10, "fine"), (12, "fine")], "the others are there")
    _until_all_applied(run)
    until(lambda: run.status().held_keys == 1, "it is counted")
    assert not run.status().synced
    with closing(connect(endpoint(rig.target), Side.TARGET, name="target")) as session:
        [key] = quarantine.list_held(session, WHO, KeySelection()).keys
    assert (key.target_table, key.key, key.changes, key.operation) == ("shard_1.t", "(`id` = 11)", 2, "insert")
    assert key.code == errors.replicate.ROW_REFUSED.code
    assert key.errno in (4025, 3819)
    _mend(rig)
    _end(rig, run)
    assert run.status().held_keys == 0


@pytest.mark.turns
def test_lanes_that_begin_know_what_is_held(rig: LaneRig) -> None:
    """Also when there are more lanes, and under `pause`."""
    _strict(rig)
    run = rig.replicate(2)
    bad = range(20, 30)
    rig.source.execute(*(f"INSERT INTO shard_1.t VALUES ({number}, 'much too long')" for number in bad))
    inserted = [(number, "insert") for number in bad]
    _until_held(rig, *inserted)
    assert run.stop() == Stopped()
    rig.source.execute("UPDATE shard_1.t SET v = 'fine' WHERE id >= 20", "DELETE FROM shard_1.t WHERE id = 25")
    rig.config.replicate.quarantine = False
    run = rig.replicate(3)
    _until_all_applied(run)
    until(lambda: run.status().held_keys == 10, "they are counted")
    assert [number for number, _ in _content(rig)] == [1, 2]
    assert len(_held(rig)) >= 2 * len(bad)
    rig.source.execute("INSERT INTO shard_1.t VALUES (30, 'much too long')")
    outcome = run.join()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.replicate.ROW_REFUSED
    _mend(rig)
    _end(rig, rig.replicate(2))


def test_keys_that_change_wait_for_both(rig: LaneRig) -> None:
    _strict(rig)
    run = rig.replicate(1)
    rig.source.execute("INSERT INTO shard_1.t VALUES (11, 'much too long')")
    held = [(11, "insert")]
    _until_held(rig, *held)
    for statement, more in (
        # The key changes from a held one: its delete waits; its insert is refused itself.
        ("UPDATE shard_1.t SET id = 12 WHERE id = 11", [(11, "delete"), (12, "insert")]),
        ("UPDATE shard_1.t SET v = 'fine' WHERE id = 12", [(12, "update")]),
        # The key changes to a held one.
        ("UPDATE shard_1.t SET id = 11 WHERE id = 1", [(11, "insert")]),
    ):
        rig.source.execute(statement)
        held += more
        _until_held(rig, *held)
    rig.source.execute("UPDATE shard_1.t SET id = 1 WHERE id = 2")
    until(lambda: _content(rig) == [(1, "b")], "neither of these keys is held")
    _until_held(rig, *held)
    _mend(rig)
    _end(rig, run)


def test_a_further_unique_key(rig: LaneRig) -> None:
    """A value that a held row must release first is refused for other rows, which wait too; together they can be
    applied."""
    _strict(rig, "shard_1.u")
    run = rig.replicate(2)
    rig.source.execute(
        "UPDATE shard_1.u SET v = 'much too long' WHERE id = 1",
        "INSERT INTO shard_1.u VALUES (3, 'a')",
        "INSERT INTO shard_1.u VALUES (4, 'd')",
        "UPDATE shard_1.u SET v = 'e' WHERE id = 2",
        "INSERT INTO shard_1.u VALUES (5, 'b')",
    )
    _until_held(rig, (1, "update"), (3, "insert"))
    until(lambda: _content(rig, "shard_1.u") == [(1, "a"), (2, "e"), (4, "d"), (5, "b")], "the others are there")
    found = _retry(rig)
    assert (found.total_keys, found.done_keys) == (2, 0)
    codes = {key.code for key in found.keys}
    assert codes == {errors.replicate.ROW_REFUSED.code, errors.replicate.TARGET_DUPLICATE_OTHER_KEY.code}
    _mend(rig, "shard_1.u")
    _end(rig, run)


def test_a_row_that_is_missing_and_one_that_is_there(rig: LaneRig) -> None:
    """Another session has changed the target: the two keys wait until it is in its previous state."""
    _strict(rig)
    rig.target.execute("DELETE FROM shard_1.t WHERE id = 1", "INSERT INTO shard_1.t VALUES (3, 'alien')")
    run = rig.replicate(2)
    rig.source.execute(
        "UPDATE shard_1.t SET v = 'x' WHERE id = 1",
        "INSERT INTO shard_1.t VALUES (3, 'own')",
        "INSERT INTO shard_1.t VALUES (4, 'fine')",
    )
    _until_held(rig, (1, "update"), (3, "insert"))
    until(lambda: _content(rig) == [(2, "b"), (3, "alien"), (4, "fine")], "the others are there")
    found = _retry(rig)
    assert {(key.key, key.code) for key in found.keys} == {
        ("(`id` = 1)", errors.replicate.DIVERGED.code),
        ("(`id` = 3)", errors.replicate.COLLISION.code),
    }
    rig.target.execute("DELETE FROM shard_1.t WHERE id = 3")
    assert (_retry(rig, "shard_1.t", "3").done_keys, _retry(rig).total_keys) == (1, 1)
    assert _held(rig) == [(1, "update")]
    rig.target.execute("INSERT INTO shard_1.t VALUES (1, 'a')")
    _mend(rig)
    _end(rig, run)


def test_a_table_without_a_key_pauses(rig: LaneRig) -> None:
    _strict(rig, "shard_1.log")
    run = rig.replicate(2)
    rig.source.execute("INSERT INTO shard_1.log VALUES (3, 'much too long')")
    outcome = run.join()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.replicate.ROW_REFUSED
    assert "(no key)" in outcome.error.message
    _mend(rig, "shard_1.log")
    _end(rig, rig.replicate(2))


@pytest.mark.turns
def test_a_statement_on_a_table_with_held_rows_is_not_passed(rig: LaneRig) -> None:
    _strict(rig)
    run = rig.replicate(2)
    rig.source.execute(
        "INSERT INTO shard_1.t VALUES (11, 'much too long')",
        "ALTER TABLE shard_1.u ADD COLUMN w INT",
        "ALTER TABLE shard_1.t ADD COLUMN w INT DEFAULT 5",
    )
    outcome = run.join()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.ddl.HELD_ROWS
    assert "shard_1.t" in outcome.error.message
    assert rig.target.query("SELECT COUNT(*) FROM information_schema.COLUMNS WHERE COLUMN_NAME = 'w'") == [(1,)]
    _mend(rig)
    assert _retry(rig).done_keys == 1
    _end(rig, rig.replicate(2))


@pytest.mark.turns
def test_what_is_given_up_is_recorded(rig: LaneRig) -> None:
    _strict(rig)
    run = rig.replicate(2)
    rig.source.execute(
        "INSERT INTO shard_1.t VALUES (11, 'much too long')",
        "INSERT INTO shard_1.t VALUES (12, 'much too long, too')",
    )
    _until_held(rig, (11, "insert"), (12, "insert"))
    with closing(connect(endpoint(rig.target), Side.TARGET, name="target")) as session:
        assert quarantine.drop(session, WHO, KeySelection(key="(`id` = 11)")).done_keys == 1
    assert _held(rig) == [(12, "insert")]
    records = rig.target.query(f"SELECT table_name, operation, after_image, word FROM {META}.skipped_change")
    assert records == [("t", "insert", "(`id`, `v`) = (11,'much too long')", "quarantine drop")]
    rig.source.execute("DELETE FROM shard_1.t WHERE id = 11")  # its row does not exist: the delete is held again
    _until_held(rig, (11, "delete"), (12, "insert"))
    _mend(rig)
    _end(rig, run)


def test_what_was_given_up_does_not_come_back_over_another_row(rig: LaneRig) -> None:
    """A later change has the complete row, and its key belongs to another row at the target."""
    _strict(rig)
    rig.target.execute("INSERT INTO shard_1.t VALUES (3, 'alien')")
    run = rig.replicate(2)
    rig.source.execute("INSERT INTO shard_1.t VALUES (3, 'own')")
    _until_held(rig, (3, "insert"))
    with closing(connect(endpoint(rig.target), Side.TARGET, name="target")) as session:
        assert quarantine.drop(session, WHO, KeySelection()).done_keys == 1
    until(lambda: run.status().held_keys == 0, "none is counted")
    rig.source.execute("UPDATE shard_1.t SET v = 'more' WHERE id = 3")
    _until_held(rig, (3, "update"))
    assert run.stop() == Stopped()
    run = rig.replicate(3)  # its lanes read the held keys from the record
    rig.source.execute("UPDATE shard_1.t SET v = 'again' WHERE id = 3")
    _until_held(rig, (3, "update"), (3, "update"))
    assert _retry(rig).total_keys == 1
    assert (3, "alien") in _content(rig)
    rig.target.execute("DELETE FROM shard_1.t WHERE id = 3")
    _mend(rig)
    _end(rig, run)


# --- kills


@pytest.mark.turns
@pytest.mark.parametrize("times", [1, 2])
def test_a_lane_is_killed_before_the_commit_that_holds(rig: LaneRig, hooks: Hooks, times: int) -> None:
    """kill -9 of the lane: the held change is recorded once, also a second change of the key."""
    _strict(rig)
    if times == 2:
        run = rig.replicate(1)
        rig.source.execute("INSERT INTO shard_1.t VALUES (11, 'much too long')")
        _until_held(rig, (11, "insert"))
        assert run.stop() == Stopped()
        rig.source.execute("UPDATE shard_1.t SET v = 'still too long' WHERE id = 11")
    else:
        rig.source.execute("INSERT INTO shard_1.t VALUES (11, 'much too long'), (12, 'fine')")
    hooks.hold("lane0.before_commit")
    spark = ProcessRunner()
    run = rig.replicate(1, spark)
    hooks.reached("lane0.before_commit")
    assert len(_held(rig)) == times - 1
    spark.kill(0)
    hooks.release("lane0.before_commit")
    assert isinstance(run.join(), Failed)
    run = rig.replicate(2)
    _until_held(rig, *[(11, "insert"), (11, "update")][:times])
    _mend(rig)
    _end(rig, run)


def _retry_alone(target: Endpoint) -> None:
    with closing(connect(target, Side.TARGET, name="target")) as session:
        quarantine.retry(session, WHO, KeySelection(), safe_mode=False)


@pytest.mark.turns
@pytest.mark.parametrize("moment", ["quarantine.before_commit", "quarantine.committed"])
def test_a_retry_is_killed(rig: LaneRig, hooks: Hooks, moment: str) -> None:
    """Before its commit nothing has changed, after it everything; lanes that wait for it continue."""
    _strict(rig)
    run = rig.replicate(2)
    rig.source.execute("INSERT INTO shard_1.t VALUES (11, 'much too long')", "INSERT INTO shard_1.log VALUES (4, 'x')")
    _until_held(rig, (11, "insert"))
    _mend(rig)
    hooks.hold(moment)
    retrying = multiprocessing.get_context("spawn").Process(target=_retry_alone, args=(endpoint(rig.target),))
    retrying.start()
    hooks.reached(moment)
    if moment == "quarantine.before_commit":
        for lane in (0, 1):
            with pytest.raises(pymysql.MySQLError) as caught:  # no lane can advance its checkpoint meanwhile
                rig.target.execute(f"SELECT 1 FROM {META}.lane_checkpoint WHERE lane = {lane} FOR UPDATE NOWAIT")
            assert caught.value.args[0] == ER.LOCK_WAIT_TIMEOUT
    rig.source.execute("UPDATE shard_1.t SET v = 'meanwhile' WHERE id IN (1, 11)")
    assert retrying.pid is not None
    os.kill(retrying.pid, signal.SIGKILL)
    retrying.join()
    hooks.release(moment)
    if moment == "quarantine.committed":
        run.until_synced()
        _same(rig)
    else:
        _until_held(rig, (11, "insert"), (11, "update"))
    _end(rig, run)


def test_retries_race_with_lanes(rig: LaneRig) -> None:
    """The lanes write to keys that are held, released and held again: no change is lost, repeated or out of order."""
    _strict(rig)
    run = rig.replicate(2)
    rig.source.execute("INSERT INTO shard_1.t VALUES (11, 'much too long')")
    _until_held(rig, (11, "insert"))
    over = threading.Event()

    def write() -> None:
        for round_ in range(60):
            value = "much too long" if round_ % 3 == 0 else f"r{round_}"
            rig.source.execute(
                f"REPLACE INTO shard_1.t VALUES (11, '{value}'), (12, 'f{round_}')",
                f"UPDATE shard_1.t SET v = '{value}' WHERE id IN (1, 11)",
                *(["DELETE FROM shard_1.t WHERE id = 11"] if round_ % 4 == 0 else []),
                f"INSERT INTO shard_1.log VALUES ({round_}, 'x')",
            )
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    done = 0
    # At least one retry succeeds, however fast the writer is: the key is held, and its last value fits.
    while not (over.is_set() and done):
        done += _retry(rig).done_keys
    writer.join()
    _until_all_applied(run)
    _mend(rig)
    _end(rig, run)
