"""Tests a target that loses its last transactions, as a replica may that takes over: the task continues by itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.wait import until
from tests.support.world import Family

pytestmark = pytest.mark.turns

NAME, SOURCE = "back", "mysql-01"


class Rig:
    """A task in sync, and the target's data as they were before the last changes of the source."""

    def __init__(self, source: Database, target: Database, cluster: Cluster) -> None:
        self.source, self.target, self.cluster = source, target, cluster
        self.family = Family(NAME, ((SOURCE, source),), target)
        self.family.create(200)
        cluster.create_source(SOURCE, source)
        cluster.start_task(self.family.task())
        cluster.wait_replicating(NAME)
        self.settle()

    def settle(self) -> None:
        self.cluster.wait_caught_up(NAME, {SOURCE: self.source})

    def change(self, amount: int) -> None:
        shard, columns = f"{NAME}_01.order_01", "(customer, amount, state, token, created)"
        self.source.execute(
            f"UPDATE {shard} SET amount = {amount} WHERE id % 7 = 0",
            f"DELETE FROM {shard} ORDER BY id LIMIT 3",
            f"INSERT INTO {shard} {columns} VALUES ('c', {amount}, 'new', '', '2024-01-01')",
        )

    def epoch(self) -> int:
        [(epoch,)] = self.target.query(f"SELECT epoch FROM dm_meta.subtask WHERE task = '{NAME}'")
        return int(str(epoch))

    def lanes(self) -> int:
        [(lanes,)] = self.target.query(f"SELECT COUNT(*) FROM dm_meta.lane_checkpoint WHERE task = '{NAME}'")
        return int(str(lanes))

    def passed(self) -> bool:
        """Whether a statement is recorded as executed."""
        [(statements,)] = self.target.query(f"SELECT COUNT(*) FROM dm_meta.statement_passed WHERE task = '{NAME}'")
        return int(str(statements)) > 0

    def keep_data(self) -> Path:
        kept = self.target.directory / "kept"
        self.target.shut_down()
        shutil.copytree(self.target.directory / "data", kept)
        self.target.start()
        return kept

    def go_back(self, kept: Path) -> None:
        self.target.kill()
        shutil.rmtree(self.target.directory / "data")
        kept.rename(self.target.directory / "data")
        self.target.start()


@pytest.fixture
def rig(make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]) -> Iterator[Rig]:
    yield Rig(make_server("source"), make_server("target"), make_cluster(workers=1))


@pytest.mark.parametrize("writes", [False, True], ids=["source-idle", "source-writes"])
def test_what_was_lost_is_applied_again(rig: Rig, *, writes: bool) -> None:
    rig.change(1)
    rig.settle()
    kept = rig.keep_data()
    rig.change(2)
    rig.settle()
    assert rig.family.verdict().differences == 0
    epoch = rig.epoch()
    rig.go_back(kept)
    if writes:
        rig.change(3)
    else:
        assert rig.family.verdict().differences > 0
    until(lambda: rig.epoch() > epoch, "a later run has taken over", 120)
    rig.cluster.wait_replicating(NAME)
    rig.settle()
    verdict = rig.family.verdict()
    assert verdict.differences == 0, verdict
    rig.change(4)
    rig.settle()
    assert rig.family.verdict().differences == 0
    [log] = [worker.log.read_text(encoding="utf-8") for worker in rig.cluster.workers]
    assert "target-went-back" in log
    rig.cluster.dmctl("stop-task", NAME)


def test_a_lost_statement_is_executed_again(rig: Rig) -> None:
    """The lost transaction is the last one: no lane has committed anything after the statement."""
    kept, hooks = rig.keep_data(), rig.cluster.hooks
    rig.settle()
    moments = [f"lane{lane}.commit" for lane in range(rig.lanes())]
    for moment in moments:
        hooks.hold(moment)
    rig.source.execute(f"TRUNCATE TABLE {NAME}_01.order_01")
    until(rig.passed, "the statement is recorded", 60)
    epoch = rig.epoch()
    assert rig.family.verdict().differences == 0
    rig.go_back(kept)
    assert rig.family.verdict().differences > 0
    hooks.release_all()
    until(lambda: rig.epoch() > epoch, "a later run has taken over", 120)
    rig.cluster.wait_replicating(NAME)
    rig.settle()
    verdict = rig.family.verdict()
    assert verdict.differences == 0, verdict
    rig.cluster.dmctl("stop-task", NAME)
