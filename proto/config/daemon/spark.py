"""Which settings of Spark a worker accepts: checked by `dmctl check-config` and when the worker starts. Pure.

Sources: Spark's documentation, "Configuration", "Security" and "Spark Connect Overview".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shardmerge.proto.config.address import is_loopback
from shardmerge.proto.errors import ShardmergeError, config, worker

MASTER = "spark.master"
BIND_ADDRESS = "spark.driver.bindAddress"
SECRET_KEY = "spark.authenticate.secret"  # noqa: S105 - the name of a setting
CRYPTO_KEY = "spark.network.crypto.enabled"
_SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"
ALL_INTERFACES = frozenset({"0.0.0.0", "0", "::", "[::]", "0:0:0:0:0:0:0:0", "*"})  # noqa: S104 - these are refused

_FORCED: Mapping[str, tuple[str, str]] = {
    "spark.authenticate": (
        "true",
        "without authentication, any program that reaches a port of Spark's driver can read the tasks and run code",
    ),
    "spark.python.unix.domain.socket.enabled": (
        "true",
        "Spark and Python would use ports of loopback, where any user of the machine can block the worker's start, "
        "fork processes and use memory",
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
_FORCED_ON_CLUSTERS: Mapping[str, tuple[str, str]] = {
    "spark.speculation": (
        "false",
        "Spark would start a second process for a lane or chunk reader that runs, and both would write",
    ),
    "spark.task.maxFailures": (
        "1",
        "Spark would start a lane again by itself, and the other lanes would wait for it; the worker starts all lanes "
        "again, from their checkpoints",
    ),
}
"""Further ones, for Spark masters other than ``local``."""

_CRYPTO_KEYS = (CRYPTO_KEY, "spark.ssl.rpc.enabled")
_DYNAMIC = "spark.dynamicAllocation.enabled"
_LEAST_EXECUTORS = "spark.dynamicAllocation.minExecutors"
_REMOTE = "spark.remote"
_API_MODE = "spark.api.mode"
_MASTERS = re.compile(r"local(\[[^]]*\])?|local-cluster\[[^]]*\]|spark://.+|yarn(-client)?|k8s://.+")
_MASTERS_WITH_SESSION_SECRET = re.compile(r"local|local\[[^]]*\]|yarn(-client)?|k8s://.*")
"""Spark masters for which Spark makes a secret for each session
(org.apache.spark.SecurityManager.initializeAuth)."""


def is_local(master: str) -> bool:
    """Whether Spark's tasks run in the driver's own JVM."""
    return master.startswith("local") and not master.startswith("local-cluster")


def forced_settings(master: str) -> Mapping[str, tuple[str, str]]:
    """The settings with only one permitted value under ``master``, and the reason."""
    return _FORCED if is_local(master) else {**_FORCED, **_FORCED_ON_CLUSTERS}


def is_true(settings: Mapping[str, str], key: str) -> bool:
    return settings.get(key, "").strip().lower() == "true"


def is_encrypted(settings: Mapping[str, str]) -> bool:
    """Whether Spark encrypts what its processes send to each other. Between processes of a cluster it does unless
    ``spark.network.crypto.enabled`` is false."""
    if any(is_true(settings, key) for key in _CRYPTO_KEYS):
        return True
    return not is_local(settings[MASTER]) and CRYPTO_KEY not in settings


def master_addresses(master: str) -> tuple[str, ...]:
    """The ``host:port`` of each master of a standalone cluster; () for other masters."""
    return tuple(master.removeprefix("spark://").split(",")) if master.startswith("spark://") else ()


def refused_connect(settings: Mapping[str, str], variable: str = "") -> ShardmergeError | None:
    """The error of settings that ask for Spark Connect or another master that does not work; None: they do not.
    ``variable``: the value of SPARK_REMOTE, "" for none."""
    master = settings[MASTER].strip()
    if settings.get(_REMOTE, "").strip():
        return _wrong_master(_REMOTE, settings[_REMOTE])
    if settings.get(_API_MODE, "").strip().lower() == "connect":
        return _wrong_master(_API_MODE, settings[_API_MODE])
    if variable.strip():
        return _wrong_master("the environment variable SPARK_REMOTE", variable)
    return None if _MASTERS.fullmatch(master) else _wrong_master("master", settings[MASTER])


def _wrong_master(key: str, value: str) -> ShardmergeError:
    return config.SPARK_MASTER(key=key, value=value)


def refused_setting(settings: Mapping[str, str]) -> ShardmergeError | None:
    """The error of the first setting with which the worker does not start; None: all are accepted."""
    for key, (value, reason) in forced_settings(settings[MASTER]).items():
        if settings.get(key, value).strip().lower() != value:
            return worker.SPARK_SETTING_REFUSED(key=key, value=settings[key], reason=reason)
    if _SOCKET_FOLDER in settings:
        return worker.SPARK_SETTING_REFUSED(
            key=_SOCKET_FOLDER,
            value=settings[_SOCKET_FOLDER],
            reason="a program that reaches a socket there needs no secret; the worker makes a private folder",
        )
    if (
        not is_local(settings[MASTER])
        and is_true(settings, _DYNAMIC)
        and not _is_positive(settings.get(_LEAST_EXECUTORS, ""))
    ):
        return worker.SPARK_SETTING_REFUSED(
            key=_DYNAMIC,
            value=settings[_DYNAMIC],
            reason="Spark would remove all executors while no task runs, and lanes would wait for new ones; "
            f"{_LEAST_EXECUTORS} above 0 keeps some",
        )
    if settings.get(BIND_ADDRESS, "").strip() in ALL_INTERFACES and not is_encrypted(settings):
        return worker.SPARK_SETTING_REFUSED(
            key=BIND_ADDRESS,
            value=settings[BIND_ADDRESS],
            reason=f"Spark would listen on every interface of the machine, and without {CRYPTO_KEY}: true it does not "
            "encrypt",
        )
    return None


def _is_positive(text: str) -> bool:
    return text.strip().isdecimal() and int(text) > 0


def missing_secret(settings: Mapping[str, str]) -> ShardmergeError | None:
    """The error of a cluster that needs a shared secret when none is set; None: there is no such problem."""
    master = settings[MASTER]
    if _MASTERS_WITH_SESSION_SECRET.fullmatch(master) or settings.get(SECRET_KEY):
        return None
    return worker.SPARK_SECRET_MISSING(master=master)


def unreachable_worker(settings: Mapping[str, str], advertised: str) -> ShardmergeError | None:
    """The error of an advertised address that only this machine reaches, although executors run elsewhere; None: there
    is no such problem."""
    master = settings[MASTER]
    if is_local(master) or master.startswith("local-cluster") or not is_loopback(advertised):
        return None
    if master.startswith("yarn"):
        return None  # only YARN knows where its nodes are; a worker that they cannot reach gets no executor
    addresses = master_addresses(master)
    if addresses and all(is_loopback(address) for address in addresses):
        return None
    return worker.SPARK_WORKER_ON_LOOPBACK(master=master, address=advertised)


def problem_of(settings: Mapping[str, str], advertised: str = "", variable: str = "") -> ShardmergeError | None:
    """The error with which a worker with these settings does not start; None: they are accepted. ``settings``: with
    ``spark.master``. ``advertised``: the worker's advertised address, "" where it is not known. ``variable``: the value
    of SPARK_REMOTE."""
    return (
        refused_connect(settings, variable)
        or refused_setting(settings)
        or missing_secret(settings)
        or (unreachable_worker(settings, advertised) if advertised else None)
    )
