"""Uses a wheel in an environment of its own: ``python -m tests.support.wheel_in_use <wheel> <folder>``.

The environment also has packages whose import names were once the project's. The program installs the wheel with
proto-plus and a Google client library that uses it, checks what each name imports, and merges a table with the commands
of that environment (tests/support/merge_with_wheel.py). The packages that the wheel needs come from the environment
that runs this: installing Spark again would take minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

_CLIENT_LIBRARY = "google-cloud-kms"
_HERE = Path(__file__).resolve().parent


def _install(wheel: Path, folder: Path) -> Path:
    """Install the wheel; return the environment's Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
    # Searched after the environment's own packages. Python ignores .pth files in a folder that a .pth file names: the
    # project's editable install is not visible.
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (own / "packages-of-the-tests.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    subprocess.run([*pip, _CLIENT_LIBRARY], check=True)
    return python


def main(wheel: Path, folder: Path) -> int:
    python = _install(wheel, folder / "venv")
    # A copy of the tests' modules: neither the checkout nor the working directory is on the path.
    tests = folder / "path" / "tests"
    shutil.copytree(_HERE, tests / "support", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        [str(python), "-m", "tests.support.merge_with_wheel", str(folder / "servers")],
        cwd=folder / "path",
        env=environment,
        check=False,
    )
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
