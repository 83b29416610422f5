"""A worker's own folder: empty at its start, never another's."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from shardmerge.worker.core.spark.scratch_dir import ScratchDir


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    tempfile.tempdir = None


def _leave(path: Path) -> None:
    (path / "blockmgr-1").mkdir()
    (path / "blockmgr-1" / "block").touch()


def _die_with_it(end: Connection) -> None:
    scratch = ScratchDir("a")
    _leave(scratch.path)
    end.send(str(scratch.path))
    os._exit(9)


def test_what_a_killed_process_left_is_gone() -> None:
    made = multiprocessing.get_context("spawn")
    mine, its = made.Pipe()
    process = made.Process(target=_die_with_it, args=(its,))
    process.start()
    left = Path(mine.recv())
    process.join()
    assert (left / "blockmgr-1" / "block").exists()
    scratch = ScratchDir("a")
    assert scratch.path == left
    assert list(left.iterdir()) == []
    scratch.close()
    assert not left.exists()


def test_a_living_process_keeps_its_own() -> None:
    first = ScratchDir("a")
    _leave(first.path)
    second = ScratchDir("a")
    assert second.path != first.path
    assert (first.path / "blockmgr-1" / "block").exists()
    second.close()
    assert not second.path.exists()
    assert ScratchDir("b").path.parent == first.path.parent


def test_a_folder_of_another_user_is_not_used(temporary: Path) -> None:
    """The place where temporary files are is open to all users: a link there may lead anywhere."""
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (temporary / f"shardmerge-{os.getuid()}").symlink_to(elsewhere)
    scratch = ScratchDir("a")
    assert scratch.path.parent == temporary
    assert list(elsewhere.iterdir()) == []


def test_other_users_cannot_read_the_folder() -> None:
    scratch = ScratchDir("a")
    assert scratch.path.stat().st_mode & 0o077 == 0
    assert scratch.path.parent.stat().st_mode & 0o077 == 0
