"""Merges a table with an installed wheel: ``python -m tests.support.merge_with_wheel <folder>``.

tests/support/wheel_in_use.py runs it in the environment that has the wheel, a Google client library, and nothing of the
checkout."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import Any

from tests.support.cluster import Cluster
from tests.support.mariadb import MariaDB
from tests.support.world import Family

_ENVIRONMENT = Path(sysconfig.get_path("purelib"))
_ROWS = 200
_SOURCE = "mysql-01"


def _module(name: str) -> Any:
    """Import a module without an import statement: the environment of the type check has no Google library."""
    return importlib.import_module(name)


def check_names() -> None:
    """Check that each package has its own names, and works."""
    proto = _module("proto")
    plus = importlib.metadata.distribution("proto-plus")
    assert Path(proto.__file__) == Path(str(plus.locate_file("proto/__init__.py"))), proto.__file__
    kms = _module("google.cloud.kms")
    key = kms.CryptoKey(name="k", labels={"a": "b"})
    assert isinstance(key, proto.Message)
    assert kms.CryptoKey.from_json(kms.CryptoKey.to_json(key)) == key
    decoder = Path(_module("shardmerge.worker.binlog.decoder").__file__)
    assert decoder.is_relative_to(_ENVIRONMENT) and decoder.suffix == ".so", decoder
    assert Path(_module("shardmerge.proto.master_pb2").__file__).is_relative_to(_ENVIRONMENT)
    for name in ("master", "worker", "ctl"):
        assert importlib.util.find_spec(name) is None, name
    files = importlib.metadata.files("shardmerge") or []
    tops = {file.parts[0] for file in files if not file.parts[0].endswith(".dist-info") and file.parts[0] != ".."}
    assert tops == {"shardmerge"}, tops


def merge(folder: Path) -> int:
    """Merge two shard tables of one source into one table; return the number of its rows."""
    source, target = MariaDB(folder / "source", 101), MariaDB(folder / "target", 201)
    try:
        family = Family("wheel", ((_SOURCE, source.start()),), target.start())
        shards = family.create(_ROWS)
        with Cluster(folder / "cluster", workers=1) as cluster:
            cluster.create_source(_SOURCE, source)
            cluster.start_task(family.task())
            cluster.wait_replicating("wheel")
            for shard in shards:
                source.execute(f"DELETE FROM {shard.name} ORDER BY id LIMIT 1")
            cluster.wait_caught_up("wheel", {_SOURCE: source})
            _check_modules(cluster)
            cluster.dmctl("stop-task", "wheel")
        verdict = family.verdict()
        assert verdict.differences == 0, verdict
        return verdict.rows
    finally:
        source.stop()
        target.stop()


def _check_modules(cluster: Cluster) -> None:
    """Check that the worker and its Spark tasks run the decoder of the wheel."""
    [worker] = cluster.workers
    decoders = {
        mapped.path
        for process in worker.session()
        for mapped in process.memory_maps()
        if "/binlog/decoder." in mapped.path
    }
    assert decoders and all(Path(path).is_relative_to(_ENVIRONMENT) for path in decoders), decoders


if __name__ == "__main__":
    check_names()
    rows = merge(Path(sys.argv[1]))
    assert rows == 2 * _ROWS - 2, rows
    print(f"the wheel beside proto-plus and a Google client library: {rows} rows of 2 shard tables are merged")
