"""Tests that masters and workers answer only callers that they can identify, on every RPC but health.

Here the connections are in plain text, as by default; tests/integration/test_open_addresses.py has those with TLS.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from shardmerge.proto import errors, identity_pb2, secret
from shardmerge.proto.rpc.caller_proof import METADATA
from shardmerge.proto.rpc.client import coded_from_rpc
from shardmerge.proto.rpc.proving_channel import ProvingChannel
from tests.support import identity
from tests.support.canary import NOBODY
from tests.support.cluster import Cluster
from tests.support.daemon import ROOT, Daemon, command
from tests.support.mariadb import MariaDB
from tests.support.rpcs import OF_EVERYONE, OF_RUN, all_rpcs
from tests.support.world import Family


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("callers"), workers=1) as made:
        yield made


def _methods(*, of_master: bool) -> list[tuple[str, bool]]:
    """Return the path of each RPC that needs a known caller, and whether it streams its answer."""
    return [
        (rpc.path, rpc.descriptor.server_streaming)
        for rpc in all_rpcs()
        if rpc.service not in (*OF_RUN, *OF_EVERYONE) and rpc.of_master is of_master
    ]


def _code(channel: Any, method: str, streams: bool, metadata: Sequence[tuple[str, bytes]] = ()) -> int:
    """Return the code of the error with which the empty request is refused."""
    opened = channel.unary_stream(method) if streams else channel.unary_unary(method)
    with pytest.raises(grpc.RpcError) as caught:
        answer = opened(b"", timeout=20, metadata=metadata)
        list(answer)
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, method
    return coded_from_rpc(caught.value, "the daemon").code


def _plain(address: str) -> Any:
    return identity.plain_channel(address)


def _daemon(cluster: Cluster, *, of_master: bool) -> Daemon:
    return cluster.masters[0] if of_master else cluster.workers[0]


@pytest.mark.turns
@pytest.mark.parametrize("of_master", [True, False], ids=["master", "worker"])
def test_no_call_without_an_identity(cluster: Cluster, of_master: bool) -> None:
    daemon, methods = _daemon(cluster, of_master=of_master), _methods(of_master=of_master)
    assert len(methods) > 20
    wrong = secret.SecretKey("", b"w" * 32)
    with identity.own_channel(daemon.address) as own, _plain(daemon.address) as plain:
        [name] = secret.load_key(str(daemon.key)).call_keys
        for method, streams in methods:
            assert _code(plain, method, streams) == errors.tls.CALLER_UNKNOWN.code
            for metadata in (
                (METADATA, b""),
                (METADATA, b"\xff" * 50),
                (METADATA, identity.proved(own, method, b"other")),
            ):
                assert _code(plain, method, streams, [metadata]) == errors.tls.CALLER_UNKNOWN.code
            used = identity.proved(own, method, b"")
            call = (plain.unary_stream if streams else plain.unary_unary)(method)
            try:
                list(call(b"", timeout=20, metadata=[(METADATA, used)]))
            except grpc.RpcError as error:  # an empty request may be refused, but not because of who sends it
                assert isinstance(error, grpc.Call)
                assert error.code() is not grpc.StatusCode.UNAUTHENTICATED, method
            assert _code(plain, method, streams, [(METADATA, used)]) == errors.tls.CALLER_UNKNOWN.code
        # A key that the cluster does not have: the caller refuses to send its request.
        for keys in (wrong.call_keys, {name: wrong.call_keys[wrong.ids[0]]}):
            with ProvingChannel(identity.plain_channel(daemon.address), lambda keys=keys: keys, "m") as stranger:
                with pytest.raises(errors.ShardmergeError) as caught:
                    stranger.unary_unary(methods[0][0])(b"", timeout=20)
                assert caught.value.spec is errors.tls.SERVER_UNPROVEN
        health = plain.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=20)
        assert health_pb2.HealthCheckResponse.FromString(health).status == health_pb2.HealthCheckResponse.SERVING


def test_a_proof_of_before_a_restart_is_worth_nothing(cluster: Cluster) -> None:
    [master] = cluster.masters
    method = "/shardmerge.v1.Master/QueryStatus"
    kept = identity.proof(master.address, method, b"")
    with identity.own_channel(master.address) as own:
        assert own.unary_unary(method)(b"", timeout=20)
        master.restart()
        with _plain(master.address) as plain:
            assert _code(plain, method, False, kept) == errors.tls.CALLER_PROOF_STALE.code
        # A program that continues to run asks for the new challenge by itself.
        assert own.unary_unary(method)(b"", timeout=20)


def test_a_program_in_the_place_of_a_master_gets_no_request(cluster: Cluster, tmp_path: Path) -> None:
    """The file of a task has passwords."""
    heard: list[bytes] = []

    class Rogue(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
                heard.append(request)
                return b""

            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Rogue()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        task = tmp_path / "task.yaml"
        task.write_text("name: t\ntarget-database: {host: 127.0.0.1, port: 3306, user: u, password: cAnAry}\n")
        ended = _dmctl(cluster, f"127.0.0.1:{port}", "start-task", str(task))
    finally:
        server.stop(None)
    assert ended.returncode == 1
    assert errors.tls.SERVER_UNPROVEN.name in ended.stderr + ended.stdout
    assert heard and not any(b"cAnAry" in request for request in heard)
    assert all(len(identity_pb2.ProveRequest.FromString(request).nonce) == 16 for request in heard)


def _dmctl(
    cluster: Cluster, address: str, *arguments: str, user: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run dmctl as the cluster's user, or as another one, who looks for the key at the same place."""
    start = [command("dmctl")] if user is None else [sys.executable, "-m", "tests.support.dmctl_as_user", str(user)]
    return subprocess.run(
        [*start, "--master-addr", address, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_STATE_HOME": str(cluster.directory / "state")},
        cwd=ROOT,
    )


@pytest.mark.turns
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_commands_nothing(
    make_server: Callable[..., MariaDB], cluster: Cluster, tmp_path: Path
) -> None:
    """Every local user reaches the ports of loopback."""
    source, target = make_server("source"), make_server("target")
    cluster.create_source("mysql-01", source)
    family = Family("kept", (("mysql-01", source),), target)
    family.create(20)
    cluster.start_task(family.task())
    cluster.wait_replicating("kept")
    [master], [worker] = cluster.masters, cluster.workers
    shared = Path("/tmp") / f"shardmerge-{os.getpid()}"
    shared.mkdir(mode=0o755)
    os.chown(shared, NOBODY, NOBODY)
    try:
        task = shared / "task.yaml"
        task.write_text(family.task())
        task.chmod(0o644)
        for arguments in (
            ("query-status",),
            ("list-member",),
            ("start-task", str(task)),
            ("stop-task", "kept"),
            ("binlog", "inject", "kept", "CREATE TABLE stolen AS SELECT * FROM mysql.user"),
            ("config", "task", "kept"),
            ("support-bundle", "-o", str(shared / "bundle.zip")),
        ):
            ended = _dmctl(cluster, master.address, *arguments, user=NOBODY)
            said = ended.stdout + ended.stderr
            assert ended.returncode != 0, arguments
            assert errors.tls.CALLER_UNKNOWN.name in said or "Permission denied" in said, (arguments, said)
        with _plain(worker.address) as plain:
            assert _code(plain, "/shardmerge.v1.Worker/CheckSource", False) == errors.tls.CALLER_UNKNOWN.code
    finally:
        shutil.rmtree(shared)
    assert _dmctl(cluster, master.address, "query-status", "kept").returncode == 0
    assert [sub.stage for sub in cluster.subtasks("kept").values()] == ["Running"]
