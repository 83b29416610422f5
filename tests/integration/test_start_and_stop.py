"""Tests where a task begins to replicate and where it ends: exactly at a group, even after kills (I2)."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from shardmerge.proto import common_pb2, config_pb2, errors, worker_pb2
from shardmerge.proto.config.position import start_at, stop_at
from shardmerge.worker.unit.contract import Failed, Finished, Stopped
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_rig import subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database
from tests.support.task_runners import ProcessRunner
from tests.support.wait import until

__all__ = ["servers", "source", "target"]

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE=InnoDB"


def _config(target: Database, **given: object) -> config_pb2.SubTaskConfig:
    """Return an incremental configuration; ``start`` and ``stop`` as in a task file, a pair is a position in a file."""
    config = subtask_config(target)
    config.mode = config_pb2.TASK_MODE_INCREMENTAL
    config.replicate.lanes = 2
    match given.get("start"):
        case str() as text:
            config.start_at.CopyFrom(start_at(text))
        case (str() as file, int() as pos):
            config.start.CopyFrom(common_pb2.SourcePosition(file=file, pos=pos))
        case _:
            pass
    match given.get("stop"):
        case str() as text:
            config.stop_at.CopyFrom(stop_at(text))
        case (str() as file, int() as pos):
            config.stop_at.CopyFrom(stop_at(f"{file}:{pos}"))
        case _:
            pass
    return config


def _ids(server: Database) -> list[int]:
    """Return the ids of the table; [] while it does not exist."""
    if not server.query("SELECT 1 FROM information_schema.tables WHERE table_schema = 'shard' AND table_name = 't'"):
        return []
    return [int(str(row[0])) for row in server.query("SELECT id FROM shard.t ORDER BY id")]


def _insert(source: Database, *ids: int) -> tuple[str, int]:
    """Insert each id in its own transaction; return where the binlog ends then."""
    for one in ids:
        source.execute(f"INSERT INTO shard.t VALUES ({one}, 0)")
    return source.binlog_end()


def _second() -> float:
    """Return the begin of a second, which is after all earlier actions of the test and before all later ones."""
    moment = math.floor(time.time()) + 1.0
    until(lambda: time.time() >= moment + 0.05, "the second has begun")
    return moment


def _text(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def _sync(run: Run) -> worker_pb2.SyncStatus:
    assert run.unit is not None
    status = run.unit.status()
    assert isinstance(status, worker_pb2.SyncStatus)
    return status


def _failed(outcome: object) -> errors.ShardmergeError:
    assert isinstance(outcome, Failed), outcome
    return outcome.error


def test_ends_at_a_place_and_continues_when_that_is_moved(source: Database, target: Database, tmp_path: Path) -> None:
    make_tables(source, TABLE)
    begin = source.binlog_end()
    place = _insert(source, 1, 2, 3)
    middle = _insert(source, 4)
    behind = _insert(source, 5, 6)
    with LaneRig(source, target, tmp_path, subtask_config(target)) as rig:
        # A position inside the group of row 4: that group is not applied.
        config = _config(target, start=begin, stop=(middle[0], middle[1] - 20))
        first = rig.begin(config)
        assert first.join() == Finished()
        assert _ids(target) == [1, 2, 3]
        assert _sync(first).syncer_binlog == f"({place[0]}, {place[1]})"
        assert len({lane[1:] for lane in rig.checkpoints()}) == 1

        source.shut_down()
        try:
            again = rig.begin(config)  # like a worker that is new to the task: it only reads the records
            assert again.join() == Finished()
            assert _sync(again).syncer_binlog == f"({place[0]}, {place[1]})"
            assert _sync(again).stop_at == f"{middle[0]}:{middle[1] - 20}"
        finally:
            source.ensure_running()

        assert rig.begin(_config(target, start=begin, stop=behind)).join() == Finished()
        assert _ids(target) == [1, 2, 3, 4, 5, 6]
        error = _failed(rig.begin(_config(target, start=begin, stop=place)).join())
        assert error.spec is errors.replicate.STOP_BEHIND
        assert f"{place[0]}:{place[1]}" in str(error)

        endless = rig.begin(_config(target, start=begin))
        _insert(source, 7)
        until(lambda: _ids(target)[-1] == 7, "it goes on without an end")
        assert endless.stop() == Stopped()


def test_waits_for_a_place_that_is_yet_to_come_and_survives_kills(
    source: Database, target: Database, tmp_path: Path
) -> None:
    make_tables(source, TABLE)
    begin = _insert(source, 1)
    size = _insert(source, 2)[1] - begin[1]
    # A position in the middle of the transaction after that of row 40, if all transactions have the same size.
    end = (begin[0], begin[1] + 39 * size + size // 2)
    with LaneRig(source, target, tmp_path, subtask_config(target)) as rig:
        config = _config(target, start=begin, stop=end)
        spark = ProcessRunner()
        run = rig.begin(config, spark)
        _insert(source, *range(3, 20))
        until(lambda: len(_ids(target)) >= 18, "what there is was applied")
        assert not run.ended
        spark.kill(0)
        assert isinstance(run.join(), Failed)
        _insert(source, *range(20, 60))
        run = rig.begin(config, ProcessRunner())
        assert run.join() == Finished()
        applied = _ids(target)
        assert applied == list(range(2, 2 + len(applied)))
        assert 38 <= len(applied) <= 42
        last = len(applied) + 1
        [[at]] = target.query("SELECT MAX(source_pos) FROM dm_meta.lane_checkpoint")
        assert int(str(at)) <= end[1] < int(str(at)) + size + 8, (last, at, end)


def test_ends_after_a_gtid_set(source: Database, target: Database, tmp_path: Path) -> None:
    make_tables(source, TABLE)
    begin = source.binlog_end()
    _insert(source, 1, 2)
    statement = "SELECT @@GLOBAL.gtid_executed" if source.flavor == "mysql" else "SELECT @@GLOBAL.gtid_binlog_pos"
    [[gtids]] = source.query(statement)
    _insert(source, 3)
    with LaneRig(source, target, tmp_path, subtask_config(target)) as rig:
        config = _config(target, start=begin, stop=str(gtids).replace("\n", ""))
        run = rig.begin(config)
        assert run.join() == Finished()
        assert _ids(target) == [1, 2]
        strange = "0-1-5" if source.flavor == "mysql" else "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5"
        error = _failed(rig.begin(_config(target, start=begin, stop=strange)).join())
        assert error.spec is errors.replicate.STOP_WITHOUT_GTIDS


@pytest.mark.turns
def test_what_stops_at_a_time_and_what_starts_there_share_nothing(
    source: Database, target: Database, tmp_path: Path
) -> None:
    make_tables(source, TABLE)
    begin = source.binlog_end()
    # The event of a DDL has its time in whole seconds, so the search by time needs this distance.
    before = [_second() for _ in range(4)][-1]
    _insert(source, 1, 2)
    source.execute("FLUSH BINARY LOGS")
    _insert(source, 3)
    moment = _second()
    _insert(source, 4)
    source.execute("FLUSH BINARY LOGS")
    _insert(source, 5)
    with LaneRig(source, target, tmp_path, subtask_config(target)) as rig:
        run = rig.begin(_config(target, start=begin, stop=_text(moment)))
        assert run.join() == Finished()
        assert _ids(target) == [1, 2, 3]
        # No row is left out; row 3, changed here, shows whether it was applied again.
        _forget(target)
        target.execute("UPDATE shard.t SET v = 1 WHERE id = 3")
        run = rig.begin(_config(target, start=_text(moment)))
        run.until_synced()
        assert _ids(target) == [1, 2, 3, 4, 5]
        assert run.stop() == Stopped()
        # At a source without commit times the task begins earlier, and rows are restored to their values at the source.
        [[v]] = target.query("SELECT v FROM shard.t WHERE id = 3")
        assert v == (1 if source.flavor == "mysql" else 0)

        _forget(target)
        target.execute("TRUNCATE shard.t")
        run = rig.begin(_config(target, start=_text(before), stop=_text(moment)))
        assert run.join() == Finished()
        assert _ids(target) == [1, 2, 3]


def test_an_idle_source_passes_a_time(source: Database, target: Database, tmp_path: Path) -> None:
    make_tables(source, TABLE)
    begin = source.binlog_end()
    _insert(source, 1)
    moment = math.floor(time.time()) + 4.0
    with LaneRig(source, target, tmp_path, subtask_config(target)) as rig:
        run = rig.begin(_config(target, start=begin, stop=_text(moment)))
        until(lambda: _ids(target) == [1], "the row is there")
        assert run.join() == Finished()
        assert time.time() >= moment
        assert _ids(target) == [1]


def test_earliest_latest_and_times_that_cannot_be(source: Database, target: Database, tmp_path: Path) -> None:
    make_tables(source, TABLE)
    _insert(source, 1)
    source.execute("FLUSH BINARY LOGS")
    source.purge_before(source.binlog_end()[0])
    place = _insert(source, 2)
    with LaneRig(source, target, tmp_path, subtask_config(target)) as rig:
        too_late = _failed(rig.begin(_config(target, start=_text(time.time() + 3600))).join())
        assert too_late.spec is errors.replicate.START_TOO_LATE
        too_early = _failed(rig.begin(_config(target, start="2001-02-03 04:05:06")).join())
        assert too_early.spec is errors.replicate.START_TOO_EARLY
        assert "earliest" in too_early.workaround
        behind = _failed(rig.begin(_config(target, start="latest", stop="2001-02-03 04:05:06")).join())
        assert behind.spec is errors.replicate.STOP_BEHIND
        assert rig.begin(_config(target, start="earliest", stop=place)).join() == Finished()
        assert _ids(target) == [2]
        _forget(target)
        run = rig.begin(_config(target, start="latest"))
        run.until_synced()
        _insert(source, 3)
        until(lambda: _ids(target) == [2, 3], "only what came later")
        assert run.stop() == Stopped()


@pytest.mark.parametrize("zone", ["+05:30", "SYSTEM"])
def test_a_time_without_an_offset_is_the_sources(source: Database, target: Database, tmp_path: Path, zone: str) -> None:
    make_tables(source, TABLE)
    begin = source.binlog_end()
    _insert(source, 1)
    moment = _second()
    _insert(source, 2)
    source.execute(f"SET GLOBAL time_zone = '{zone}'")
    shift = 5.5 * 3600 if zone != "SYSTEM" else time.localtime(moment).tm_gmtoff
    local = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment + shift))
    try:
        with LaneRig(source, target, tmp_path, subtask_config(target)) as rig:
            run = rig.begin(_config(target, start=begin, stop=local))
            assert run.join() == Finished()
            assert _ids(target) == [1]
    finally:
        source.execute("SET GLOBAL time_zone = SYSTEM")


def test_a_snapshot_cannot_end_before_it_was_taken(source: Database, target: Database, tmp_path: Path) -> None:
    make_tables(source, TABLE)
    place = _insert(source, 1)
    end = _insert(source, 2)
    config = _config(target, stop=place)
    config.mode = config_pb2.TASK_MODE_ALL
    with LaneRig(source, target, tmp_path, config) as rig:
        error = _failed(rig.begin(config).join())
        assert error.spec is errors.replicate.STOP_BEHIND
        # Future changes: the snapshot, and the changes up to the middle of row 4, if transactions have the same size.
        size = end[1] - place[1]
        config.stop_at.CopyFrom(stop_at(f"{end[0]}:{end[1] + size + size // 2}"))
        run = rig.begin(config)
        until(lambda: len(_ids(target)) == 2, "the snapshot is there")
        _insert(source, 3, 4)
        assert run.join() == Finished()
        assert _ids(target) == [1, 2, 3]


@pytest.mark.turns
def test_a_snapshot_is_followed_up_to_a_time(source: Database, target: Database, tmp_path: Path) -> None:
    make_tables(source, TABLE)
    _insert(source, 1)
    config = _config(target)
    config.mode = config_pb2.TASK_MODE_ALL
    with LaneRig(source, target, tmp_path, config) as rig:
        # On a slow machine the preparation may take longer than until the moment: then repeat it with a later one.
        for seconds in (5, 20, 80, 320):
            moment = math.floor(time.time()) + float(seconds)
            config.stop_at.CopyFrom(stop_at(_text(moment)))
            before = _ids(source)
            run = rig.begin(config)
            until(lambda before=before, run=run: _ids(target) == before or run.ended, "the snapshot is there")
            following = before[-1] + 1
            _insert(source, following)
            in_time = time.time() < moment
            until(lambda moment=moment: time.time() >= moment + 0.05, "the moment has come")
            _insert(source, following + 1)
            outcome = run.join()
            if in_time:
                assert outcome == Finished()
                assert _ids(target) == [*before, following]
                return
            target.execute("DROP DATABASE IF EXISTS dm_meta", "DROP DATABASE IF EXISTS shard")
    raise AssertionError("never done in time")


def _forget(target: Database) -> None:
    """Delete the records like start-task --remove-meta."""
    for table in ("subtask", "lane_checkpoint", "table_structure", "subtask_bound"):
        target.execute(f"DELETE FROM dm_meta.{table}")
