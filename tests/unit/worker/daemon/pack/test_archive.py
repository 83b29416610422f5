"""Archives: the same files give the same bytes; an archive that fails leaves the earlier one."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from shardmerge.worker.daemon.pack.archive import ArchiveEntry, compiled_name, write_archive


def _entries(folder: Path) -> list[ArchiveEntry]:
    folder.mkdir()
    (folder / "module.py").write_text("VALUE = 'of the module'\n", encoding="utf-8")
    return [
        ArchiveEntry("lib/module.py", folder / "module.py"),
        ArchiveEntry("bin/python", b"#!/bin/sh\n", is_executable=True),
        ArchiveEntry("lib/broken.py", b"def ("),
    ]


def test_the_same_files_give_the_same_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_archive(tmp_path / "a.tar.gz", _entries(tmp_path / "one"))
    os.utime(tmp_path / "one" / "module.py", (1, 1))
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    second = write_archive(tmp_path / "b.tar.gz", reversed(_entries(tmp_path / "two")))
    assert first == second
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        found = {member.name: member for member in archive.getmembers()}
    assert found.keys() == {"bin/python", "lib/broken.py", "lib/module.py", compiled_name("lib/module.py")}
    assert [found[name].mode for name in ("bin/python", "lib/module.py")] == [0o755, 0o644]
    assert {(member.uname, member.uid) for member in found.values()} == {("", 0)}
    other = write_archive(tmp_path / "c.tar.gz", [ArchiveEntry("lib/module.py", b"VALUE = 2\n")])
    assert other.digest != first.digest


def test_the_compiled_copy_is_used(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.tar.gz", _entries(tmp_path / "one"))
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        archive.extractall(tmp_path)
    # Python does not compile again: the text in its place would give another value.
    (tmp_path / "lib" / "module.py").write_text("VALUE = 'compiled again'\n", encoding="utf-8")
    program = f"import sys; sys.path.insert(0, {str(tmp_path / 'lib')!r}); import module; print(module.VALUE)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "of the module"


def test_a_failure_leaves_the_earlier_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    write_archive(path, _entries(tmp_path / "one"))
    before = path.read_bytes()
    with pytest.raises(FileNotFoundError):
        write_archive(path, [ArchiveEntry("lib/a.py", b""), ArchiveEntry("lib/module.py", tmp_path / "missing")])
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.tar.gz", "one"]


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    """It has the modules that transform-modules names, which may be secret."""
    path = tmp_path / "a.tar.gz"
    path.write_bytes(b"earlier")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        write_archive(path, _entries(tmp_path / "one"))
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_is_written_through_a_link_of_another_user(tmp_path: Path) -> None:
    """Its temporary name can be guessed, and the folder may be /tmp."""
    other = tmp_path / "other"
    other.write_text("kept")
    path = tmp_path / "a.tar.gz"
    (tmp_path / f".a.tar.gz.{os.getpid()}.partial").symlink_to(other)
    write_archive(path, _entries(tmp_path / "one"))
    assert other.read_text() == "kept"
    assert path.is_file() and not path.is_symlink()
