"""Files written anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proto.durable import rewrite


def test_mode_and_links_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "merge.yaml", tmp_path / "current"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    rewrite(str(link), "né")
    assert file.read_bytes() == "né".encode()
    assert file.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["current", "merge.yaml"]


def test_a_disk_without_space_leaves_the_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "merge.yaml"
    file.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        rewrite(str(file), "new")
    assert file.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["merge.yaml"]


def test_what_an_end_in_between_left_is_no_obstacle(tmp_path: Path) -> None:
    file = tmp_path / "merge.yaml"
    file.write_text("old")
    (tmp_path / "merge.yaml.new").write_text("half")
    rewrite(str(file), "new")
    assert file.read_text() == "new"


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rewrite(str(tmp_path / "gone"), "new")
    assert not [*tmp_path.iterdir()]
