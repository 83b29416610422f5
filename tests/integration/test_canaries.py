"""Tests that no RPC and no page gives anything to a caller without, with a wrong or with an expired identity, and that
no password is anywhere afterwards: not in an answer, a log, a record, a file, or a list of processes."""

from __future__ import annotations

import http.client
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from shardmerge.proto import secret
from shardmerge.proto.http.routes import OF_CALLERS, pages
from shardmerge.proto.rpc.caller_proof import METADATA
from shardmerge.proto.tls.model import TlsFiles
from tests.support import identity
from tests.support.canary import files_of, forms, processes_of, seen_by_another_user
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.mariadb import MariaDB
from tests.support.rpcs import OF_EVERYONE, OF_RUN, all_rpcs, filled
from tests.support.world import Family

_OF_SOURCE, _OF_TARGET = "cAnAry-of-source-51c9e0", "cAnAry-of-target-7d02aa"
_HEALTH = "/grpc.health.v1.Health/Check"
_PATHS = [*pages(cast("Any", None)), "/", "/nothing"]

Opened = tuple[grpc.Channel, tuple[tuple[str, bytes], ...]]
Open = Callable[[Daemon, str, bytes], Opened]
"""A channel, and what to send with a call of this method with this request."""


class Scene:
    """A cluster with a running task; other users can enter the folders above those of its processes. ``answers``: of
    all attacks."""

    def __init__(self, shared: Path, source: MariaDB, target: MariaDB, *, has_tls: bool) -> None:
        self.shared, self.answers, self.keys = shared, list[bytes](), Authority(shared / "keys")
        own = self.keys.issue("own", "dm") if has_tls else None
        named: Mapping[str, Any] = {"cert-allowed-cn": ["dm"]} if has_tls else {}
        (shared / "tmp").mkdir()
        (shared / "tmp").chmod(0o1777)
        self.cluster = Cluster(
            shared / "cluster",
            workers=1,
            tls=own,
            master_settings=named,
            worker_settings=named,
            environment={"TMPDIR": str(shared / "tmp")},
        )
        source.give_account("dm", _OF_SOURCE, "ALL ON *.*")
        target.give_account("dm", _OF_TARGET, "ALL ON *.*")
        self.source, self.family = source, Family("kept", (("mysql-01", source),), target)

    def start(self) -> None:
        self.cluster.start()
        for folder in (self.shared, self.cluster.directory):
            folder.chmod(0o755)
        self.cluster.create_source("mysql-01", self.source)
        self.family.create(50)
        self.cluster.start_task(self.family.task())
        self.cluster.wait_replicating("kept")

    def calls(self) -> Iterator[tuple[Daemon, str, str, bytes]]:
        """Daemon, service, method and request of every RPC: the request names the task and its source."""
        [master], [worker] = self.cluster.masters, self.cluster.workers
        values: dict[str, Any] = {
            "task": "kept",
            "tasks": "kept",
            "name": "kept",
            "source": "mysql-01",
            "sources": "mysql-01",
        }
        values["nonce"] = b"n" * 16  # by which a server proves itself
        for rpc in all_rpcs():
            raw = filled(rpc.descriptor.input_type, values).SerializeToString()
            for daemon in self.cluster.daemons if rpc.service in OF_EVERYONE else [master if rpc.of_master else worker]:
                yield daemon, rpc.service, rpc.path, raw
        yield from ((daemon, "Health", _HEALTH, b"") for daemon in self.cluster.daemons)

    def ask(self, open_channel: Open, daemon: Daemon, method: str, raw: bytes) -> str:
        """Make a call of any kind, of which all answers are kept; return the name of its status."""
        channel, metadata = open_channel(daemon, method, raw)
        with channel:
            try:
                call: Any = cast("Any", channel).stream_stream(method)(iter([raw]), timeout=30, metadata=metadata)
                self.answers.extend(call)
                return "OK"
            except grpc.RpcError as error:
                assert isinstance(error, grpc.Call)
                self.answers.append(repr((error, error.details(), error.trailing_metadata())).encode())
                return error.code().name

    def get(self, daemon: Daemon, path: str, headers: Mapping[str, str], context: ssl.SSLContext | None) -> int:
        """Return the status of a page, which is kept; 0: the connection was refused."""
        host, _, port = daemon.http.rpartition(":")
        if context is None:
            asked = http.client.HTTPConnection(host, int(port), timeout=30)
        else:
            asked = http.client.HTTPSConnection(host, int(port), context=context, timeout=30)
        with suppress(OSError):
            asked.request("GET", path, headers=dict(headers))
            answer = asked.getresponse()
            self.answers.append(repr(answer.getheaders()).encode() + answer.read())
            return answer.status
        return 0

    def check_nothing_is_found(self) -> None:
        needles = [form for password in (_OF_SOURCE, _OF_TARGET) for form in forms(password)]
        assert len(self.answers) > 100 and not [each for each in self.answers for form in needles if form in each]
        found = [
            f"{path}: {form!r}" for path in files_of(self.cluster) for form in needles if form in path.read_bytes()
        ]
        assert not found, found
        with self.cluster.etcd.client() as etcd:
            records = {record.key: record.value for record in etcd.get_prefix("/").records}
        assert any(b"enc:v2:" in value for value in records.values()), "etcd has the encrypted passwords"
        assert not [key for key, value in records.items() for form in needles if form in value]
        # Another user of the machine finds what is put there for him, and nothing else.
        (self.shared / "tmp" / "control").write_text(f"password: {_OF_SOURCE}\n")
        (self.shared / "tmp" / "control").chmod(0o644)
        kinds = ("cmdline", "environ", "fd", "maps", "task")
        places = [Path(f"/proc/{pid}/{kind}") for pid in processes_of(self.cluster) for kind in kinds]
        seen = seen_by_another_user([_OF_SOURCE, _OF_TARGET], [*places, self.shared])
        assert seen == {str(self.shared / "tmp" / "control")}


