"""A worker's own folder: empty at its start, never another's."""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.spark import scratch_dir
from shardmerge.worker.core.spark.scratch_dir import ScratchDir


def _use(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make this the folder for temporary files."""
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    _use(monkeypatch, tmp_path)
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


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for those sockets that have no place in the folder for temporary files."""
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/tmp") as folder:
        monkeypatch.setattr(scratch_dir, "_SHORT_PLACE", Path(folder))
        yield Path(folder)


@pytest.mark.parametrize("length", [1, 100])
def test_a_socket_has_a_place_in_a_private_folder(
    temporary: Path, short: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    place = temporary / ("x" * length) if length > 1 else short
    place.mkdir(exist_ok=True)
    _use(monkeypatch, place)
    scratch = ScratchDir("a")
    assert (scratch.sockets == scratch.path) is (length == 1)
    assert scratch.path.is_relative_to(place)
    assert scratch.sockets.is_relative_to(short)
    assert scratch.sockets.stat().st_mode & 0o077 == 0
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(scratch.sockets / f".{uuid.uuid4()}.sock"))
    sockets = scratch.sockets
    scratch.close()
    assert not sockets.exists()


def test_sockets_of_a_killed_worker_are_removed(temporary: Path, short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = temporary / ("x" * 100)
    place.mkdir()
    _use(monkeypatch, place)
    scratch = ScratchDir("a")
    scratch.close()
    scratch.sockets.mkdir()
    left = scratch.sockets / ".left.sock"
    left.touch()
    assert ScratchDir("a").sockets == scratch.sockets
    assert not left.exists()


def test_no_place_for_sockets(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = temporary / ("x" * 100)
    place.mkdir()
    _use(monkeypatch, place)
    monkeypatch.setattr(scratch_dir, "_SHORT_PLACE", temporary / "missing")
    with pytest.raises(ShardmergeError) as caught:
        ScratchDir("a")
    assert caught.value.spec is errors.worker.SPARK_START_FAILED
    assert "TMPDIR" in caught.value.message
