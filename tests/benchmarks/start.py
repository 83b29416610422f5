"""Measures what the programs cost until they are ready: processor seconds, and seconds that a user waits."""

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.benchmarks.world import say
from tests.support.daemon import Daemon, Setting, command
from tests.support.etcd import Etcd

_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Start:
    """Medians: processor seconds of worker with JVM, master and one dmctl call; seconds until the worker is ready."""

    worker_cpu: float
    worker_seconds: float
    master_cpu: float
    dmctl_cpu: float


def run(folder: Path) -> Start:
    """Start each program several times, with an etcd of its own."""
    folder.mkdir()
    etcd = Etcd(folder / "etcd")
    etcd.start()
    try:
        master = _daemon("master", folder, etcd, {})
        master_cpu = statistics.median(_started(master, keeps=number == _ROUNDS)[0] for number in range(1, _ROUNDS + 1))
        try:
            dmctl = [command("dmctl"), "--master-addr", master.address, "list-member"]
            environment = {"SHARDMERGE_SECRET_KEY": str(master.key), "PATH": "/usr/bin:/bin"}
            dmctl_cpu = statistics.median(_of_children(lambda: _call(dmctl, environment)) for _ in range(_ROUNDS))
            worker = _daemon("worker", folder, etcd, {"relay-dir": str(folder / "relay")})
            # The first start makes the archive of the JVM's classes beside the relay logs.
            subprocess.run([command("dm-worker"), "prepare"], check=True, capture_output=True)
            workers = [_started(worker) for _ in range(_ROUNDS)]
        finally:
            master.terminate()
    finally:
        etcd.stop()
    for cpu, seconds in workers:
        say(f"a worker was ready after {seconds:.1f} s, {cpu:.1f} s of processor time")
    return Start(
        statistics.median(cpu for cpu, _ in workers),
        statistics.median(seconds for _, seconds in workers),
        master_cpu,
        dmctl_cpu,
    )


def _daemon(kind: str, folder: Path, etcd: Etcd, settings: dict[str, Setting]) -> Daemon:
    return Daemon(kind, f"{kind}-of-start", folder, {"etcd": [etcd.endpoint], **settings}, {})


def _started(daemon: Daemon, *, keeps: bool = False) -> tuple[float, float]:
    """Return processor seconds of all its processes, and seconds, until it answers; ``keeps``: it runs on."""
    began = time.monotonic()
    daemon.start()
    seconds = time.monotonic() - began
    process = psutil.Process(daemon.pid)
    cpu = sum(_cpu(one) for one in (process, *process.children(recursive=True)))
    if not keeps:
        daemon.terminate()
    return cpu, seconds


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system + times.children_user + times.children_system


def _call(arguments: list[str], environment: dict[str, str]) -> None:
    subprocess.run(arguments, env=environment, check=True, capture_output=True)


def _of_children(act: Callable[[], None]) -> float:
    """Return the processor seconds of the child processes that ``act`` starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    act()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
