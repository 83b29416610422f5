"""The files of installed packages, and of modules that are installed without a package.

Of a package these are the files that its installation has listed: other files in the same folders are not read. Of an
editable package, and of a module without a package, they are the files with the suffixes of modules.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

from shardmerge.proto import errors
from shardmerge.worker.daemon.pack.archive import ArchiveEntry
from shardmerge.worker.daemon.pack.requirements import normal_name

_SUFFIXES = (".py", ".pyi", ".pxd", ".h", ".so", ".proto", ".typed")
_UNPACKED = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
"""Metadata that describe the place and the way of the installation."""
_OF_THE_JVM = tuple(
    f"pyspark/{name}/" for name in ("jars", "bin", "sbin", "data", "examples", "licenses", "python/lib")
)
"""What executors have from their Spark: two thirds of the environment."""


def installed() -> Mapping[str, Distribution]:
    """The installed packages by normal name; of two with one name, Python uses the first one."""
    found: dict[str, Distribution] = {}
    for each in distributions():
        found.setdefault(normal_name(each.metadata["Name"]), each)
    return found


def package_entries(name: str, package: Distribution, place: str) -> Iterator[ArchiveEntry]:
    """The files of a package. ``place``: the folder of packages in the archive. Raises PACK_PACKAGE_REFUSED."""
    files = package.files
    if files is None:
        raise errors.worker.PACK_PACKAGE_REFUSED(package=name, reason="its metadata do not list its files")
    is_editable = _is_editable(package)
    for file in files:
        path = PurePosixPath(file)
        in_metadata = path.parts[0].endswith((".dist-info", ".egg-info"))
        if path.is_absolute() or ".." in path.parts or "__pycache__" in path.parts:
            continue
        if (in_metadata and path.name in _UNPACKED) or (is_editable and not in_metadata):
            continue
        source = Path(str(package.locate_file(file)))
        if source.is_file() and not str(path).startswith(_OF_THE_JVM):
            yield ArchiveEntry(f"{place}/{path}", source)
    if is_editable:
        modules = (package.read_text("top_level.txt") or "").split()
        if not modules:
            reason = "it is an editable installation that does not name its modules (top_level.txt)"
            raise errors.worker.PACK_PACKAGE_REFUSED(package=name, reason=reason)
        for module in modules:
            yield from module_entries(module, place)


def _is_editable(package: Distribution) -> bool:
    text = package.read_text("direct_url.json")
    return text is not None and bool(json.loads(text).get("dir_info", {}).get("editable"))


def module_entries(name: str, place: str) -> Iterator[ArchiveEntry]:
    """The files of a module or package that Python imports as ``name``, at the top level. Raises
    PACK_PACKAGE_REFUSED."""
    found = importlib.util.find_spec(name)
    if found is None:
        raise errors.worker.PACK_PACKAGE_REFUSED(package=name, reason="it is not installed here")
    for folder in found.submodule_search_locations or ():
        for path in _module_files(Path(folder)):
            yield ArchiveEntry(f"{place}/{name}/{path.relative_to(folder).as_posix()}", path)
    if found.submodule_search_locations is None and found.origin is not None:
        yield ArchiveEntry(f"{place}/{Path(found.origin).name}", Path(found.origin))


def _module_files(top: Path) -> Iterator[Path]:
    # The package shardmerge of a checkout has links to its folders.
    for folder, folders, names in os.walk(top, followlinks=True):
        folders[:] = sorted(one for one in folders if one != "__pycache__" and not one.startswith("."))
        yield from (Path(folder) / name for name in names if name.endswith(_SUFFIXES) and not name.startswith("."))
