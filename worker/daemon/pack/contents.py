"""All files of the archive: Python, the package shardmerge with what it needs, and the modules of transforms."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path

import shardmerge
from shardmerge.worker.daemon.pack.archive import Entry
from shardmerge.worker.daemon.pack.interpreter import interpreter_entries, own_modules, packages_place
from shardmerge.worker.daemon.pack.packages import installed, module_entries, package_entries
from shardmerge.worker.daemon.pack.requirements import needed


@dataclass(frozen=True, slots=True)
class Contents:
    """``packages``: their names."""

    entries: tuple[Entry, ...]
    packages: tuple[str, ...]


def contents_for(modules: Iterable[str]) -> Contents:
    """``modules``: names of further modules, as Python imports them. Raises PACK_PACKAGE_REFUSED, OSError and
    subprocess.SubprocessError."""
    place = packages_place()
    known = installed()
    owners = packages_distributions()
    tops = sorted({name.partition(".")[0] for name in modules} - sys.stdlib_module_names)
    roots = ["shardmerge", *(owner for top in tops for owner in owners.get(top, ()))]
    packages = sorted(needed(roots, {name: each.requires or () for name, each in known.items()}))
    entries = list(interpreter_entries())
    for name in packages:
        entries += package_entries(name, known[name], place)
    for top in tops:
        if top not in owners:
            entries += module_entries(top, place)
    return Contents(tuple({entry.name: entry for entry in entries}.values()), tuple(packages))


def packed_folders() -> tuple[Path, ...]:
    """The folders from which files are packed: an archive within them would be lost with the environment."""
    environment = [Path(sys.prefix)] if sys.prefix != sys.base_prefix else []
    package = [Path(folder) for folder in shardmerge.__path__]
    # The package of a checkout has links to its folders.
    linked = [path for folder in package for path in folder.iterdir() if path.is_dir()]
    return tuple(path.resolve() for path in (*environment, own_modules(), *package, *linked))
