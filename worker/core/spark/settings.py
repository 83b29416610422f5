"""The settings of a worker's Spark: defaults, the user's settings, and values that users cannot change. Pure.

Sources: Spark's documentation, "Configuration" and "Security".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from shardmerge.proto import errors
from shardmerge.proto.config.daemon.spark import (
    ALL_INTERFACES,
    BIND_ADDRESS,
    CRYPTO_KEY,
    MASTER,
    forced_settings,
    is_encrypted,
    is_local,
    is_true,
    problem_of,
)

# The JVM only schedules tasks; rows of lanes and chunk readers do not go through it. These options limit its memory:
# Spark refuses a heap below 450 MiB, but uses a fifth of it, and a serial collector that returns free memory keeps it
# there. Spark's classes take 130 MiB of metaspace, their code, compiled without the optimizing compiler, 25 MiB.
# XML documents that a transform parses are values of rows: they must not make the JVM open URLs or files.
_JVM_OPTIONS = (
    "-XX:+UseSerialGC -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30 -XX:TieredStopAtLevel=1 "
    "-XX:ReservedCodeCacheSize=64m -XX:MaxMetaspaceSize=192m -XX:MaxDirectMemorySize=64m -Xss512k "
    "-Djavax.xml.accessExternalDTD="
)
LOOPBACK = "127.0.0.1"
_DRIVER_HOST = "spark.driver.host"
_INSTANCES = "spark.executor.instances"
_EXECUTOR_CORES = "spark.executor.cores"
LOG_LEVEL = "spark.log.level"
_DEFAULTS: Mapping[str, str] = {
    MASTER: "local[64]",
    "spark.api.mode": "classic",
    "spark.app.name": "shardmerge",
    "spark.driver.memory": "480m",
    # The web page has no authentication.
    "spark.ui.enabled": "false",
    # A worker that runs for months has many past jobs.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "20",
    BIND_ADDRESS: LOOPBACK,
    _DRIVER_HOST: LOOPBACK,
    "spark.ui.showConsoleProgress": "false",
    # The web page of each worker of a machine needs a port: the default of 16 would limit the number of workers.
    "spark.port.maxRetries": "256",
    LOG_LEVEL: "ERROR",
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.python.daemon.module": "shardmerge.worker.core.spark.python_daemon",
}
_OPTIONS_KEY = "spark.driver.extraJavaOptions"
_REDACTION_KEY = "spark.redaction.regex"
_REDACTED = "(?i:secret|passw|token|credential|private|access[.]?key)"
_UI_TLS_KEYS = ("spark.ssl.enabled", "spark.ssl.ui.enabled")
_EXECUTOR_OPTIONS_KEY = "spark.executor.extraJavaOptions"
# The JVM of an executor only starts Python processes. It is to start quickly, because another executor was lost.
_EXECUTOR_JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djavax.xml.accessExternalDTD="
# An executor that is frozen or cut off closes no connection: Spark notices it by missing heartbeats, by default after
# two to three minutes. All lanes wait meanwhile. A pause of a few seconds, as on a busy machine, is no loss.
_HEARTBEAT_INTERVAL = "spark.executor.heartbeatInterval"
_HEARTBEAT_TIMEOUT = "spark.storage.blockManagerHeartbeatTimeoutMs"
_TIMEOUT_CHECK = "spark.network.timeoutInterval"
_HEARTBEATS: Mapping[str, str] = {
    _HEARTBEAT_INTERVAL: "2s",
    _HEARTBEAT_TIMEOUT: "15s",
    _TIMEOUT_CHECK: "1s",
    # From the other side: an executor without an answer of its driver ends after 15 intervals, with its lanes.
    "spark.executor.heartbeat.maxFailures": "15",
}
_HEARTBEATS_OF_USER = frozenset(_HEARTBEATS) | {"spark.network.timeout"}


def effective(
    settings: Mapping[str, str], scratch: Path | None = None, advertised: str = "", sockets: Path | None = None
) -> Mapping[str, str]:
    """The defaults, overridden by ``settings``, with the forced values. JVM options are joined: of equal options the
    JVM uses the last one. ``scratch``: folder for the JVM's files; None: the folder for temporary files.
    ``advertised``: the worker's advertised address, "" where it is not known: executors on other machines reach the
    driver at its host. ``sockets``: private folder with a short path for the driver's sockets; None: ``scratch``.

    Raises SPARK_MASTER, SPARK_SETTING_REFUSED, SPARK_SECRET_MISSING and SPARK_WORKER_ON_LOOPBACK.
    """
    options = [_JVM_OPTIONS]
    further: dict[str, str] = {}
    if scratch is not None:
        further["spark.local.dir"] = str(scratch)
    master = settings.get(MASTER, _DEFAULTS[MASTER])
    if not is_local(master):
        further[_EXECUTOR_OPTIONS_KEY] = _EXECUTOR_JVM_OPTIONS
        # They depend on each other: Spark refuses an interval above the time-out, and ignores spark.network.timeout
        # where the more specific one is set. So a user's own values are kept without any of these.
        if _HEARTBEATS_OF_USER.isdisjoint(settings):
            further |= _HEARTBEATS
        if advertised:
            further |= dict.fromkeys((BIND_ADDRESS, _DRIVER_HOST), advertised.rpartition(":")[0])
    if own := settings.get(_OPTIONS_KEY):
        options.append(own)
    if scratch is not None:
        # The sockets between Spark and Python are there too, without a setting that executors elsewhere would get. So
        # the user cannot override it.
        options.append(f'-Djava.io.tmpdir="{sockets or scratch}"')
    merged = {**_DEFAULTS, **further, **settings, _OPTIONS_KEY: " ".join(options)}
    if not is_local(master) and _EXECUTOR_OPTIONS_KEY in settings:
        merged[_EXECUTOR_OPTIONS_KEY] = f"{_EXECUTOR_JVM_OPTIONS} {settings[_EXECUTOR_OPTIONS_KEY]}"
    problem = problem_of(merged, advertised)
    if problem is not None:
        raise problem
    for key, (value, _) in forced_settings(master).items():
        merged[key] = value
    if not is_local(master) and is_encrypted(merged):
        merged.setdefault(CRYPTO_KEY, "true")
    own_redaction = settings.get(_REDACTION_KEY)
    merged[_REDACTION_KEY] = f"{_REDACTED}|({own_redaction})" if own_redaction else _REDACTED
    return MappingProxyType(merged)


def ui_address(settings: Mapping[str, str], environment: str, *, only_tls: bool) -> str:
    """The address for Spark's web page, if the page is on. Spark has no setting for it, only the environment variable
    SPARK_LOCAL_IP.

    ``settings``: the user's; ``spark.driver.bindAddress`` decides only if it is among them. ``environment``: the
    variable's present value, "" for none. ``only_tls``: this process may not send plain text to other machines.
    Raises SPARK_SETTING_REFUSED.
    """
    is_plain = not any(is_true(settings, key) for key in _UI_TLS_KEYS)
    if environment:
        if environment.strip() in ALL_INTERFACES and is_plain:
            raise errors.worker.SPARK_SETTING_REFUSED(
                key="SPARK_LOCAL_IP",
                value=environment,
                reason="Spark's web page would listen on every interface of the machine, in plain text",
            )
        return environment
    wanted = settings.get(BIND_ADDRESS, LOOPBACK).strip()
    return LOOPBACK if is_plain and (only_tls or wanted in ALL_INTERFACES) else wanted


def slots(merged: Mapping[str, str]) -> int | None:
    """How many tasks run at once: N of local[N], None for one for each core; elsewhere what spark.cores.max, or the
    number of executors and their cores, promise, None for as many as the cluster provides."""
    master = merged[MASTER]
    if is_local(master):
        inside = master.partition("[")[2].rstrip("]").split(",")[0]
        if inside == "*":
            return None
        return int(inside) if inside else 1
    task_cores = int(merged.get("spark.task.cpus", "1"))
    cores = merged.get("spark.cores.max")
    if cores is None and {_INSTANCES, _EXECUTOR_CORES} <= merged.keys():
        return int(merged[_INSTANCES]) * (int(merged[_EXECUTOR_CORES]) // task_cores)
    return None if cores is None else int(cores) // task_cores


def is_protected(merged: Mapping[str, str]) -> bool:
    """Whether the traffic between this worker's Spark processes is protected: there is only one process (``local``), or
    Spark encrypts the traffic."""
    return is_local(merged[MASTER]) or is_encrypted(merged)


def properties(merged: Mapping[str, str]) -> str:
    """The text of a properties file for ``spark-submit --properties-file`` (java.util.Properties.load)."""
    return "".join(f"{_escaped(key, ' :=#!')}={_escaped(value, '')}\n" for key, value in merged.items())


def _escaped(text: str, signs: str) -> str:
    whole = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    for sign in signs:
        whole = whole.replace(sign, f"\\{sign}")
    return f"\\{whole}" if whole.startswith((" ", "\f")) else whole
