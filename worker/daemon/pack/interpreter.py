"""The files of the Python that runs dm-worker: its executable, its shared library and its own modules.

An environment (venv) has only links to them. The archive has copies, so that it needs no Python on the executors'
machines: Python finds its modules relative to its executable.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from shardmerge.worker.daemon.pack.archive import ArchiveEntry

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_UNUSED = frozenset(
    {"test", "idlelib", "turtledemo", "tkinter", "lib2to3", "ensurepip", "site-packages", "dist-packages"}
)
"""Folders of Python's own modules that a server does not need, or that have packages."""
_START = f"""\
#!/bin/sh
# The shared library of Python is in lib; without PYTHONNOUSERSITE packages in the home folder of the user would count.
top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd -P) || exit 1
LD_LIBRARY_PATH=$top/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}
PYTHONNOUSERSITE=1
export LD_LIBRARY_PATH PYTHONNOUSERSITE
exec "$top/libexec/{VERSION}" "$@"
"""
_SITE = "import site; print(site.getsitepackages(['/top'])[0])"


def executable() -> Path:
    """The Python of which the environment is one."""
    return Path(os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable))


def own_modules() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def packages_place() -> str:
    """Where in the archive this Python searches packages: Debian's Python has another place than others. Raises
    OSError and subprocess.SubprocessError."""
    done = subprocess.run([str(executable()), "-I", "-c", _SITE], capture_output=True, text=True, check=True)
    return done.stdout.strip().removeprefix("/top/")


def interpreter_entries() -> Iterator[ArchiveEntry]:
    """Raises OSError."""
    yield ArchiveEntry("bin/python", _START.encode(), is_executable=True)
    yield ArchiveEntry(f"libexec/{VERSION}", executable(), is_executable=True)
    library = _shared_library()
    if library is not None:
        yield ArchiveEntry(f"lib/{sysconfig.get_config_var('INSTSONAME') or library.name}", library)
    place = f"{sys.platlibdir}/{VERSION}"
    modules = own_modules()
    extensions = Path(sys.base_exec_prefix) / sys.platlibdir / VERSION / "lib-dynload"
    yield from _files(modules, place)
    if extensions.parent != modules and extensions.is_dir():
        yield from _files(extensions, f"{place}/lib-dynload")


def _files(top: Path, place: str) -> Iterator[ArchiveEntry]:
    for folder, folders, names in os.walk(top):
        if Path(folder) == top:
            folders[:] = [one for one in folders if one not in _UNUSED and not one.startswith("config-")]
        folders[:] = sorted(one for one in folders if one != "__pycache__")
        for name in names:
            path = Path(folder) / name
            if path.is_file():
                yield ArchiveEntry(f"{place}/{path.relative_to(top).as_posix()}", path)


def _shared_library() -> Path | None:
    """The library that has Python's code; None: it is in the executable."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.partition("/")[2]
        if path.rpartition("/")[2].startswith("libpython"):
            return Path(f"/{path}")
    return None
