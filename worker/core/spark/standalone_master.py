"""Asks the master of a standalone cluster why executors are missing, and whether it knows the driver still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext

from shardmerge.proto.config.daemon.spark import master_addresses
from shardmerge.worker.core.spark.failures import JVM_ERRORS

_ANSWER_SECONDS = 3
_ACTIVE = "ALIVE"


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
    workers = [one for one in state.workers() if one.state().toString() == "ALIVE"]
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
