"""The digest of the sources: another source has another digest, files that are made from sources do not count."""

from __future__ import annotations

import platform
from pathlib import Path

from shardmerge.worker.core.spark.build import digest_of, own_versions


def _package(folder: Path) -> Path:
    (folder / "worker" / "core").mkdir(parents=True)
    (folder / "proto").mkdir()
    (folder / "worker" / "core" / "batch.py").write_text("one = 1\n")
    (folder / "proto" / "relay.proto").write_text("message Block {}\n")
    return folder


def test_another_source_has_another_digest(tmp_path: Path) -> None:
    package = _package(tmp_path)
    before = digest_of(str(package))
    (package / "worker" / "core" / "batch.cpython-311-x86_64-linux-gnu.so").write_bytes(b"compiled")
    (package / "proto" / "relay_pb2.py").write_text("generated = True\n")
    assert digest_of(str(package)) == before
    (package / "worker" / "core" / "batch.py").write_text("one = 2\n")
    changed = digest_of(str(package))
    assert changed != before
    (package / "worker" / "core" / "batch.py").rename(package / "worker" / "batch.py")
    assert digest_of(str(package)) not in (before, changed)


def test_own_versions() -> None:
    found = own_versions()
    assert list(found) == ["Python", "pyspark", "pyarrow", "shardmerge"]
    assert platform.python_version().startswith(found["Python"])
    assert " (sources " in found["shardmerge"]
