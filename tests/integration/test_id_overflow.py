"""Tests an id without room in `partition id` during a copy: the task stops, names the row, and resumes when it fits.

The same for the stream is in tests/integration/test_faults.py; the pre-check is there and in test_check_items.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.worker.unit.contract import Failed, Finished, Outcome
from tests.integration.snapshot_rig import Rig, held_at
from tests.integration.snapshot_tables import make_tables, merging, servers, source, target
from tests.support.database import Database
from tests.support.hooks import Hooks

__all__ = ["servers", "source", "target"]

_BASE = 1 << 59 | 1 << 52 | 1 << 44
"""The first merged id of instance 1, schema shard_1, table t_1."""


def _make(source: Database, *statements: str) -> None:
    make_tables(
        source,
        "CREATE TABLE shard_1.t_1 (id BIGINT PRIMARY KEY, v INT)",
        f"INSERT INTO shard_1.t_1 VALUES (0, 1), (7, 2), ({(1 << 44) - 1}, 3)",
        *statements,
        schema="shard_1",
    )


def _tells(outcome: Outcome, number: int) -> None:
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.config.ID_OVERFLOW
    assert not outcome.error.spec.retryable
    values = outcome.error.values
    assert (values["schema"], values["table"], values["column"]) == ("shard_1", "t_1", "id")
    assert (values["value"], values["bits"]) == (str(number), "44")


@pytest.mark.parametrize("position", ["auto", "watermark"])
@pytest.mark.parametrize("number", [1 << 44, -1], ids=["too large", "negative"])
def test_in_a_chunk(source: Database, target: Database, tmp_path: Path, number: int, position: str) -> None:
    _make(source, f"INSERT INTO shard_1.t_1 VALUES ({number}, 4)")
    with Rig(source, target, tmp_path, merging(target, threads=1, position=position)) as rig:
        _tells(rig.run(), number)
        assert target.query("SELECT * FROM merged.t") == [], "the chunk is written whole or not at all"
        source.execute(f"UPDATE shard_1.t_1 SET id = 8 WHERE id = {number}")
        assert rig.run() == Finished()
    found = target.query("SELECT id, v FROM merged.t ORDER BY v")
    assert found == [(_BASE, 1), (_BASE + 7, 2), (_BASE + (1 << 44) - 1, 3), (_BASE + 8, 4)]


def test_in_what_changes_while_a_chunk_is_read(source: Database, target: Database, tmp_path: Path) -> None:
    """The chunk's rows fit; the fix-up finds a row that does not."""
    _make(source)
    hooks = Hooks(tmp_path / "hooks")
    with Rig(source, target, tmp_path, merging(target, threads=1, position="watermark")) as rig:
        with held_at("snapshot.after_select", rig, hooks) as outcome:
            source.execute(f"INSERT INTO shard_1.t_1 VALUES ({1 << 44}, 4)")
        _tells(outcome[0], 1 << 44)
        assert target.query("SELECT * FROM merged.t") == []
