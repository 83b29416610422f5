"""Tests of the start of the driver's JVM without Spark's scripts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shardmerge.worker.core.spark.jvm import MODULE_OPTIONS, Java, begin_jvm, command, find_java, needs_scripts
from shardmerge.worker.core.spark.settings import effective

_NO_OPTIONS = ()
_WRITES_CONNECTION = """#!/bin/sh
printf '%s\\n' "$@" > "{folder}/arguments"
env > "{folder}/environment"
printf '\\000\\000\\060\\071\\000\\000\\000\\003abc' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
exec cat
"""


def _java_that(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(text.replace("{folder}", str(folder)))
    program.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(folder / "home"))


@pytest.mark.parametrize(
    ("settings", "environment", "configuration", "expected"),
    [
        ({}, {}, [], False),
        ({"spark.ui.enabled": "true", "spark.driver.memory": "2g"}, {"SPARK_SUBMIT_OPTS": "-Da=1"}, [], False),
        ({}, {}, ["spark-defaults.conf.template"], False),
        ({}, {}, ["spark-defaults.conf.template", "spark-env.sh"], True),
        ({"spark.jars": "/a.jar"}, {}, [], True),
        ({"spark.jars.packages": "a:b:1"}, {}, [], True),
        ({"spark.driver.extraClassPath": "/classes"}, {}, [], True),
        ({}, {"SPARK_CONF_DIR": "/etc/spark"}, [], True),
        ({}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, [], True),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--jars /a.jar pyspark-shell"}, [], True),
        ({"spark.master": "spark://host:7077", "spark.authenticate.secret": "s"}, {}, [], True),
        ({"spark.master": "yarn"}, {}, [], True),
    ],
)
def test_what_needs_the_scripts(
    settings: dict[str, str], environment: dict[str, str], configuration: list[str], expected: bool
) -> None:
    assert needs_scripts(effective(settings), environment, configuration) is expected


def test_no_setting_is_on_the_command_line() -> None:
    own = {"spark.authenticate.secret": "a-secret", "spark.driver.extraJavaOptions": '-Da="x y"'}
    found = command(Java(Path("/java"), Path("/spark")), effective(own), '-Db="1 2"', ["-Dc"], Path("/log"))
    assert "a-secret" not in " ".join(found)
    assert {"-Da=x y", "-Db=1 2", "-Dc", "-Xmx480m"} <= set(found)
    # Of equal options the JVM uses the last one: the user's.
    assert found.index("-Da=x y") > found.index("-XX:TieredStopAtLevel=1") > found.index("-Dc")


def test_options_are_those_of_spark_s_launcher() -> None:
    java = find_java(os.environ)
    assert java is not None
    environment = {**os.environ, "SPARK_HOME": str(java.spark_home), "SPARK_SCALA_VERSION": "2.13"}
    main = ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
    done = subprocess.run(
        [str(java.program), "-cp", java.class_path, *main],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    _, program, *found = [part for part in done.stdout.split("\0") if part.strip()]
    assert program == "-cp"
    launched = found[
        found.index("-XX:+IgnoreUnrecognizedVMOptions") : found.index("org.apache.spark.deploy.SparkSubmit")
    ]
    assert [each for each in launched if each != "--add-modules=jdk.incubator.vector"] == list(MODULE_OPTIONS)
    assert [part for part in found[0].split(os.pathsep) if part.endswith((".jar", "*"))] == java.class_path.split(
        os.pathsep
    )


def test_the_connection_of_a_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java_that(_WRITES_CONNECTION, tmp_path, monkeypatch)
    settings = effective({"spark.authenticate.secret": "a-secret"}, tmp_path)
    begun = begin_jvm(settings, tmp_path, lambda _: _NO_OPTIONS)
    assert begun is not None
    assert begun.folder.stat().st_mode & 0o777 == 0o700
    assert begun.connection() == (12345, "abc")
    assert not begun.folder.exists()
    # It ends with its standard input, so with the worker.
    assert begun.process.poll() is None
    assert begun.process.stdin is not None
    begun.process.stdin.close()
    assert begun.process.wait(60) == 0
    assert "a-secret" not in (tmp_path / "arguments").read_text() + (tmp_path / "environment").read_text()
    assert "SPARK_HOME=" in (tmp_path / "environment").read_text()


def test_a_jvm_that_ends_has_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java_that("#!/bin/sh\nexit 3\n", tmp_path, monkeypatch)
    begun = begin_jvm(effective({}, tmp_path), tmp_path, lambda _: _NO_OPTIONS)
    assert begun is not None
    assert begun.connection() is None
    assert begun.process.wait(60) == 3
    assert not begun.folder.exists()


def test_a_quote_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java_that("#!/bin/sh\nexit 3\n", tmp_path, monkeypatch)
    with pytest.raises(ValueError, match="quotation"):
        begin_jvm(effective({"spark.driver.extraJavaOptions": '-Da="x'}), tmp_path, lambda _: _NO_OPTIONS)
