"""The archive is private from its first byte on, replaces nothing, and is removed if it is not complete."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.ctl.bundle.archive import Archive
from tests.support.bundle import Bundle

_FOLDER = "shardmerge-support-x"


def test_the_files_are_in_one_folder(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    before = os.umask(0)
    try:
        with Archive(path, _FOLDER, 1_700_000_000.5) as archive:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            archive.add("README.md", b"index")
            archive.add("daemons/w 1/log.jsonl", b"")
    finally:
        os.umask(before)
    assert Bundle(path).files == {"README.md": b"index", "daemons/w 1/log.jsonl": b""}


def test_nothing_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_text("of another program")
    with pytest.raises(FileExistsError):
        Archive(path, _FOLDER, 0)
    assert path.read_text() == "of another program"
    dangling = tmp_path / "link"
    dangling.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        Archive(dangling, _FOLDER, 0)


def test_an_incomplete_archive_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    with pytest.raises(KeyboardInterrupt), Archive(path, _FOLDER, 0) as archive:
        archive.add("README.md", b"index")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Let no file of this process grow. Python ignores the signal, so that writing fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [10_000, 1_000_000])
def test_nothing_is_left_on_a_full_disk(tmp_path: Path, full_disk: None, size: int) -> None:
    with pytest.raises(OSError, match="too large"), Archive(tmp_path / "b.tar.gz", _FOLDER, 0) as archive:
        archive.add("a", os.urandom(size))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_if_closing_fails_after_another_error(tmp_path: Path, full_disk: None) -> None:
    with pytest.raises(KeyboardInterrupt), Archive(tmp_path / "b.tar.gz", _FOLDER, 0):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
