"""Tests every RPC of a master and a worker with mutated requests: all are answered, none changes or breaks anything.

SHARDMERGE_FUZZ_CALLS: requests for each RPC (100; a long run: 10,000). Each run of all tests has other ones.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import grpc
import psutil
import pytest

from shardmerge.proto import etcd_keys
from shardmerge.proto.common_pb2 import ErrorDetail
from shardmerge.proto.rpc.coded_errors import ERROR_METADATA
from tests.support import identity
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.mariadb import MariaDB
from tests.support.mutations import mutated
from tests.support.rpcs import Rpc, all_rpcs
from tests.support.world import Family

_CALLS = int(os.environ.get("SHARDMERGE_FUZZ_CALLS", "100"))
_SEED = os.environ.get("SHARDMERGE_SEED", "20261123")
_CHANNELS = 4
_AT_ONCE = 8  # calls of one RPC at the same time
_DEADLINE_SECONDS = 120.0
_MOST_GROWTH = 50 << 20
_INTERNAL = b"internal-error"


@pytest.fixture
def cluster(
    make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster], tmp_path: Path
) -> Iterator[Cluster]:
    source, target = make_server("source"), make_server("target")
    made = make_cluster(workers=1)
    made.create_source("mysql-01", source)
    family = Family("kept", (("mysql-01", source),), target)
    family.create(50)
    made.start_task(family.task())
    made.wait_replicating("kept")
    yield made
    made.wait_caught_up("kept", {"mysql-01": source})
    assert family.verdict().differences == 0, family.verdict()


def _records(cluster: Cluster) -> dict[str, bytes]:
    """Return all records but the samples of the history, which the leader takes by the clock."""
    with cluster.etcd.client() as client:
        found = {record.key: record.value for record in client.get_prefix("/").records}
    return {key: value for key, value in found.items() if not key.startswith(etcd_keys.HISTORY_SAMPLES)}


def _memory(daemon: Daemon) -> int:
    return psutil.Process(daemon.pid).memory_info().rss


def _outcome(call: Callable[[], object]) -> str:
    """Return the name of the answer's error, or OK; "internal-error …" for a fault of the daemon."""
    try:
        answer = call()
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call)
        for key, value in cast("tuple[tuple[str, bytes], ...]", error.trailing_metadata() or ()):
            if key == ERROR_METADATA:
                coded = ErrorDetail.FromString(value)
                return coded.message if _INTERNAL in value else coded.name
        return error.code().name
    assert isinstance(answer, bytes)
    return f"{_INTERNAL.decode()} within an answer" if _INTERNAL in answer else "OK"


def _send(channel: Any, rpc: Rpc, raw: bytes) -> Callable[[], object]:
    """Send the request; return the function that waits for the answer."""
    if not rpc.descriptor.server_streaming:
        sent: Any = channel.unary_unary(rpc.path).future(raw, timeout=_DEADLINE_SECONDS)
        return sent.result
    frames = channel.unary_stream(rpc.path)(raw, timeout=_DEADLINE_SECONDS)
    return lambda: b"".join(frames)


def _fuzz(channel: grpc.Channel, rpc: Rpc, calls: int, faults: list[str]) -> Counter[str]:
    pick = random.Random(f"{_SEED}/{rpc.path}")
    found: Counter[str] = Counter()
    waiting: list[tuple[bytes, Callable[[], object]]] = []
    for number in range(calls + _AT_ONCE):
        if number < calls:
            raw = b"" if number == 0 else mutated(pick, rpc.descriptor.input_type)
            waiting.append((raw, _send(channel, rpc, raw)))
        if waiting and (len(waiting) >= _AT_ONCE or number >= calls):
            asked, answer = waiting.pop(0)
            outcome = _outcome(answer)
            if "unexpected" in outcome or "internal-error" in outcome:
                faults.append(f"{rpc.path}: {outcome}: {asked[:500]!r}")
            found[outcome] += 1
    return found


@pytest.mark.turns
def test_no_request_breaks_anything(cluster: Cluster) -> None:
    [master], [worker] = cluster.masters, cluster.workers
    rpcs = all_rpcs()
    assert {rpc.of_master for rpc in rpcs} == {True, False}
    channels = {
        daemon.address: [identity.own_channel(daemon.address) for _ in range(_CHANNELS)] for daemon in (master, worker)
    }
    faults: list[str] = []

    def run(at: int, rpc: Rpc, calls: int) -> Counter[str]:
        daemon = master if rpc.of_master else worker
        found = _fuzz(channels[daemon.address][at % _CHANNELS], rpc, calls, faults)
        assert found.total() == calls, (rpc.path, found)
        assert not found["UNAVAILABLE"] and not found["DEADLINE_EXCEEDED"] and not found["UNKNOWN"], (rpc.path, found)
        print(rpc.path, dict(found.most_common(8)))
        return found

    def round_of(calls: int) -> int:
        with ThreadPoolExecutor(_CHANNELS) as pool:
            jobs = [pool.submit(run, at, rpc, calls) for at, rpc in enumerate(rpcs)]
            return sum(job.result().total() for job in jobs)

    # Afterwards the threads of each method and their memory are in use, and data that is loaded once and kept.
    round_of(max(20, _CALLS // 10))
    sizes = {daemon.name: daemon.log.stat().st_size for daemon in cluster.daemons}
    records, memory = _records(cluster), {daemon.name: _memory(daemon) for daemon in cluster.daemons}
    pids = {daemon.name: daemon.pid for daemon in cluster.daemons}
    assert round_of(_CALLS) == _CALLS * len(rpcs)
    assert {daemon.name: daemon.pid for daemon in cluster.daemons if daemon.alive} == pids
    assert not faults, "\n".join(faults[:20])
    assert _records(cluster) == records
    for daemon in cluster.daemons:
        told = daemon.log.read_bytes()[sizes[daemon.name] :]
        assert b"Traceback" not in told and b"internal error" not in told
        assert len(told) < 1 << 20, "no more lines than a few for each RPC in ten seconds"
        grown = _memory(daemon) - memory[daemon.name]
        print(daemon.name, "grew by", grown >> 20, "MiB")
        assert grown < _MOST_GROWTH
    [told] = cluster.dmctl("query-status", "kept").json["sources"]
    assert told["result"]
    cluster.wait_replicating("kept")
