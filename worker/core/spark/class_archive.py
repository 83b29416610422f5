"""The archive of the classes that Spark's driver loads: a JVM that maps it starts in half the processor time.

The JVM ignores an archive that does not fit it (another version, other jars), without a message. ``dm-worker prepare``
and, in the background, every worker without an archive make it: worker/daemon/prepare.py.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from shardmerge.worker.core.spark.jvm import Java

_SHARED_WITH_OTHERS = 0o022
_QUIET = "-Xlog:cds*=off,class+path=off"


def installed_folder() -> Path:
    """The folder of this Python environment for an archive: a package or an image has it."""
    return Path(sys.prefix) / "share" / "shardmerge"


def own_folder(relay_dir: str) -> Path:
    """The folder of a worker for an archive that it makes by itself."""
    return Path(relay_dir) / ".spark-classes"


def archive_name(java: Java) -> str:
    """A name that differs for each JVM and each set of jars. Raises OSError."""
    program = java.program.resolve()
    parts = [program, program.parent.parent / "lib" / "modules", *sorted((java.spark_home / "jars").glob("*.jar"))]
    known = "\n".join(f"{part} {_stamp(part)}" for part in parts)
    return f"spark-{hashlib.sha256(known.encode()).hexdigest()[:16]}.jsa"


def find_archive(java: Java, folders: Iterable[Path]) -> Path | None:
    """The archive for this JVM. One that another user than root can have written is not used: its code would run."""
    try:
        name = archive_name(java)
        return next((each / name for each in folders if _is_trusted(each / name)), None)
    except OSError:
        return None


def use_options(archive: Path | None) -> tuple[str, ...]:
    """The JVM's options to start with the archive."""
    return () if archive is None else (_QUIET, "-Xshare:auto", f"-XX:SharedArchiveFile={archive}")


def make_options(archive: Path) -> tuple[str, ...]:
    """The JVM's options to write the archive when it ends. Nothing else is changed that decides what fits."""
    return ("-Xlog:disable", f"-XX:ArchiveClassesAtExit={archive}")


def _stamp(path: Path) -> str:
    found = path.stat()
    return f"{found.st_size} {int(found.st_mtime)}"  # layers of images keep no fractions of a second


def _is_trusted(path: Path) -> bool:
    """Whether this is a file that only this user or root can have written or replaced."""
    try:
        file, folder = path.lstat(), path.parent.lstat()
    except FileNotFoundError:
        return False
    owners = {0, os.getuid()}
    return (
        stat.S_ISREG(file.st_mode)
        and stat.S_ISDIR(folder.st_mode)
        and all(each.st_uid in owners and not each.st_mode & _SHARED_WITH_OTHERS for each in (file, folder))
    )
