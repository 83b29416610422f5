"""What must be equal in a worker and in the processes of its executors: versions, and the sources of shardmerge.

:class:`Survey` is sent to the executors by value, so that it works there whatever is installed. Therefore this module
imports only modules of Python at its top, and everything else where it is used.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pickle
import platform
import sys
from collections.abc import Iterator

_SUFFIXES = (".py", ".pxd", ".h", ".proto")
_FOLDERS = ("proto", "worker")
_SHOWN_DIGITS = 12
_GENERATED = "_pb2"


def digest_of(folder: str) -> str:
    """A digest of the sources in ``folder``, the package shardmerge, from which its modules are built. Generated
    modules do not count: another version of the generator writes other text."""
    found = hashlib.sha256()
    for part in _FOLDERS:
        top = os.path.join(folder, part)
        for place, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                if not name.endswith(_SUFFIXES) or _GENERATED in name:
                    continue
                path = os.path.join(place, name)
                with open(path, "rb") as file:
                    content = file.read()
                found.update(f"{part}/{os.path.relpath(path, top)} {len(content)}\n".encode())
                found.update(content)
    return found.hexdigest()


def own_versions() -> dict[str, str]:
    """The versions in this process: of Python without the last number, as Spark compares it; of shardmerge with the
    digest of its sources."""
    found = {"Python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    metadata = importlib.import_module("importlib.metadata")
    for name in ("pyspark", "pyarrow"):
        found[name] = importlib.import_module(name).__version__
    try:
        found["shardmerge"] = metadata.version("shardmerge")
    except metadata.PackageNotFoundError:  # unpacked, not installed
        found["shardmerge"] = "unknown"
    package = importlib.import_module("shardmerge").__path__
    found["shardmerge"] += f" (sources {digest_of(next(iter(package)))[:_SHOWN_DIGITS]})"
    return found


class Survey:
    """For mapPartitions: each task reports the environment of its process, as a text of JSON.

    ``address``: of the worker; ``tls``: the pickled TLS of the worker's process.
    """

    def __init__(self, address: str, tls: bytes) -> None:
        self._address, self._tls = address, tls

    def __call__(self, numbers: Iterator[int]) -> Iterator[str]:
        for _ in numbers:
            yield self.report()

    def report(self) -> str:
        """The report of this process."""
        return json.dumps(
            {
                "host": platform.node(),
                "versions": own_versions(),
                "compiled": bool(importlib.import_module("shardmerge.worker.binlog").is_compiled()),
                "unreachable": self._unreachable(),
            }
        )

    def _unreachable(self) -> str:
        """Why this process cannot call the worker; "": it can."""
        try:
            tls = pickle.loads(self._tls)  # noqa: S301 - our own task
            importlib.import_module("shardmerge.proto.tls.process").use_fresh(tls)
            importlib.import_module("shardmerge.worker.core.spark.task_credentials").call(self._address)
        except Exception as error:  # noqa: BLE001 - the worker reports it, whatever it is
            return str(error) or type(error).__name__
        return ""
