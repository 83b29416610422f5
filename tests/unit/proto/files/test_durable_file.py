"""Files written anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardmerge.proto.files.durable_file import (
    private_descriptor,
    private_folder,
    private_text,
    rewrite,
    tighten,
    write_durably,
)


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


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_what_is_made_is_its_owners_alone(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        deep = tmp_path / "a" / "b"
        private_folder(deep)
        private_folder(deep)
        os.close(private_descriptor(deep / "one", os.O_WRONLY))
        write_durably(deep / "two", b"x")
        private_text(deep / "three").close()
        private_text(deep / "four", append=True).close()
    finally:
        os.umask(before)
    assert {_mode(path) for path in (tmp_path / "a", deep)} == {0o700}
    assert {_mode(path) for path in deep.iterdir()} == {0o600}


def test_what_an_earlier_version_made_is_taken_from_others(tmp_path: Path) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir(mode=0o755)
    (folder / "inner").mkdir(mode=0o755)
    for path in (folder / "file", other):
        path.touch()
        path.chmod(0o644)
    (folder / "link").symlink_to(other)
    tighten(folder)
    assert (_mode(folder), _mode(folder / "file")) == (0o700, 0o600)
    assert (_mode(folder / "inner"), _mode(other)) == (0o755, 0o644)


def test_a_report_is_emptied_and_a_log_is_continued(tmp_path: Path) -> None:
    for name in ("report", "log"):
        (tmp_path / name).write_text("old\n")
        (tmp_path / name).chmod(0o640)
        with private_text(tmp_path / name, append=name == "log") as file:
            file.write("new\n")
    assert ((tmp_path / "report").read_text(), _mode(tmp_path / "report")) == ("new\n", 0o600)
    assert ((tmp_path / "log").read_text(), _mode(tmp_path / "log")) == ("old\nnew\n", 0o640)