@pytest.fixture
def make_scene(
    make_server: Callable[..., MariaDB], watch_logs: Callable[[Path], None]
) -> Iterator[Callable[..., Scene]]:
    made: list[tuple[Scene, tempfile.TemporaryDirectory[str]]] = []

    def make(*, has_tls: bool) -> Scene:
        shared = tempfile.TemporaryDirectory(prefix="sm-canary-")
        scene = Scene(Path(shared.name), make_server("source"), make_server("target"), has_tls=has_tls)
        made.append((scene, shared))
        watch_logs(scene.cluster.directory)
        scene.start()
        return scene

    yield make
    for scene, shared in made:
        scene.cluster.stop()
        shared.cleanup()


@pytest.mark.turns
def test_in_plain_text(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(has_tls=False)
    proofs: dict[tuple[str, str], bytes] = {}
    for daemon in scene.cluster.daemons:
        with identity.own_channel(daemon.address) as own:
            for called, _, method, raw in scene.calls():
                if called is daemon:
                    proofs[daemon.address, method] = identity.proved(own, method, raw)
        daemon.restart()
    scene.cluster.wait_replicating("kept")
    [token] = secret.SecretKey("", b"w" * 32).metrics_tokens

    def with_proof(proof: Callable[[Daemon, str], bytes]) -> Open:
        return lambda daemon, method, _: (identity.plain_channel(daemon.address), ((METADATA, proof(daemon, method)),))

    shown: dict[str, tuple[Open, dict[str, str]]] = {
        "without": (lambda daemon, _method, _raw: (identity.plain_channel(daemon.address), ()), {}),
        "wrong": (with_proof(lambda _daemon, _method: b"\xff" * 50), {"Authorization": "Bearer x"}),
        "expired": (
            with_proof(lambda daemon, method: proofs[daemon.address, method]),
            {"Authorization": f"Bearer {token}"},
        ),
    }
    for name, (open_channel, headers) in shown.items():
        for daemon, service, method, raw in scene.calls():
            status = scene.ask(open_channel, daemon, method, raw)
            is_open = service in (*OF_EVERYONE, *OF_RUN, "Health")
            assert (status != "UNAUTHENTICATED") is is_open, (name, method, status)
        for daemon in scene.cluster.daemons:
            found = {path: scene.get(daemon, path, headers, None) for path in _PATHS}
            assert {path for path, status in found.items() if status == 401} == OF_CALLERS, (name, found)
            assert found["/livez"] == found["/version"] == 200
    scene.check_nothing_is_found()


@pytest.mark.turns
def test_with_certificates(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(has_tls=True)
    other = Authority(scene.shared / "other", "another").issue("own", "dm")
    shown: dict[str, TlsFiles | None] = {
        "without": None,
        "wrong": other,
        "withdrawn": scene.keys.issue("withdrawn", "of a name that is not allowed any more"),
        "expired": scene.keys.issue("expired", "dm", days=-1),
    }
    for name, files in shown.items():
        ca = Path(scene.keys.ca).read_bytes()
        pair = (None, None) if files is None else (Path(files.key).read_bytes(), Path(files.cert).read_bytes())
        credentials, context = grpc.ssl_channel_credentials(ca, *pair), ssl.create_default_context(cafile=scene.keys.ca)
        if files is not None:
            context.load_cert_chain(files.cert, files.key)

        def opened(daemon: Daemon, *_: object, credentials: grpc.ChannelCredentials = credentials) -> Opened:
            return grpc.secure_channel(daemon.address, credentials, [("grpc.use_local_subchannel_pool", 1)]), ()

        for daemon, _, method, raw in scene.calls():
            status = scene.ask(opened, daemon, method, raw)
            assert status == ("PERMISSION_DENIED" if name == "withdrawn" else "UNAVAILABLE"), (name, method)
        for daemon in scene.cluster.daemons:
            assert {scene.get(daemon, path, {}, context) for path in _PATHS} == {0}, name
    scene.check_nothing_is_found()
