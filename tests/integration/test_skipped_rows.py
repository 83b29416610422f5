"""Tests rows that an operator skips: each once, recorded in the transaction that skips it, even after kills (I9)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from shardmerge.worker.unit.contract import Failed, Stopped
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_rig import META, subtask_config
from tests.support.hooks import Hooks
from tests.support.mariadb import MariaDB
from tests.support.task_runners import ProcessRunner
from tests.support.wait import until

_PLACE = re.compile(r"\((\S+), (\d+)\)")


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hooks:
    made = Hooks(tmp_path / "hooks")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def rig(make_server: Callable[..., MariaDB], tmp_path: Path) -> Iterator[LaneRig]:
    source, target = make_server("source"), make_server("target")
    source.execute(
        "CREATE DATABASE shard_1",
        "CREATE TABLE shard_1.t (id BIGINT PRIMARY KEY, v VARCHAR(40))",
        "CREATE TABLE shard_1.log (id BIGINT, v VARCHAR(40))",
    )
    with LaneRig(source, target, tmp_path, subtask_config(target)) as made:
        yield made


def _skip(error: errors.ShardmergeError) -> StoredOverride:
    """Return the override that the error asks for."""
    found = _PLACE.search(error.message)
    assert found is not None, error
    return StoredOverride(kind=OverrideKind.SKIP, file=found[1], pos=int(found[2]))


def _refused(run: Run) -> errors.ShardmergeError:
    outcome = run.join()
    assert isinstance(outcome, Failed)
    return outcome.error


def _ids(rig: LaneRig, table: str = "shard_1.t") -> list[int]:
    return [int(str(number)) for (number,) in rig.target.query(f"SELECT id FROM {table} ORDER BY id")]


def _recorded(rig: LaneRig) -> list[str]:
    return [str(image) for (image,) in rig.target.query(f"SELECT after_image FROM {META}.skipped_change ORDER BY 1")]


def _narrow(rig: LaneRig, table: str = "t") -> None:
    """Run once to create the target, which accepts only short values from then on."""
    run = rig.replicate(2)
    rig.source.execute("INSERT INTO shard_1.t VALUES (1, 'a')", "INSERT INTO shard_1.log VALUES (1, 'a')")
    run.until_synced()
    assert run.stop() == Stopped()
    rig.target.execute(f"ALTER TABLE shard_1.{table} ADD CONSTRAINT short CHECK (CHAR_LENGTH(v) < 6)")


def test_all_rows_of_the_event_and_no_other(rig: LaneRig, hooks: Hooks) -> None:
    """Both lanes are held before their first commit, so that neither has applied a row of the event at the override."""
    _narrow(rig)
    rig.source.execute(
        "BEGIN",
        "INSERT INTO shard_1.t VALUES (2, 'fine')",
        "INSERT INTO shard_1.t VALUES " + ", ".join(f"({number}, 'much too long')" for number in range(10, 30)),
        "INSERT INTO shard_1.t VALUES (3, 'fine')",
        "COMMIT",
        "INSERT INTO shard_1.t VALUES (4, 'fine')",
    )
    error = _refused(rig.replicate(2))
    assert error.spec is errors.replicate.ROW_REFUSED
    assert error.values["errno"] == "4025"
    before = _ids(rig)
    for moved in (-1, 1):
        word = _skip(error)
        word = replace(word, pos=word.pos + moved)
        assert _refused(rig.replicate(2, ops=(word,))).spec is errors.replicate.ROW_REFUSED
    assert not _recorded(rig)
    run = rig.replicate(2, ops=(_skip(error),))
    run.until_synced()
    assert run.stop() == Stopped()
    assert before == [1]
    assert _ids(rig) == [1, 2, 3, 4]
    assert _recorded(rig) == [f"`id` = {number}, `v` = 'much too long'" for number in range(10, 30)]
    # The override still exists: it does not apply to later events.
    run = rig.replicate(2, ops=(_skip(error),))
    rig.source.execute("INSERT INTO shard_1.t VALUES (5, 'fine')")
    run.until_synced()
    assert run.stop() == Stopped()
    assert _ids(rig) == [1, 2, 3, 4, 5]
    assert len(_recorded(rig)) == 20


@pytest.mark.turns
@pytest.mark.parametrize("moment", ["lane0.before_commit", "lane1.before_commit"])
def test_killed_before_the_commit_that_records_them(rig: LaneRig, hooks: Hooks, moment: str) -> None:
    """kill -9 of a lane that has skipped its rows: they are recorded once, by the next run."""
    _narrow(rig)
    rows = ", ".join(f"({number}, 'much too long')" for number in range(10, 30))
    rig.source.execute(f"INSERT INTO shard_1.t VALUES {rows}", "INSERT INTO shard_1.t VALUES (2, 'fine'), (3, 'fine')")
    word = _skip(_refused(rig.replicate(2)))
    hooks.hold(moment)
    spark = ProcessRunner()
    run = rig.replicate(2, spark, ops=(word,))
    hooks.reached(moment)
    spark.kill(int(moment[4]))
    hooks.release(moment)
    assert isinstance(run.join(), Failed)
    again = rig.replicate(2, ops=(word,))
    again.until_synced()
    assert again.stop() == Stopped()
    assert _ids(rig) == [1, 2, 3]
    assert _recorded(rig) == [f"`id` = {number}, `v` = 'much too long'" for number in range(10, 30)]


@pytest.mark.turns
def test_rows_without_a_key(rig: LaneRig) -> None:
    _narrow(rig, "log")
    rig.source.execute(
        "BEGIN",
        "INSERT INTO shard_1.log VALUES (2, 'fine')",
        "INSERT INTO shard_1.log VALUES (3, 'much too long')",
        "COMMIT",
    )
    error = _refused(rig.replicate(2))
    assert error.spec is errors.replicate.ROW_REFUSED
    assert "shard_1.log" in error.message
    run = rig.replicate(2, ops=(_skip(error),))
    run.until_synced()
    assert run.stop() == Stopped()
    assert _ids(rig, "shard_1.log") == [1, 2]
    assert _recorded(rig) == ["`id` = 3, `v` = 'much too long'"]


def test_an_event_whose_rows_cannot_be_read(rig: LaneRig) -> None:
    """An id that does not fit its mapping has no key at the target: every lane reports that it has skipped the
    event."""
    config = config_pb2.SubTaskConfig()
    config.CopyFrom(rig.config)
    config.mode = config_pb2.TASK_MODE_INCREMENTAL
    config.start.CopyFrom(rig.start.to_proto())
    config.replicate.lanes = 2
    config.column_mappings.add(
        name="ids",
        schema_pattern="shard_*",
        table_pattern="t",
        source_column="id",
        target_column="id",
        expression="partition id",
        arguments=["1", "shard_", "t", ""],
    )
    rig.source.execute(
        "BEGIN",
        "INSERT INTO shard_1.log VALUES (1, 'fine')",
        "INSERT INTO shard_1.t VALUES (5, 'lost'), (-1, 'lost')",
        "COMMIT",
        "INSERT INTO shard_1.log VALUES (2, 'fine')",
    )
    error = _refused(rig.begin(config))
    assert error.spec is errors.config.ID_OVERFLOW
    run = rig.begin(config, ops=(_skip(error),))
    run.until_synced()
    assert run.stop() == Stopped()
    assert _ids(rig) == []
    assert _ids(rig, "shard_1.log") == [1, 2]
    found = rig.target.query(f"SELECT lane, operation, note LIKE '[11001 %' FROM {META}.skipped_change ORDER BY lane")
    assert found == [(0, "unreadable", 1), (1, "unreadable", 1)]


def test_the_error_of_a_duplicate_names_the_row(rig: LaneRig) -> None:
    """One statement has many rows; the reported position is that of the refused row."""
    _narrow(rig, "log")
    rig.target.execute("ALTER TABLE shard_1.t ADD UNIQUE (v)")
    rig.source.execute(
        "INSERT INTO shard_1.t VALUES (2, 'b')",
        "INSERT INTO shard_1.t VALUES (3, 'a')",
        "INSERT INTO shard_1.t VALUES (4, 'd')",
    )
    error = _refused(rig.replicate(1))
    assert error.spec is errors.replicate.TARGET_DUPLICATE_OTHER_KEY
    run = rig.replicate(1, ops=(_skip(error),))
    until(lambda: _ids(rig) == [1, 2, 4], "the others are applied")
    assert run.stop() == Stopped()
    assert _recorded(rig) == ["`id` = 3, `v` = 'a'"]


@pytest.mark.parametrize("quarantine", [False, True], ids=["pause", "quarantine"])
def test_what_was_skipped_does_not_come_back_over_another_row(rig: LaneRig, quarantine: bool) -> None:
    """Later changes have the complete row, and its key belongs to another row at the target: none of them changes that
    one."""
    run = rig.replicate(2)
    rig.source.execute("INSERT INTO shard_1.t VALUES (1, 'a')", "INSERT INTO shard_1.log VALUES (1, 'a')")
    run.until_synced()
    rig.target.execute("INSERT INTO shard_1.t VALUES (3, 'alien')")
    rig.source.execute("INSERT INTO shard_1.t VALUES (3, 'own')")
    error = _refused(run)
    assert error.spec is errors.replicate.COLLISION
    words = [_skip(error)]
    alien = [(1, "a"), (3, "alien")]
    if quarantine:
        rig.config.replicate.quarantine = True
        rig.source.execute("UPDATE shard_1.t SET v = 'more' WHERE id = 3")
        run = rig.replicate(2, ops=tuple(words))
        held = f"SELECT operation FROM {META}.held_change ORDER BY seq"
        until(lambda: rig.target.query(held) == [("dropped",), ("update",)], "the later change waits")
        assert run.stop() == Stopped()
        assert rig.target.query("SELECT * FROM shard_1.t ORDER BY id") == alien
        return
    for statement in ("UPDATE shard_1.t SET v = 'more' WHERE id = 3", "DELETE FROM shard_1.t WHERE id = 3"):
        rig.source.execute(statement)
        error = _refused(rig.replicate(2, ops=tuple(words)))
        assert error.spec is errors.replicate.DIVERGED
        assert rig.target.query("SELECT * FROM shard_1.t ORDER BY id") == alien
        words.append(_skip(error))
    # After the row is deleted at the source, its key is free for another row.
    rig.target.execute("DELETE FROM shard_1.t WHERE id = 3")
    rig.source.execute("INSERT INTO shard_1.t VALUES (3, 'new')")
    run = rig.replicate(2, ops=tuple(words))
    run.until_synced()
    assert run.stop() == Stopped()
    assert rig.target.query("SELECT * FROM shard_1.t ORDER BY id") == [(1, "a"), (3, "new")]
    assert rig.target.query(f"SELECT * FROM {META}.held_change") == []


def test_a_row_that_goes_before_its_key_comes_again_in_a_skipped_event(rig: LaneRig) -> None:
    """Both are in one batch: the changes before the skipped event are applied."""
    _narrow(rig)
    rig.source.execute("DELETE FROM shard_1.t WHERE id = 1", "INSERT INTO shard_1.t VALUES (1, 'much too long')")
    error = _refused(rig.replicate(1))
    run = rig.replicate(1, ops=(_skip(error),))
    run.until_synced()
    assert run.stop() == Stopped()
    assert _ids(rig) == []
    assert rig.target.query(f"SELECT operation FROM {META}.held_change") == [("dropped",)]
