"""Tests a statement during the copy of a table between a MariaDB and a MySQL, which describe types differently."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.interrupted_copy import Pause, config_of, loaded, make, same, writes
from tests.integration.lane_rig import LaneRig
from tests.support.database import Database
from tests.support.pair import KINDS, started_pair

_ADDED = (
    "ADD COLUMN m INT NOT NULL DEFAULT 8, ADD COLUMN b BIGINT UNSIGNED, ADD COLUMN y YEAR DEFAULT 2020, "
    "ADD COLUMN e ENUM('a', 'b') CHARACTER SET latin1 DEFAULT 'b', ADD COLUMN d DECIMAL(9, 2) DEFAULT 1.5, "
    "ADD COLUMN s VARCHAR(30) DEFAULT 'é'"
)


@pytest.fixture(params=["mariadb-mysql", "mysql-mariadb"])
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Database, Database]]:
    source, target = (KINDS[kind] for kind in str(request.param).split("-"))
    with started_pair(tmp_path / "servers", source, target) as found:
        yield found


def test_the_rest_is_copied_after_the_statement(
    pair: tuple[Database, Database], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    make(source)
    pause = Pause(monkeypatch, "snapshot.before_commit", 4)
    with LaneRig(source, target, tmp_path, config_of(target, "watermark")) as rig:
        run = rig.begin(rig.config)
        pause.reached()
        before = loaded(target)
        source.execute(*writes(1), f"ALTER TABLE shard.t {_ADDED}", *writes(2))
        pause.release()
        source.execute(*writes(3))
        run.until_joined(target)
        run.stop()
        same(source, target)
        assert before <= loaded(target)
        assert pause.seen["copy.completed"] >= 1, "the copy was interrupted"
