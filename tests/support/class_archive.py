"""``python -m tests.support.class_archive <folder>``: an archive of the classes that Spark's driver loads.

A JVM that maps it starts in half the processor time, and the tests start hundreds. Made once, in half a minute; prints
its path. A JVM that it does not fit goes without it by itself.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from worker.probe import ProbeTask
from worker.spark import SparkRunner
from worker.unit import StopSignal

_WRITING_SECONDS = 300.0


def _name() -> str:
    """Another JVM or another Spark has another archive."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    known = "\n".join((version, *(f"{jar} {jar.stat().st_mtime_ns}" for jar in jars)))
    return f"spark-{hashlib.sha256(known.encode()).hexdigest()[:16]}.jsa"


def provide(folder: Path) -> Path:
    """The archive's path in ``folder``; a run that ends early leaves none."""
    archive = folder / _name()
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "made.jsa"
            os.environ["SPARK_SUBMIT_OPTS"] = f'-XX:ArchiveClassesAtExit="{made}" -Xlog:disable'
            # What a worker does at its start; the JVM writes the archive when it ends.
            spark = SparkRunner({"spark.master": "local[2]"}, _WRITING_SECONDS, Path(scratch))
            spark.run("probe", 1, ProbeTask(), StopSignal())
            spark.stop()
            made.rename(archive)
    return archive


if __name__ == "__main__":
    print(provide(Path(sys.argv[1])))
