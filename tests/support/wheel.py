"""Inspects a built wheel: stubs, compiled decoder, commands; then imports from it alone.

Run by tests/run.sh: ``python tests/support/wheel.py dist/shardmerge-….whl``.
"""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def expected_files() -> list[str]:
    """Return the paths that the source tree requires in the wheel."""
    stubs = [
        f"shardmerge/proto/{proto.stem}_{suffix}"
        for proto in (ROOT / "proto").glob("*.proto")
        for suffix in ("pb2.py", "pb2.pyi", "pb2_grpc.py", "pb2_grpc.pyi")
    ]
    extension = importlib.machinery.EXTENSION_SUFFIXES[0]
    compiled = [
        f"shardmerge/{module.relative_to(ROOT).with_suffix('')}{extension}"
        for module in (ROOT / "worker").rglob("*.py")
        if "# cython: language_level=3" in module.read_text(encoding="utf-8")[:400]
    ]
    sources = [
        f"shardmerge/{module.relative_to(ROOT)}"
        for package in ("proto", "master", "worker", "ctl")
        for module in (ROOT / package).rglob("*.py")
    ]
    return sorted({*stubs, *compiled, *sources})


def main(wheel: Path) -> int:
    with zipfile.ZipFile(wheel) as archive:
        present = set(archive.namelist())
        missing = [name for name in expected_files() if name not in present]
        for name in missing:
            print(f"not in the wheel: {name}", file=sys.stderr)
        if missing:
            return 1
        with tempfile.TemporaryDirectory() as unpacked:
            archive.extractall(unpacked)
            imports = "; ".join(
                ["from shardmerge import proto", f"assert proto.__file__.startswith({unpacked!r}), proto.__file__"]
                + [f"import shardmerge.proto.{proto.stem}_pb2_grpc" for proto in (ROOT / "proto").glob("*.proto")]
            )
            # -P: do not import from the source tree, which is the current directory.
            ended = subprocess.run(
                [sys.executable, "-P", "-c", imports],
                env={**os.environ, "PYTHONPATH": unpacked},
                check=False,
            )
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
