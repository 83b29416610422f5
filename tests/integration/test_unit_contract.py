"""Tests that every process unit fulfils the contract of worker/core/stop_signal.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import Side
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.replicate.unit import ReplicateUnit, StartState, first_checkpoints
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.unit.contract import Failed, Outcome, ProcessUnit, Stopped
from tests.integration.lane_rig import driver_of
from tests.integration.snapshot_rig import META, SOURCE, TASK, Rig, subtask_config
from tests.support.fixed_clock import FixedClock
from tests.support.mariadb import MariaDB
from tests.support.wait import until

MakeUnit = Callable[[Rig], ProcessUnit]


def _snapshot(rig: Rig) -> ProcessUnit:
    return rig.unit()


def _replicate(rig: Rig) -> ProcessUnit:
    context = rig.context()
    session = rig.session(Side.TARGET)
    try:
        first = checkpoints.read_all(session, SubtaskKey(META, TASK, SOURCE))
        if not first:
            offset = rig.relay.locate(rig.start, 300, StopSignal())
            first = first_checkpoints(2, rig.epoch, rig.relay.relay_id, rig.start, offset)
            subtask_record.begin(
                session,
                SubtaskKey(META, TASK, SOURCE),
                rig.epoch,
                subtask_record.Phase.REPLICATE,
                rig.start,
                rig.tables,
                lambda inner: checkpoints.insert(inner, SubtaskKey(META, TASK, SOURCE), first),
            )
    finally:
        session.close()
    driver = driver_of(context, rig.plans)
    return ReplicateUnit(context, rig.service, None, FixedClock(rig.start), StartState(first, None), driver)


UNITS: dict[str, MakeUnit] = {"snapshot": _snapshot, "replicate": _replicate}


@pytest.fixture(params=UNITS)
def make_unit(request: pytest.FixtureRequest) -> MakeUnit:
    return UNITS[request.param]


@pytest.fixture
def target(make_server: Callable[..., MariaDB]) -> MariaDB:
    return make_server("target")


@pytest.fixture
def source(make_server: Callable[..., MariaDB]) -> MariaDB:
    server = make_server("source")
    server.execute(
        "CREATE DATABASE shard_1",
        "USE shard_1",
        "CREATE TABLE shard_1.t (id BIGINT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO shard_1.t SELECT seq, 'old' FROM seq_1_to_500",
    )
    return server


@pytest.fixture
def rig(source: MariaDB, target: MariaDB, tmp_path: Path) -> Iterator[Rig]:
    with Rig(source, target, tmp_path, subtask_config(target, chunk_rows=50, threads=2)) as made:
        source.execute("INSERT INTO shard_1.t VALUES (1000, 'new')")
        yield made


class _Run(threading.Thread):
    """Executes ``run`` in a thread; it must raise nothing, as the contract requires."""

    def __init__(self, unit: ProcessUnit, stop: StopSignal) -> None:
        super().__init__()
        self._unit, self._stop_signal = unit, stop
        self.outcomes: list[Outcome] = []

    def run(self) -> None:
        self.outcomes.append(self._unit.run(self._stop_signal))


def _tells_status(unit: ProcessUnit) -> bool:
    return unit.status().IsInitialized()


def test_stopped_before_it_began_commits_nothing(rig: Rig, make_unit: MakeUnit) -> None:
    unit, stop = make_unit(rig), StopSignal()
    stop.set()
    assert unit.run(stop) == Stopped()
    assert rig.target.query("SELECT COUNT(*) FROM shard_1.t") == [(0,)]


def test_stop_ends_it_and_status_answers_all_the_time(
    rig: Rig, make_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Held while it processes rows: it is certainly working when it is stopped.
    monkeypatch.setenv("SHARDMERGE_HOOKS", str(tmp_path))
    moments = ("snapshot.before_commit", "lane0.commit", "lane1.commit")
    for moment in moments:
        (tmp_path / f"{moment}.hold").touch()
    unit, stop = make_unit(rig), StopSignal()
    assert _tells_status(unit)
    run = _Run(unit, stop)
    run.start()
    until(lambda: [path for path in tmp_path.iterdir() if ".reached." in path.name], "it is at work")
    assert _tells_status(unit)
    stop.set()
    for moment in moments:
        (tmp_path / f"{moment}.hold").unlink()
    run.join(300)
    assert run.outcomes == [Stopped()]
    assert _tells_status(unit)


def test_a_target_that_is_away_is_a_coded_retryable_failure(rig: Rig, make_unit: MakeUnit) -> None:
    unit = make_unit(rig)
    rig.target.kill()
    outcome = unit.run(StopSignal())
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.replicate.TARGET_LOST
    assert outcome.error.spec.retryable


def test_an_older_epoch_fails_and_commits_nothing(rig: Rig, make_unit: MakeUnit) -> None:
    unit = make_unit(rig)
    rig.take_over()
    outcome = unit.run(StopSignal())
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.replicate.FENCED
    assert rig.target.query("SELECT COUNT(*) FROM shard_1.t") == [(0,)]
