"""The settings that a worker's Spark runs with: the defaults, overruled by the user's, and what nobody overrules. Pure.

Sources: Spark's documentation, "Configuration" and "Security".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from proto import errors

# The JVM only hands out tasks; rows never pass through it. What it takes is bounded here: Spark refuses a heap below
# 450 MiB, but uses a fifth of it, and a serial collector that gives back what is free keeps it there. Spark's classes
# take 130 MiB of metaspace, their code, compiled without the optimizing compiler, 25 MiB.
# Documents of XML that a transform reads are rows' values: they must not make the JVM open addresses or files.
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
    # Its pages are for everybody who reaches them.
    "spark.ui.enabled": "false",
    # Of the jobs of past runs, which a worker that lives for months has many of.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "20",
    _BIND_ADDRESS: LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.ui.showConsoleProgress": "false",
    # One port per worker of a machine for its web page: 16, the default, would be the most workers there.
    "spark.port.maxRetries": "256",
    "spark.log.level": "ERROR",
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.python.daemon.module": "worker.spark_daemon",
}
_FORCED: Mapping[str, tuple[str, str]] = {
    "spark.authenticate": (
        "true",
        "without it everybody who reaches a port of Spark's driver can read the tasks, and run code",
    ),
    "spark.sql.variable.substitute": (
        "false",
        "with it a text ${…} in a transform becomes a secret of the worker's environment or settings, and a text that "
        "is meant so becomes another one",
    ),
    "spark.ui.killEnabled": ("false", "everybody who reaches the page could end lanes"),
    "spark.ui.threadDumpsEnabled": ("false", "the page would show what the worker does to everybody who reaches it"),
    "spark.ui.heapHistogramEnabled": ("false", "the page would show what the worker holds to everybody who reaches it"),
}
"""What has one value alone, and why."""
_OPTIONS_KEY = "spark.driver.extraJavaOptions"
_REDACTION_KEY = "spark.redaction.regex"
_REDACTED = "(?i:secret|passw|token|credential|private|access[.]?key)"
SECRET_KEY = "spark.authenticate.secret"  # noqa: S105 - the name of a setting
_CRYPTO_KEY = "spark.network.crypto.enabled"
_CRYPTO_KEYS = (_CRYPTO_KEY, "spark.ssl.rpc.enabled")
_UI_TLS_KEYS = ("spark.ssl.enabled", "spark.ssl.ui.enabled")
_EVERYWHERE = frozenset({"0.0.0.0", "0", "::", "[::]", "0:0:0:0:0:0:0:0", "*"})  # noqa: S104 - these are refused
_MAKES_SECRETS = re.compile(r"local|local\[[^]]*\]|yarn(-client)?|k8s://.*")
"""Masters with which Spark makes a secret for each session (org.apache.spark.SecurityManager.initializeAuth)."""


def effective(settings: Mapping[str, str], scratch: Path | None = None) -> Mapping[str, str]:
    """The defaults, overruled by ``settings``, with what is forced; JVM options are joined, for the JVM takes the last
    of equal ones. ``scratch``: where the JVM may leave files; None: where temporary files are.

    Raises SPARK_SETTING_REFUSED for a setting that would take protection away, SPARK_SECRET_MISSING for a cluster that
    shares a secret that is not given.
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
    if merged[_BIND_ADDRESS].strip() in _EVERYWHERE and not any(_is_true(merged, key) for key in _CRYPTO_KEYS):
        raise errors.worker.SPARK_SETTING_REFUSED(
            key=_BIND_ADDRESS,
            value=merged[_BIND_ADDRESS],
            reason=f"every interface of the machine, and Spark encrypts nothing there without {_CRYPTO_KEY}: true",
        )
    if not _MAKES_SECRETS.fullmatch(master) and not merged.get(SECRET_KEY):
        raise errors.worker.SPARK_SECRET_MISSING(master=master)
    own_redaction = settings.get(_REDACTION_KEY)
    merged[_REDACTION_KEY] = f"{_REDACTED}|({own_redaction})" if own_redaction else _REDACTED
    return MappingProxyType(merged)


def ui_address(merged: Mapping[str, str], environment: str, *, only_tls: bool) -> str:
    """Where Spark's web page listens, if it is on: it has no setting for that, only the variable SPARK_LOCAL_IP.

    ``merged``: of :func:`effective`; ``environment``: the variable's value already, "" for none. ``only_tls``: nothing
    of this process may be spoken in plain text beyond the machine. Raises SPARK_SETTING_REFUSED.
    """
    is_plain = not any(_is_true(merged, key) for key in _UI_TLS_KEYS)
    if environment:
        if environment.strip() in _EVERYWHERE and is_plain:
            raise errors.worker.SPARK_SETTING_REFUSED(
                key="SPARK_LOCAL_IP",
                value=environment,
                reason="Spark's web page would listen on every interface of the machine, in plain text",
            )
        return environment
    wanted = merged[_BIND_ADDRESS].strip()
    return LOOPBACK if is_plain and (only_tls or wanted in _EVERYWHERE) else wanted


def slots(merged: Mapping[str, str]) -> int | None:
    """How many tasks run at once: N of local[N]; elsewhere spark.cores.max or 64. None: one for each core."""
    master = merged["spark.master"]
    if _is_local(master):
        inside = master.partition("[")[2].rstrip("]").split(",")[0]
        if inside == "*":
            return None
        return int(inside) if inside else 1
    return int(merged.get("spark.cores.max", "64"))


def crypted(merged: Mapping[str, str]) -> bool:
    """Whether nobody can listen where this worker's Spark processes speak with each other: they are one process
    (``local``), or Spark encrypts what they say."""
    return _is_local(merged["spark.master"]) or any(_is_true(merged, key) for key in _CRYPTO_KEYS)


def properties(merged: Mapping[str, str]) -> str:
    """The text of a file of properties, as ``spark-submit --properties-file`` reads it (java.util.Properties.load)."""
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
