"""The executors of a Spark cluster, as its driver knows them: how many slots they have, since when slots are missing.

Spark waits for executors without an end. A worker waits for a limited time, and then reports what is missing. The
master of a standalone cluster is asked why executors are missing, and whether it knows the driver still.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext

from shardmerge.proto import errors
from shardmerge.proto.config.daemon.spark import master_addresses
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.spark.failures import JVM_ERRORS

log = get_logger()

WAIT_SECONDS = 20.0
"""Time that a standalone cluster gets to start executors for a worker that runs."""
_START_SECONDS = 60.0
"""The same for a worker that starts: it would begin with a JVM again, while the executors of a busy machine start."""
_CONTAINER_SECONDS = 120.0
"""The same for a cluster that starts a container for each executor: it waits for room, and copies files or an image."""
_POLL_SECONDS = 0.25
_WATCH_SECONDS = 1.0
_SETTLED_SECONDS = 2.0
_ANSWER_SECONDS = 3
"""Time that the master of a standalone cluster has to answer."""
_ACTIVE = "ALIVE"


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of all executors: ``count`` now; fewer than promised since ``short_since``, None: they are enough."""

    count: int
    short_since: float | None = None

    def then(self, count: int, promised: int, now: float) -> Slots:
        """The state after a later count."""
        if count >= promised:
            return Slots(count)
        return Slots(count, now if self.short_since is None else self.short_since)

    def is_lacking(self, needed: int, now: float, seconds: float = WAIT_SECONDS) -> bool:
        """Whether ``needed`` slots are not there, although the cluster had ``seconds`` to start executors."""
        return needed > self.count and self.short_since is not None and now - self.short_since >= seconds


@dataclass(frozen=True, slots=True)
class Driver:
    """The Java objects of a driver; unlike those of its Python context, they remain when the context is stopped."""

    jvm: Any
    context: Any
    application: str

    @classmethod
    def of(cls, spark: SparkContext) -> Driver:
        context: Any = spark._jsc.sc()
        return cls(spark._jvm, context, str(context.applicationId()))


def start_seconds(master: str) -> float:
    """Time that the cluster of a Spark master gets to start executors."""
    return _CONTAINER_SECONDS if master.startswith(("yarn", "k8s://")) else WAIT_SECONDS


class Executors:
    """The executors of one driver. ``promised``: the slots that the settings promise; None: those that the cluster
    provides at the start. ``on_more``: called with the number of slots when there are more of them than before."""

    def __init__(self, spark: SparkContext, master: str, promised: int | None, on_more: Callable[[int], None]) -> None:
        self._master, self._promised, self._on_more = master, promised, on_more
        self._driver = Driver.of(spark)
        self._java: Any = self._driver.context
        self._seconds = start_seconds(master)
        self._slots = Slots(0)
        self._is_stopped = False

    def wait(self) -> int:
        """Wait until executors with all slots have registered; returns the number of slots, which are from then on
        watched. Raises SPARK_NO_EXECUTOR, SPARK_SLOTS_MISSING, and Py4J errors when the JVM ends."""
        seconds = max(_START_SECONDS, self._seconds)
        log.info("waiting for executors", master=self._master, slots=self._promised, seconds=seconds)
        count = wait_for_slots(self._count, self._promised, seconds)
        if count == 0 or count < (self._promised or 0):
            raise self._missing(count, self._promised or 1, seconds)
        self._promised = count if self._promised is None else self._promised
        self._slots = Slots(count)
        threading.Thread(target=self._watch, name="spark-executors", daemon=True).start()
        return self._promised

    def shortage(self, needed: int) -> ShardmergeError | None:
        """The error for tasks that need ``needed`` slots in total; None: these exist, or may soon."""
        slots = self._slots
        is_lacking = slots.is_lacking(needed, time.monotonic(), self._seconds)
        return self._missing(slots.count, needed, self._seconds) if is_lacking else None

    @property
    def slots(self) -> int:
        """How many slots there are, as last seen."""
        return self._slots.count

    @property
    def is_stopped(self) -> bool:
        """Whether the driver has lost its cluster for good (its master has removed or forgotten it), as last seen."""
        return self._is_stopped

    def look(self) -> None:
        """Count the slots now. Raises Py4J errors when the JVM has ended."""
        self._is_stopped = self._is_stopped or bool(self._java.isStopped())
        count = 0 if self._is_stopped else self._count()
        self._slots = self._slots.then(count, self._promised or 0, time.monotonic())

    def _watch(self) -> None:
        while not self._is_stopped:
            time.sleep(_WATCH_SECONDS)
            before = self._slots.count
            try:
                self.look()
            except JVM_ERRORS:  # the JVM has ended, which the runner notices
                return
            is_short = self._slots.short_since is not None and not self._is_stopped
            if is_short and has_forgotten(self._driver, self._master):
                log.warning("Spark's master does not know this worker any more", master=self._master)
                self._is_stopped = True
            now = self._slots.count
            if now != before:
                log.info("slots of Spark's executors", master=self._master, before=before, now=now)
            if now > before:
                threading.Thread(target=self._on_more, args=(now,), name="spark-warm-up", daemon=True).start()

    def _count(self) -> int:
        profile = self._java.resourceProfileManager().defaultResourceProfile()
        return int(self._java.maxNumConcurrentTasks(profile))

    def _missing(self, count: int, needed: int, seconds: float) -> ShardmergeError:
        cluster = describe_cluster(self._driver, self._master)
        if count == 0:
            return errors.worker.SPARK_NO_EXECUTOR(master=self._master, seconds=f"{seconds:g}", cluster=cluster)
        return errors.worker.SPARK_SLOTS_MISSING(master=self._master, found=count, needed=needed, cluster=cluster)


