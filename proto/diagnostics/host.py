"""The versions of what a daemon runs with, and facts about its machine. It reads no environment and no arguments."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

_PACKAGES = (
    "shardmerge",
    "cryptography",
    "cython",
    "etcd3",
    "google-re2",
    "grpcio",
    "h11",
    "mysql-replication",
    "pandas",
    "prometheus-client",
    "protobuf",
    "psutil",
    "pyarrow",
    "pydantic",
    "pymysql",
    "pyspark",
    "ruamel.yaml",
    "starlette",
    "structlog",
    "uvicorn",
)
_CGROUP = Path("/sys/fs/cgroup")


def package_versions() -> dict[str, str]:
    """The installed packages that the program works with."""
    found = {"python": platform.python_version(), "python implementation": platform.python_implementation()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def host_facts() -> dict[str, str]:
    """Operating system, processors and memory of the machine, and the limits of this process."""
    return dict(_facts())


def _facts() -> Iterator[tuple[str, str]]:
    with suppress(OSError):
        yield "system", platform.freedesktop_os_release().get("PRETTY_NAME", "")
    yield "kernel", f"{platform.system()} {platform.release()}"
    yield "machine", platform.machine()
    yield "processors", str(os.cpu_count() or 0)
    yield "processors of this process", str(len(os.sched_getaffinity(0)))
    for name, file in (
        ("processor limit of the control group", "cpu.max"),
        ("memory limit of the control group", "memory.max"),
    ):
        with suppress(OSError):
            yield name, (_CGROUP / file).read_text(encoding="utf-8").strip()[:100]
    memory = psutil.virtual_memory()
    yield "memory, bytes", str(memory.total)
    yield "memory available, bytes", str(memory.available)
    process = psutil.Process()
    with process.oneshot():
        yield "resident memory of the daemon, bytes", str(process.memory_info().rss)
        yield "open files of the daemon", str(process.num_fds())
        yield "threads of the daemon", str(process.num_threads())
        yield "started", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(process.create_time()))
    yield "time zone", "/".join(time.tzname)
    yield "load average", " ".join(f"{load:.2f}" for load in os.getloadavg())
