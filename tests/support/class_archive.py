"""Makes an archive of the classes that Spark's driver loads: ``python -m tests.support.class_archive <folder>``.

A JVM that maps the archive starts in half the processor time, and the tests start hundreds of them. The archive is made
once, in half a minute; the command prints its path. A JVM that the archive does not fit ignores it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_WRITING_SECONDS = 300.0


def _name() -> str:
    """Return a name that differs for each JVM and each Spark version."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    jars = sorted((Path(found.origin).parent / "jars").glob("*.jar"))
    known = "\n".join((version, *(f"{jar} {jar.stat().st_mtime_ns}" for jar in jars)))
    return f"spark-{hashlib.sha256(known.encode()).hexdigest()[:16]}.jsa"


def provide(folder: Path) -> Path:
    """Return the archive's path in ``folder``; a run that ends early leaves no archive."""
    archive = folder / _name()
    if not archive.exists():
        _make(archive)
    return archive


def _make(archive: Path) -> None:
    # Imported here: these imports take longer than everything else when the archive exists.
    from shardmerge.worker.binlog.decoder_probe import ProbeTask
    from shardmerge.worker.core.spark.runner import SparkRunner
    from shardmerge.worker.core.stop_signal import StopSignal

    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        made = Path(scratch) / "made.jsa"
        os.environ["SPARK_SUBMIT_OPTS"] = f'-XX:ArchiveClassesAtExit="{made}" -Xlog:disable'
        # The same calls as at a worker's start; the JVM writes the archive when it ends.
        spark = SparkRunner({"spark.master": "local[2]"}, _WRITING_SECONDS, Path(scratch))
        spark.run("probe", 1, ProbeTask(), StopSignal())
        spark.stop()
        made.rename(archive)


if __name__ == "__main__":
    print(provide(Path(sys.argv[1])))
