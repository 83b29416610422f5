"""Tests of which archive of Spark's classes a worker uses."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from shardmerge.worker.core.spark.class_archive import archive_name, find_archive, make_options, use_options
from shardmerge.worker.core.spark.jvm import Java, find_java


@pytest.fixture
def java(tmp_path: Path) -> Java:
    program = tmp_path / "jdk" / "bin" / "java"
    modules = tmp_path / "jdk" / "lib" / "modules"
    jar = tmp_path / "spark" / "jars" / "a.jar"
    for path in (program, modules, jar):
        path.parent.mkdir(parents=True)
        path.write_text("x")
    return Java(program, tmp_path / "spark")


@pytest.fixture
def archive(tmp_path: Path, java: Java) -> Path:
    folder = tmp_path / "archives"
    folder.mkdir(mode=0o700)
    found = folder / archive_name(java)
    found.touch(mode=0o600)
    return found


def test_the_first_folder_that_has_one(tmp_path: Path, java: Java, archive: Path) -> None:
    assert find_archive(java, [tmp_path / "missing", archive.parent]) == archive
    assert find_archive(java, []) is None


@pytest.mark.parametrize("changed", ["jdk/lib/modules", "jdk/bin/java", "spark/jars/a.jar", "spark/jars/b.jar"])
def test_another_jvm_or_other_jars(tmp_path: Path, java: Java, archive: Path, changed: str) -> None:
    (tmp_path / changed).write_text("other")
    assert find_archive(java, [archive.parent]) is None


def test_a_jdk_of_another_layout(java: Java, archive: Path) -> None:
    (java.program.parent.parent / "lib" / "modules").unlink()
    assert find_archive(java, [archive.parent]) is None


@pytest.mark.parametrize(("file", "folder"), [(0o660, 0o700), (0o602, 0o700), (0o600, 0o770), (0o600, 0o777)])
def test_one_that_others_may_have_written(java: Java, archive: Path, file: int, folder: int) -> None:
    archive.chmod(file)
    archive.parent.chmod(folder)
    assert find_archive(java, [archive.parent]) is None


def test_a_link_is_not_used(tmp_path: Path, java: Java, archive: Path) -> None:
    archive.rename(tmp_path / "elsewhere")
    archive.symlink_to(tmp_path / "elsewhere")
    assert find_archive(java, [archive.parent]) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_one_of_another_user(java: Java, archive: Path) -> None:
    os.chown(archive, 12345, -1)
    assert find_archive(java, [archive.parent]) is None


def test_a_jvm_ignores_one_that_does_not_fit_without_a_message(tmp_path: Path) -> None:
    real = find_java(os.environ)
    assert real is not None
    [jar] = (real.spark_home / "jars").glob("spark-launcher_*.jar")
    other = tmp_path / jar.name
    shutil.copy(jar, other)
    archive = tmp_path / "made.jsa"

    def run(jar: Path, options: Sequence[str]) -> str:
        line = [str(real.program), *options, "-cp", str(jar), "org.apache.spark.launcher.Main"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    run(jar, make_options(archive))
    assert archive.stat().st_size > 0
    without = run(jar, ())
    assert "Exception" in without
    assert run(jar, use_options(archive)) == without
    assert run(other, use_options(archive)) == run(other, ())
    archive.chmod(0o600)
    archive.write_bytes(b"no archive at all" * 1000)
    assert run(jar, use_options(archive)) == without
