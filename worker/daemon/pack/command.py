"""The command line of ``dm-worker pack``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NoReturn

import click

import shardmerge
from shardmerge.proto import errors
from shardmerge.proto.config.daemon.daemon_file import load_daemon
from shardmerge.proto.config.daemon.model import WorkerFile
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.daemon.pack.archive import ArchiveEntry, write_archive
from shardmerge.worker.daemon.pack.interpreter import interpreter_entries, own_modules, packages_place
from shardmerge.worker.daemon.pack.packages import installed, module_entries, package_entries
from shardmerge.worker.daemon.pack.requirements import needed

_SUFFIXES = (".tar.gz", ".tgz")
"""By these Spark knows how to unpack a file."""
_MIB = 1 << 20


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--output", required=True, type=click.Path(path_type=Path), help="The archive to write: a file *.tar.gz or *.tgz."
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The worker's file. Only transform-modules is read: these modules are packed, too.",
)
@click.option(
    "--module", "modules", multiple=True, help="A further Python module to pack, with the package that has it."
)
def pack(output: Path, config: Path | None, modules: Sequence[str]) -> None:
    """Make an archive of this environment for Spark's executors: Python, shardmerge and all packages that it needs.

    Set the two lines that it prints under `spark` in the worker's file. The archive has no configuration and no secret
    of the program. Only its owner may read it: if dm-worker runs as another user, change the owner (chown).
    """
    try:
        allowed = () if config is None else load_daemon(WorkerFile, config, {}).model.transform_modules
        check_output(output)
        entries, packages = _contents((*allowed, *modules))
    except ShardmergeError as error:
        _fail(error, 2)
    except (OSError, subprocess.SubprocessError) as error:
        _fail(errors.worker.PACK_FAILED(path=output, reason=error), 1)
    try:
        written = write_archive(output, entries)
    except OSError as error:
        _fail(errors.worker.PACK_FAILED(path=output, reason=error), 1)
    python = ".".join(map(str, sys.version_info[:3]))
    click.echo(
        f"{output}: {written.size / _MIB:.0f} MiB, {written.files} files: Python {python}, "
        f"{len(packages)} packages\n"
        f"sha256 of the contents: {written.digest}\n\n"
        f"spark:\n  spark.archives: {output.resolve()}#environment\n  spark.pyspark.python: ./environment/bin/python"
    )


def check_output(output: Path) -> None:
    """Raises PACK_OUTPUT_REFUSED."""
    if not output.name.endswith(_SUFFIXES):
        raise errors.worker.PACK_OUTPUT_REFUSED(path=output, reason=f"its name must end with {' or '.join(_SUFFIXES)}")
    if output.is_dir() or not output.parent.is_dir():
        raise errors.worker.PACK_OUTPUT_REFUSED(path=output, reason="it must be a file in an existing folder")
    place = output.resolve()
    for folder in _packed_folders():
        if place.is_relative_to(folder):
            raise errors.worker.PACK_OUTPUT_REFUSED(path=output, reason=f"it is within {folder}, which is packed")


def _contents(modules: Iterable[str]) -> tuple[tuple[ArchiveEntry, ...], list[str]]:
    """The files of the archive, and the names of its packages: Python, shardmerge with what it needs, and ``modules``,
    names as Python imports them. Raises PACK_PACKAGE_REFUSED, OSError and subprocess.SubprocessError."""
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
    return tuple({entry.name: entry for entry in entries}.values()), packages


def _packed_folders() -> tuple[Path, ...]:
    """The folders from which files are packed: an archive within them would be lost with the environment."""
    environment = [Path(sys.prefix)] if sys.prefix != sys.base_prefix else []
    package = [Path(folder) for folder in shardmerge.__path__]
    # The package of a checkout has links to its folders.
    linked = [path for folder in package for path in folder.iterdir() if path.is_dir()]
    return tuple(path.resolve() for path in (*environment, own_modules(), *package, *linked))


def _fail(error: ShardmergeError, code: int) -> NoReturn:
    click.echo(f"error: {error}\n       what to do: {error.workaround}", err=True)
    sys.exit(code)
