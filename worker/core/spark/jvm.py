"""Starts the JVM of a local Spark driver as one process, before the seconds in which Python imports what it needs.

Spark's own scripts run two shells, a Python process and another JVM, only to find the command line of the driver's JVM,
and Spark's class SparkSubmit then looks for files to distribute. Where the user has configured anything that these
read, :func:`begin_jvm` starts nothing, and PySpark runs them. Settings are never on the command line, which every user
of the machine can read: PySpark sends them over its authenticated connection.

This module imports only modules that a worker has imported when its configuration is read.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardmerge.proto.config.daemon.spark import MASTER, is_local

_MAIN = "org.apache.spark.api.python.PythonGatewayServer"
_MEMORY = "spark.driver.memory"
_OPTIONS = "spark.driver.extraJavaOptions"
_POLL_SECONDS = 0.02
_NUMBER_BYTES = 4
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss} spark %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
"""Log4j's configuration (https://logging.apache.org/log4j/2.x/manual/configuration.html): Spark's own begins with lines
about itself, and with warnings that are no problem of a driver that only schedules. The gateway is an interpreter for
Spark: where its logger has another level than the root logger, it writes two lines about that."""
# What Spark's launcher adds (org.apache.spark.launcher.JavaModuleOptions), but not the incubator module for vectors.
# Only Spark's machine learning uses it. With it the JVM would start more slowly, and would print a warning.
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.invoke=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
_SCRIPT_VARIABLES = (
    "HADOOP_CONF_DIR",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_LAUNCHER_OPTS",
    "SPARK_PREPEND_CLASSES",
    "SPARK_SQL_TESTING",
    "SPARK_TESTING",
    "YARN_CONF_DIR",
)
_SCRIPT_SETTINGS = (
    "spark.archives",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    "spark.driver.userClassPathFirst",
    "spark.files",
    "spark.jars",
    "spark.kerberos.",
    "spark.log.structuredLogging.",
    "spark.submit.",
)


@dataclass(frozen=True, slots=True)
class Java:
    """The programs and classes of a driver."""

    program: Path
    spark_home: Path

    @property
    def class_path(self) -> str:
        """As Spark's launcher makes it, without the folder for the user's files, which is empty."""
        jars = self.spark_home / "jars"
        return os.pathsep.join([*map(str, sorted(jars.glob("slf4j-api-*.jar"))), f"{jars}{os.sep}*"])


@dataclass(frozen=True, slots=True)
class BegunJvm:
    """A JVM that starts, and writes its port and secret to a file that only this user can read. It ends when its
    standard input does, so with this process."""

    process: subprocess.Popen[bytes]
    folder: Path

    def connection(self) -> tuple[int, str] | None:
        """Wait for the port and the secret of its gateway; None: it has ended. The file with them is removed."""
        path = _connection_file(self.folder)
        while self.process.poll() is None and not path.exists():
            time.sleep(_POLL_SECONDS)
        try:
            found = path.read_bytes()
        except FileNotFoundError:
            return None
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        port, length = (int.from_bytes(found[at : at + _NUMBER_BYTES]) for at in (0, _NUMBER_BYTES))
        return port, found[2 * _NUMBER_BYTES :][:length].decode()


def find_java(environment: Mapping[str, str]) -> Java | None:
    """The JVM that Spark's scripts would start; None: there is none, or Spark is not where they look for it."""
    home = environment.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    spark = importlib.util.find_spec("pyspark")
    if program is None or spark is None or spark.origin is None:
        return None
    found = Java(Path(program), Path(environment.get("SPARK_HOME") or Path(spark.origin).parent))
    return found if found.program.is_file() and (found.spark_home / "jars").is_dir() else None


def needs_scripts(settings: Mapping[str, str], environment: Mapping[str, str], configuration: Iterable[str]) -> bool:
    """Whether Spark's own scripts must start the JVM. ``configuration``: the files in Spark's folder ``conf``."""
    return (
        not is_local(settings[MASTER])
        or any(environment.get(name) for name in _SCRIPT_VARIABLES)
        or any(key.startswith(_SCRIPT_SETTINGS) for key in settings)
        or any(not name.endswith(".template") for name in configuration)
    )


def command(java: Java, settings: Mapping[str, str], further: str, options: Sequence[str], logging: Path) -> list[str]:
    """The command line of the driver's JVM. ``further``: the user's SPARK_SUBMIT_OPTS; ``logging``: Log4j's file,
    unless the user's options name another one."""
    return [
        str(java.program),
        "-cp",
        java.class_path,
        f"-Dlog4j2.configurationFile={logging}",
        *shlex.split(further),
        f"-Xmx{settings[_MEMORY]}",
        *options,
        *shlex.split(settings[_OPTIONS]),
        *MODULE_OPTIONS,
        _MAIN,
    ]


def begin_jvm(
    settings: Mapping[str, str],
    folder: Path,
    options: Callable[[Java], Sequence[str]],
    in_child: Callable[[], object] = lambda: None,
) -> BegunJvm | None:
    """Start the JVM of a driver with these settings, and return at once; None: Spark's scripts must start it.

    ``folder``: for its files; ``options``: the JVM's further options; ``in_child``: called in the new process before it
    becomes the JVM. Raises OSError, and ValueError if a quote of an option has no end.
    """
    java = find_java(os.environ)
    if java is None or needs_scripts(settings, os.environ, _configuration(java)):
        return None
    place = Path(tempfile.mkdtemp(prefix="gateway-", dir=folder))
    logging = place / "log4j2.properties"
    logging.write_text(_LOGGING, encoding="utf-8")
    line = command(java, settings, os.environ.get("SPARK_SUBMIT_OPTS", ""), options(java), logging)

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the worker drains with a living JVM
        in_child()

    process = subprocess.Popen(
        line,
        stdin=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONHASHSEED": "0",
            "SPARK_CONNECT_MODE": "0",
            "SPARK_HOME": str(java.spark_home),
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(_connection_file(place)),
        },
        preexec_fn=prepare,  # noqa: PLW1509 - no other thread of the worker holds a lock yet
    )
    return BegunJvm(process, place)


def _connection_file(folder: Path) -> Path:
    return folder / "connection"


def _configuration(java: Java) -> list[str]:
    folder = java.spark_home / "conf"
    return os.listdir(folder) if folder.is_dir() else []
