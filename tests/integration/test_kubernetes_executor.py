"""Tests that the entry point of the Kubernetes image starts an executor that runs tasks.

The driver is that of a standalone cluster without workers: an executor registers with it as it does with a driver of
Kubernetes. `bash tests/run.sh clusters` runs it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark
import pytest

from tests.support.daemon import ROOT
from tests.support.spark_cluster import SECRET, SparkCluster
from tests.support.wait import until

pytestmark = [pytest.mark.grid, pytest.mark.spark, pytest.mark.clusters]

_DRIVER = """\
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master(sys.argv[1])
for key, value in {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.authenticate": "true",
    "spark.authenticate.secret": sys.argv[2],
    "spark.scheduler.minRegisteredResourcesRatio": "0",
}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
context = spark.sparkContext
print(context.getConf().get("spark.driver.port"), context.applicationId)
# The driver completes this setting by the options that Spark needs on Java 17.
print(context.getConf().get("spark.executor.extraJavaOptions"), flush=True)


def tell(batches):
    for batch in batches:
        yield batch


print(spark.range(0, 4, 1, 2).mapInArrow(tell, "id long").count(), flush=True)
spark.stop()
"""


def test_executor_of_the_image_runs_tasks(tmp_path: Path) -> None:
    cluster = SparkCluster(tmp_path / "spark", cores=()).start()
    printed, executor_log = tmp_path / "driver.out", tmp_path / "executor.log"
    started: list[subprocess.Popen[bytes]] = []

    def start(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=tmp_path,
                env={**os.environ, "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={tmp_path}", **environment},
                stdout=file,
                start_new_session=True,
            )
        started.append(process)
        return process

    def lines() -> list[str]:
        return printed.read_text(encoding="utf-8").splitlines()

    try:
        driver = start(
            [sys.executable, "-c", _DRIVER, cluster.url, SECRET], printed, {"PYSPARK_PYTHON": sys.executable}
        )
        until(lambda: len(lines()) >= 2 or driver.poll() is not None, "the driver has started")
        assert driver.poll() is None
        [port, application], options = lines()[0].split(), shlex.split(lines()[1])
        executor = start(
            [str(ROOT / "deploy" / "kubernetes" / "executor.sh"), "executor"],
            executor_log,
            {
                "SPARK_HOME": str(Path(pyspark.__file__).parent),
                **{f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(options)},
                # Spark passes such settings as options, and the secret in a variable.
                f"SPARK_JAVA_OPT_{len(options)}": "-Dspark.authenticate=true",
                "_SPARK_AUTH_SECRET": SECRET,
                "SPARK_EXECUTOR_MEMORY": "512m",
                "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
                "SPARK_EXECUTOR_ID": "1",
                "SPARK_EXECUTOR_CORES": "2",
                "SPARK_APPLICATION_ID": application,
                "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
                "SPARK_RESOURCE_PROFILE_ID": "0",
                "SPARK_EXECUTOR_POD_NAME": "shardmerge-exec-1",
            },
        )

        until(lambda: driver.poll() is not None or executor.poll() is not None, "a process has ended")
        assert driver.wait(120) == 0, executor_log.read_text(encoding="utf-8", errors="replace")[-3000:]
        assert lines()[2:] == ["4"]
        until(lambda: executor.poll() is not None, "the executor ends with its driver", 120)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
        cluster.stop()
