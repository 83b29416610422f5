"""Tests that rows which foreign keys change by cascade are derived at the target: in the stream and during the copy."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.worker.unit.contract import Failed
from tests.integration.cascade_tables import FamilyWriter, differences, family_config, make_family
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_tables import source, target
from tests.support.database import Database
from tests.support.hooks import Hooks
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.wait import until

pytestmark = pytest.mark.turns

__all__ = ["source", "target"]

SOURCES = {
    "mariadb": (MariaDB, ()),
    "mysql": (MySQL, ("--innodb-native-foreign-keys=ON",)),
    "mysql, logged": (MySQL, ()),
}
LOGGED = "mysql, logged"
"""This server logs the rows that a key changes. It logs a row twice that refers to itself over other rows."""


@pytest.fixture(scope="module", params=["mariadb", "mysql", pytest.param(LOGGED, marks=pytest.mark.grid)])
def servers(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Database, Database]]:
    """Provide a source and a target. They are the module's own: the source has an option that others do not have."""
    kind, options = SOURCES[request.param]
    folder = tmp_path_factory.mktemp("cascades")
    source, target = kind(folder / "source", 101, options), kind(folder / "target", 102)
    try:
        yield source.start(), target.start()
    finally:
        source.stop()
        target.stop()


@pytest.fixture
def is_logged(request: pytest.FixtureRequest) -> bool:
    return request.node.callspec.params["servers"] == LOGGED


def until_equal(run: Run, source: Database, target: Database) -> None:
    run.until_joined(target)
    assert differences(source, target) == []


def test_cascades_in_the_stream_and_during_the_copy(
    source: Database, target: Database, tmp_path: Path, is_logged: bool
) -> None:
    make_family(source)
    with FamilyWriter(source, cycles=not is_logged) as writer:
        until(lambda: writer.transactions > 300, "there is some history")
        with LaneRig(source, target, tmp_path, family_config(target, threads=3, chunk_rows=5)) as rig:
            rig.config.replicate.lanes = 3
            run = rig.begin(rig.config)
            begun = writer.transactions
            until(lambda: run.ended or writer.transactions > begun + 1500, "many changes", 120)
            writer.stop()
            until_equal(run, source, target)
            run.stop()


LANES = 2
FAMILY_LANE = zlib.crc32(b"`merged`.`c`") % LANES
MOMENTS = (
    "snapshot.before_commit",
    "snapshot.after_commit",
    f"lane{FAMILY_LANE}.before_derived",
    f"lane{FAMILY_LANE}.before_commit",
)


def test_interruptions_of_the_copy_and_of_the_stream(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_logged: bool
) -> None:
    """A run ends around the COMMIT of a chunk, after the change of a parent, and before a lane's COMMIT, under load."""
    hooks = Hooks(tmp_path / "hooks")
    monkeypatch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
    make_family(source)
    writer = FamilyWriter(source, threads=2, pause=0.02, cycles=not is_logged)
    with writer, LaneRig(source, target, tmp_path, family_config(target, threads=2, chunk_rows=20)) as rig:
        until(lambda: writer.transactions > 100, "there is some history")
        rig.config.replicate.lanes = LANES
        for moment in MOMENTS:
            if is_logged and "derived" in moment:
                continue  # nothing is derived
            hooks.fail(moment)
            outcome = rig.begin(rig.config).join(120)
            assert isinstance(outcome, Failed)
            assert moment in str(outcome.error)
            hooks.release(moment)
        run = rig.begin(rig.config)
        writer.stop()
        until_equal(run, source, target)
        run.stop()