def wait_for_slots(count: Callable[[], int], promised: int | None, seconds: float = WAIT_SECONDS) -> int:
    """Wait up to ``seconds`` until there are ``promised`` slots; None: until there are some and their number does not
    change any more. Returns the number."""
    deadline = time.monotonic() + seconds
    found, since = count(), time.monotonic()
    while time.monotonic() < deadline:
        if promised is not None and found >= promised:
            break
        if promised is None and found and time.monotonic() - since >= _SETTLED_SECONDS:
            break
        time.sleep(_POLL_SECONDS)
        now = count()
        if now != found:
            found, since = now, time.monotonic()
    return found


def describe_cluster(driver: Driver, master: str) -> str:
    """The workers, cores and memory of the cluster in one phrase. Never raises: it is a part of another error."""
    for address in master_addresses(master):
        try:
            return _described(driver, address)
        except JVM_ERRORS:  # a standby master, another version of Spark, or a JVM that has ended
            continue
    return "how many cores the cluster has is not known"


def has_forgotten(driver: Driver, master: str) -> bool:
    """Whether the cluster's active master does not know this driver: it was restarted without its records, or has
    removed the driver while it did not answer. Such a driver gets no executor any more, and is not informed.

    False without an answer: a master that is starting, or another one, may know the driver.
    """
    for address in master_addresses(master):
        try:
            state = _state(driver, address)
            if state.status().toString() == _ACTIVE:
                return all(one.id() != driver.application for one in state.activeApps())
        except JVM_ERRORS:
            continue
    return False


def _described(driver: Driver, address: str) -> str:
    state = _state(driver, address)
    workers = [one for one in state.workers() if one.state().toString() == _ACTIVE]
    if not workers:
        return "the cluster has no worker"
    cores, memory = sum(one.cores() for one in workers), max(one.memory() for one in workers)
    others = max(0, len(state.activeApps()) - 1)
    return (
        f"the cluster has {_number(len(workers), 'worker')} with {_number(cores, 'core')} in total and at most "
        f"{memory} MiB of memory each; {_number(others, 'other application')} may use them"
    )


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _state(driver: Driver, address: str) -> Any:
    """The master's answer (org.apache.spark.deploy.DeployMessages.MasterStateResponse): Spark's own command lines ask
    for it in this way, there is no public interface."""
    jvm = driver.jvm

    def single(name: str) -> Any:
        return getattr(getattr(jvm, f"{name}$"), "MODULE$")

    seconds = jvm.scala.concurrent.duration.FiniteDuration(_ANSWER_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)
    # With a time limit: a master that does not answer must not hold up the error that this explains.
    found = driver.context.schedulerBackend().rpcEnv().asyncSetupEndpointRefByURI(f"spark://Master@{address}")
    master = jvm.scala.concurrent.Await.result(found, seconds)
    timeout = jvm.org.apache.spark.rpc.RpcTimeout(seconds, "shardmerge")
    kind = single("scala.reflect.ClassTag").apply(
        jvm.java.lang.Class.forName("org.apache.spark.deploy.DeployMessages$MasterStateResponse")
    )
    return master.askSync(single("org.apache.spark.deploy.DeployMessages$RequestMasterState"), timeout, kind)
