"""Tests `dm-worker pack`: executors that have neither the environment nor its Python run a merge from the archive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pyspark
import pytest

from tests.support.cluster import Cluster
from tests.support.daemon import ROOT
from tests.support.mariadb import MariaDB
from tests.support.spark_cluster import SparkCluster
from tests.support.wait import until
from tests.support.world import Family
from tests.support.writer import Writer

pytestmark = [pytest.mark.spark, pytest.mark.clusters]

_HIDDEN = (str(ROOT), sys.prefix, sysconfig.get_path("stdlib"))
"""The checkout, the environment, and the modules of the Python on which the environment is based."""
_COMMAND = str(Path(sys.executable).parent / "dm-worker")


def _pack(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """``path``: a further folder of modules."""
    environment = os.environ if path is None else {**os.environ, "PYTHONPATH": str(path)}
    command = [_COMMAND, "pack", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)


def _without_environment(folder: Path) -> tuple[str, ...]:
    """Return the command that starts a process in a namespace where only ``folder``, Spark's own files, is left of the
    environment."""
    folder.mkdir()
    steps = [
        "mount --make-rprivate /",
        f"mount --bind {Path(pyspark.__file__).parent} {folder}",
        *(f"[ ! -d {hidden} ] || mount -t tmpfs tmpfs {hidden}" for hidden in _HIDDEN),
        'exec "$@"',
    ]
    return ("unshare", "-m", "sh", "-ec", "\n".join(steps), "sh")


def _program(process: psutil.Process) -> str:
    return os.readlink(f"/proc/{process.pid}/exe")


@pytest.mark.grid
@pytest.mark.skipif(os.getuid() != 0, reason="only root may hide the environment from other processes")
def test_executors_without_the_environment(
    tmp_path: Path,
    watch_logs: Callable[[Path], None],
    make_server: Callable[..., MariaDB],
    make_cluster: Callable[..., Cluster],
) -> None:
    archive = tmp_path / "environment.tar.gz"
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "module_of_a_user.py").touch()
    (modules / "secret.key").touch()
    config = tmp_path / "worker.yaml"
    config.write_text("transform-modules: [module_of_a_user]\n", encoding="utf-8")
    done = _pack("--config", str(config), "--module", "pluggy", "--output", str(archive), path=modules)
    assert done.returncode == 0, done.stderr
    assert f"spark.archives: {archive}#environment" in done.stdout
    with tarfile.open(archive) as packed:
        names = {Path(name).name for name in packed.getnames()}
        tops = {Path(name).parent.name for name in packed.getnames()}
    assert "module_of_a_user.py" in names
    assert {"pluggy", "shardmerge", "pyarrow"} <= tops
    # Installed here, but needed by nothing that is packed; files that no installation has listed.
    assert not tops & {"pytest", "pip"}
    assert not names & {"secret.key", "worker.yaml", "direct_url.json"}
    print(f"measured: {done.stdout.splitlines()[0]}")
    spark = SparkCluster(
        tmp_path / "spark", cores=(4,), home=tmp_path / "home", prefix=_without_environment(tmp_path / "home")
    )
    watch_logs(spark.directory)
    try:
        spark.start()
        settings = {
            **spark.settings,
            "spark.archives": f"{archive}#environment",
            "spark.pyspark.python": "./environment/bin/python",
        }
        source, target = make_server("source"), make_server("target")
        cluster = make_cluster(workers=1, worker_settings={"spark": settings})
        cluster.create_source("mysql-01", source)
        family = Family("packed", (("mysql-01", source),), target)
        with Writer(family.create(300), seed=11, pause_seconds=0.02) as writer:
            cluster.start_task(family.task())
            cluster.wait_replicating("packed")
            writer.go_on()
            processes = spark.workers[0].python_processes()
            assert processes
            for process in processes:
                assert _program(process).startswith(str(spark.directory)), _program(process)
                seen = Path(f"/proc/{process.pid}/root")
                assert not any(list((seen / hidden.lstrip("/")).glob("*")) for hidden in _HIDDEN)
            writer.stop()
        cluster.wait_caught_up("packed", {"mysql-01": source})
        verdict = family.verdict()
        assert verdict.differences == 0, verdict
        assert verdict.rows > 0
        assert cluster.workers[0].terminate() == 0
        until(lambda: not spark.workers[0].python_processes(), "the Python processes have ended", 60)
    finally:
        spark.stop()
        shutil.rmtree(spark.directory / "spark-worker-1", ignore_errors=True)


@pytest.mark.parametrize("place", [Path(sys.prefix) / "environment.tar.gz", ROOT / "worker" / "environment.tgz"])
def test_an_archive_within_the_environment_is_refused(place: Path) -> None:
    done = _pack("--output", str(place))
    assert done.returncode == 2, done.stderr
    assert "[70055 pack-output-refused]" in done.stderr
    assert "what to do:" in done.stderr
    assert not place.exists()


def test_the_help_names_the_command() -> None:
    done = subprocess.run([_COMMAND, "--help"], capture_output=True, text=True, check=True)
    assert "dm-worker pack --help" in " ".join(done.stdout.split())
