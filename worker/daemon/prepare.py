"""Makes the archive of Spark's classes with which workers start faster: ``dm-worker prepare``, and in the background.

A process of its own starts a Spark driver as a worker does, runs the first task of a worker, and ends: then its JVM
writes the archive. It has no time limit, gets only processor time that others leave, and ends with the process that
waits for it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import NoReturn

import click

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.files.durable_file import PRIVATE_FILE, private_descriptor, private_folder
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.spark.begin import begin_driver
from shardmerge.worker.core.spark.class_archive import archive_name, find_archive, installed_folder, make_options
from shardmerge.worker.core.spark.jvm import find_java
from shardmerge.worker.core.spark.scratch_dir import ScratchDir

log = get_logger()

_SETTINGS = {"spark.master": "local[2]"}
_MAKING = "making"
_LOCK = "lock"
_WITHOUT_LIMIT = 86400.0
_LOWEST_PRIORITY = 19
_AUTOGROUP = Path("/proc/self/autogroup")
_PR_SET_PDEATHSIG = 1
_READABLE_FILE, _READABLE_FOLDER = 0o644, 0o755
_QUIET_SECONDS = 60.0
"""A worker that has just started copies, or catches up. Most workers of tests have ended by then."""


class NotPrepared(Exception):
    """There is no archive. The text is the reason."""


def make_archive(folder: Path) -> Path:
    """Make the archive for this machine's JVM in ``folder``, unless it exists; older ones are removed.

    Only the main thread of a process without other work may call it. Raises NotPrepared, OSError, and what the start of
    Spark raises.
    """
    java = find_java(os.environ)
    if java is None:
        raise NotPrepared("no Java was found: set JAVA_HOME, or install a Java runtime of version 17 or newer")
    is_shared = folder == installed_folder()
    if is_shared:
        folder.mkdir(mode=_READABLE_FOLDER, parents=True, exist_ok=True)
    else:
        private_folder(folder)
    archive = folder / archive_name(java)
    with os.fdopen(private_descriptor(folder / _LOCK, os.O_WRONLY), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if find_archive(java, [folder]) is not None:
            return archive
        making = folder / _MAKING
        shutil.rmtree(making, ignore_errors=True)  # of a process that was killed
        making.mkdir(mode=0o700)
        try:
            with closing(ScratchDir(str(making.resolve()))) as scratch:
                _write(making / archive.name, scratch)
            (making / archive.name).chmod(_READABLE_FILE if is_shared else PRIVATE_FILE)
            for old in folder.glob("spark-*.jsa"):
                old.unlink()
            (making / archive.name).rename(archive)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    if find_archive(java, [folder]) is None:
        raise NotPrepared(f"workers would not use {archive}: another user may write to its folder")
    return archive


def _write(archive: Path, scratch: ScratchDir) -> None:
    begun = begin_driver(_SETTINGS, scratch, options=lambda _: make_options(archive), in_child=_end_with_parent)
    if begun.jvm is None:
        raise NotPrepared("the configuration of Spark on this machine needs Spark's own scripts for the start")
    # These imports take longer than everything else when the archive exists.
    from shardmerge.worker.binlog.decoder_probe import ProbeTask
    from shardmerge.worker.core.spark.runner import SparkRunner
    from shardmerge.worker.core.stop_signal import StopSignal

    spark = SparkRunner(begun.settings, begun.jvm, _WITHOUT_LIMIT)
    spark.run("probe", 1, ProbeTask(), StopSignal())
    spark.stop()
    if not archive.exists():
        raise NotPrepared(f"the JVM has written no archive (its exit code is {begun.jvm.process.returncode})")


def _end_with_parent() -> None:
    """Let the system kill this process when the thread that has started it ends (prctl(2)); Linux only."""
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _give_way() -> None:
    """Let this process and its children run only while nothing else wants a processor.

    Linux compares nice values within a session only where it groups processes by session (sched(7), "The autogroup
    feature"). So this one gets a session of its own, and that session the lowest weight."""
    os.nice(_LOWEST_PRIORITY)
    os.setsid()
    with suppress(OSError):  # no such feature
        _AUTOGROUP.write_text(str(_LOWEST_PRIORITY))


def make_in_background(folder: Path) -> None:
    """Make the archive in ``folder`` when this process has run for a minute, in another process. That one ends with
    this one at the latest, and at once when this one kills its children."""
    threading.Thread(target=_make_elsewhere, args=(folder,), name="class-archive", daemon=True).start()


def _make_elsewhere(folder: Path) -> None:
    time.sleep(_QUIET_SECONDS)
    command = [sys.executable, "-m", __name__, "--folder", str(folder), "--parent", str(os.getpid())]
    try:
        made = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        log.warning("no archive of Spark's classes: later starts take longer", reason=str(error))
        return
    if made.returncode == 0:
        log.info("archive of Spark's classes made: later starts are faster", path=made.stdout.strip())
    elif made.returncode > 0:  # not killed, as at the end of the worker
        reason = (made.stderr.strip().splitlines() or [f"exit code {made.returncode}"])[-1]
        log.warning("no archive of Spark's classes: later starts take longer", reason=reason)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Where it is kept; by default where workers look first."
)
@click.option("--parent", type=int, default=0, hidden=True)
def prepare(folder: Path | None, parent: int) -> None:
    """Make the archive of Spark's classes, with which each worker of this environment starts in half the time.

    Packages and images call it once. A worker without it makes one for itself, beside its relay log.
    """
    if parent:
        _end_with_parent()
        if os.getppid() != parent:
            sys.exit(1)
        _give_way()
    try:
        click.echo(make_archive(installed_folder() if folder is None else folder))
    except (NotPrepared, OSError, ShardmergeError) as error:
        _fail(error)


def _fail(error: Exception) -> NoReturn:
    click.echo(f"error: no archive of Spark's classes: {error}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    prepare()
