"""The settings of a worker's Spark: defaults, the user's settings, and values that users cannot change. Pure.

Sources: Spark's documentation, "Configuration" and "Security".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from shardmerge.proto import errors

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
_BIND_ADDRESS = "spark.driver.bindAddress"
_DEFAULTS: Mapping[str, str] = {
    "spark.master": "local[16]",
    "spark.app.name": "shardmerge",
    "spark.driver.memory": "480m",
    # The web page has no authentication.
    "spark.ui.enabled": "false",
    # A worker that runs for months has many past jobs.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "20",
    _BIND_ADDRESS: LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.ui.showConsoleProgress": "false",
    # The web page of each worker of a machine needs a port: the default of 16 would limit the number of workers.
    "spark.port.maxRetries": "256",
    "spark.log.level": "ERROR",
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.python.daemon.module": "shardmerge.worker.core.spark.python_daemon",
}
_FORCED: Mapping[str, tuple[str, str]] = {
    "spark.authenticate": (
        "true",
        "without authentication, any program that reaches a port of Spark's driver can read the tasks and run code",
    ),
    "spark.sql.variable.substitute": (
        "false",
        "with it, Spark replaces ${…} in a transform by a value from the worker's environment or settings, which may "
        "be a secret",
    ),
    "spark.ui.killEnabled": ("false", "any user who reaches the web page could end lanes"),
    "spark.ui.threadDumpsEnabled": ("false", "the web page would show thread dumps to any user who reaches it"),
    "spark.ui.heapHistogramEnabled": ("false", "the web page would show heap histograms to any user who reaches it"),
}
"""Settings with only one permitted value, and the reason."""
_OPTIONS_KEY = "spark.driver.extraJavaOptions"
_REDACTION_KEY = "spark.redaction.regex"
_REDACTED = "(?i:secret|passw|token|credential|private|access[.]?key)"
SECRET_KEY = "spark.authenticate.secret"  # noqa: S105 - the name of a setting
_CRYPTO_KEY = "spark.network.crypto.enabled"
_CRYPTO_KEYS = (_CRYPTO_KEY, "spark.ssl.rpc.enabled")
_UI_TLS_KEYS = ("spark.ssl.enabled", "spark.ssl.ui.enabled")
_ALL_INTERFACES = frozenset({"0.0.0.0", "0", "::", "[::]", "0:0:0:0:0:0:0:0", "*"})  # noqa: S104 - these are refused
_MASTERS_WITH_SESSION_SECRET = re.compile(r"local|local\[[^]]*\]|yarn(-client)?|k8s://.*")
"""Spark masters for which Spark makes a secret for each session
(org.apache.spark.SecurityManager.initializeAuth)."""


def effective(settings: Mapping[str, str], scratch: Path | None = None) -> Mapping[str, str]:
    """The defaults, overridden by ``settings``, with the forced values. JVM options are joined: of equal options the
    JVM uses the last one. ``scratch``: folder for the JVM's files; None: the folder for temporary files.

    Raises SPARK_SETTING_REFUSED for a setting that would weaken the protection, and SPARK_SECRET_MISSING for a cluster
    that needs a shared secret when none is set.
    """
    options = [_JVM_OPTIONS]
    folder: dict[str, str] = {}
    if scratch is not None:
        options.append(f'-Djava.io.tmpdir="{scratch}"')
        folder["spark.local.dir"] = str(scratch)
    if own := settings.get(_OPTIONS_KEY):
        options.append(own)
    merged = {**_DEFAULTS, **folder, **settings, _OPTIONS_KEY: " ".join(options)}
    master = merged["spark.master"]
    for key, (value, reason) in _FORCED.items():
        if merged.setdefault(key, value).strip().lower() != value:
            raise errors.worker.SPARK_SETTING_REFUSED(key=key, value=merged[key], reason=reason)
        merged[key] = value
    if not _is_local(master) and not any(_is_true(merged, key) for key in _CRYPTO_KEYS):
        merged.setdefault(_CRYPTO_KEY, "true")
    if merged[_BIND_ADDRESS].strip() in _ALL_INTERFACES and not any(_is_true(merged, key) for key in _CRYPTO_KEYS):
        raise errors.worker.SPARK_SETTING_REFUSED(
            key=_BIND_ADDRESS,
            value=merged[_BIND_ADDRESS],
            reason=f"Spark would listen on every interface of the machine, and without {_CRYPTO_KEY}: true it does not "
            "encrypt",
        )
    if not _MASTERS_WITH_SESSION_SECRET.fullmatch(master) and not merged.get(SECRET_KEY):
        raise errors.worker.SPARK_SECRET_MISSING(master=master)
    own_redaction = settings.get(_REDACTION_KEY)
    merged[_REDACTION_KEY] = f"{_REDACTED}|({own_redaction})" if own_redaction else _REDACTED
    return MappingProxyType(merged)


def ui_address(merged: Mapping[str, str], environment: str, *, only_tls: bool) -> str:
    """The address for Spark's web page, if the page is on. Spark has no setting for it, only the environment variable
    SPARK_LOCAL_IP.

    ``merged``: of :func:`effective`. ``environment``: the variable's present value, "" for none. ``only_tls``: this
    process may not send plain text to other machines. Raises SPARK_SETTING_REFUSED.
    """
    is_plain = not any(_is_true(merged, key) for key in _UI_TLS_KEYS)
    if environment:
        if environment.strip() in _ALL_INTERFACES and is_plain:
            raise errors.worker.SPARK_SETTING_REFUSED(
                key="SPARK_LOCAL_IP",
                value=environment,
                reason="Spark's web page would listen on every interface of the machine, in plain text",
            )
        return environment
    wanted = merged[_BIND_ADDRESS].strip()
    return LOOPBACK if is_plain and (only_tls or wanted in _ALL_INTERFACES) else wanted


def slots(merged: Mapping[str, str]) -> int | None:
    """How many tasks run at once: N of local[N]; elsewhere spark.cores.max or 64. None: one for each core."""
    master = merged["spark.master"]
    if _is_local(master):
        inside = master.partition("[")[2].rstrip("]").split(",")[0]
        if inside == "*":
            return None
        return int(inside) if inside else 1
    return int(merged.get("spark.cores.max", "64"))


def is_protected(merged: Mapping[str, str]) -> bool:
    """Whether the traffic between this worker's Spark processes is protected: there is only one process (``local``), or
    Spark encrypts the traffic."""
    return _is_local(merged["spark.master"]) or any(_is_true(merged, key) for key in _CRYPTO_KEYS)


def properties(merged: Mapping[str, str]) -> str:
    """The text of a properties file for ``spark-submit --properties-file`` (java.util.Properties.load)."""
    return "".join(f"{_escaped(key, ' :=#!')}={_escaped(value, '')}\n" for key, value in merged.items())


def _escaped(text: str, signs: str) -> str:
    whole = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    for sign in signs:
        whole = whole.replace(sign, f"\\{sign}")
    return f"\\{whole}" if whole.startswith((" ", "\f")) else whole


def _is_local(master: str) -> bool:
    return master.startswith("local") and not master.startswith("local-cluster")


def _is_true(merged: Mapping[str, str], key: str) -> bool:
    return merged.get(key, "").strip().lower() == "true"
