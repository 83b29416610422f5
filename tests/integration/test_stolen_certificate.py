"""Tests who may read and write records with the files of `dmctl tls init`, and the commands of the page for a stolen
certificate (docs/how-to/certificate-stolen.md)."""

from __future__ import annotations

import base64
import http.client
import json
import os
import shlex
import shutil
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest

from shardmerge.proto import errors
from shardmerge.proto.etcd.api import rpc
from shardmerge.proto.tls.model import TlsFiles
from tests.support.daemon import Daemon
from tests.support.dmctl import dmctl
from tests.support.etcd import Etcd
from tests.support.page import DOCS, blocks
from tests.support.wait import until

pytestmark = pytest.mark.turns

STOLEN = DOCS / "how-to" / "certificate-stolen.md"
ALL = {"gRPC read", "gRPC write", "JSON read", "JSON write"}
_FORGED = b"source/evil"
_WITH_PATH = ("--dir", "--ssl-ca", "--ssl-cert", "--ssl-key")


class Folder:
    """The folder in which the commands of the pages run; ``tls/`` in it is that of `dmctl tls init`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.crl = path / "etcd-machine" / "ca.crl"
        self.crl.parent.mkdir(parents=True)

    def follow(self, page: Path, section: str, block: int = 0) -> list[dict[str, Any]]:
        """Run the commands of a block; return the answers of dmctl."""
        chosen = [each for each in blocks(page, section) if each.language == "bash"][block]
        return [self._run(line) for line in chosen.text.splitlines()]

    def _run(self, line: str) -> dict[str, Any]:
        program, *words = shlex.split(line)
        if program == "mv":
            here, there = (self.path / word for word in words)
            here.rename(there)
            return {}
        assert program == "dmctl", line
        return self.dmctl(*words)

    def dmctl(self, *words: str, check: bool = True) -> dict[str, Any]:
        """Run dmctl; return its answer, or its error as "msg". Paths are relative to this folder."""
        paths = [word if before not in _WITH_PATH else str(self.path / word) for before, word in pairwise(("", *words))]
        done = dmctl(["--output", "json", *paths], os.environ, 300)
        assert done.returncode == 0 or not check, done.stderr
        return json.loads(done.stdout) if done.returncode == 0 else {"msg": done.stderr}

    def files(self, name: str, authority: str = "") -> TlsFiles:
        """Return the pair ``name`` of ``authority``, "" or "etcd", for a client that trusts etcd's authority."""
        place = self.path / "tls" / authority
        return TlsFiles(
            str(self.path / "tls" / "etcd" / "ca.pem"), str(place / f"{name}.pem"), str(place / f"{name}.key")
        )

    def replace_list(self) -> None:
        """Copy the list to etcd, as the page does it."""
        copied = self.crl.with_suffix(".new")
        shutil.copyfile(self.path / "tls" / "etcd" / "ca.crl", copied)
        copied.replace(self.crl)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "own")
    made.follow(DOCS / "how-to" / "tls.md", "Make certificates")
    made.replace_list()
    return made


@pytest.fixture
def etcd(folder: Folder, tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path / "etcd", (f"--client-crl-file={folder.crl}",), folder.files("etcd-1", "etcd"))
    server.start()
    yield server
    server.stop()


def allowed(etcd: Etcd, files: TlsFiles) -> set[str]:
    """Return what the holder of ``files`` can do with a new connection."""
    with _opened(etcd.endpoint, files) as channel:
        return _by_grpc(channel) | _by_json(etcd.endpoint, files)


def _opened(endpoint: str, files: TlsFiles) -> grpc.Channel:
    ca, cert, key = (Path(path).read_bytes() for path in (files.ca, files.cert, files.key))
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    return grpc.secure_channel(endpoint, credentials, (("grpc.use_local_subchannel_pool", 1),))


def _by_grpc(channel: grpc.Channel) -> set[str]:
    stub = rpc.KVStub(channel)
    write = rpc.RequestOp(request_put=rpc.PutRequest(key=_FORGED, value=b"{}"))
    calls: dict[str, Callable[[], object]] = {
        "gRPC read": lambda: stub.Range(rpc.RangeRequest(key=_FORGED), timeout=60),
        "gRPC write": lambda: stub.Txn(rpc.TxnRequest(success=[write]), timeout=60),
    }
    done: set[str] = set()
    for name, call in calls.items():
        try:
            call()
            done.add(name)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE, error
    return done


def _by_json(endpoint: str, files: TlsFiles) -> set[str]:
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(files.cert, files.key)
    key = base64.b64encode(_FORGED).decode()
    done: set[str] = set()
    for path, body in {"range": {"key": key}, "put": {"key": key, "value": ""}}.items():
        connection = http.client.HTTPSConnection(endpoint, context=context, timeout=20)
        try:
            connection.request("POST", f"/v3/kv/{path}", json.dumps(body))
            if connection.getresponse().status == 200:
                done.add("JSON read" if path == "range" else "JSON write")
        except OSError:  # a TLS alert, or a connection that etcd closes
            pass
        finally:
            connection.close()
    return done


def _master(folder: Folder, etcd: Etcd, directory: Path) -> Daemon:
    """Return a master with the keys that the page of TLS has."""
    tls, reaching = folder.path / "tls", folder.files("master-1", "etcd")
    keys = {"ssl-ca": str(tls / "ca.pem"), "ssl-cert": str(tls / "master-1.pem"), "ssl-key": str(tls / "master-1.key")}
    keys |= {"etcd-ssl-ca": reaching.ca, "etcd-ssl-cert": reaching.cert, "etcd-ssl-key": reaching.key}
    return Daemon("master", "master-1", directory, {"etcd": [etcd.endpoint], **keys}, {})


def test_certificates_that_are_not_of_etcd(folder: Folder, etcd: Etcd, tmp_path: Path) -> None:
    """Only the clients that etcd's authority has made can read or write records."""
    names = {path.stem for path in (folder.path / "tls" / "etcd").glob("*.pem")}
    assert names == {"ca", "etcd-1", "master-1", "worker-1"}
    assert allowed(etcd, folder.files("master-1", "etcd")) == ALL
    for name in ("dmctl", "master-1", "worker-1"):
        assert allowed(etcd, folder.files(name)) == set()
    # The same certificates are good at an etcd that trusts the authority of the processes: that is what refuses them.
    etcd.stop()
    shared = TlsFiles(str(folder.path / "tls" / "ca.pem"), *folder.files("worker-1").paths[1:])
    other = Etcd(tmp_path / "other", (), shared)
    other.start()
    try:
        assert allowed(other, replace(folder.files("dmctl"), ca=shared.ca)) == ALL
    finally:
        other.stop()


def _leads(folder: Folder, master: Daemon, name: str = "dmctl") -> None:
    def leader() -> bool:
        return bool(_asked(folder, master, name).get("leader"))

    until(leader, "the master leads")


def _asked(folder: Folder, master: Daemon, name: str) -> dict[str, Any]:
    keys = ("--ssl-ca", "tls/ca.pem", "--ssl-cert", f"tls/{name}.pem", "--ssl-key", f"tls/{name}.key")
    return folder.dmctl("--master-addr", master.address, *keys, "list-member", check=False)


def test_the_pairs_of_a_worker_and_dmctls_are_stolen(folder: Folder, etcd: Etcd, tmp_path: Path) -> None:
    stolen = folder.files("worker-1", "etcd")
    master = _master(folder, etcd, tmp_path)
    master.start()
    with _opened(etcd.endpoint, stolen) as thief:
        assert _by_grpc(thief) == {"gRPC read", "gRPC write"}
        try:
            _, revoked = folder.follow(STOLEN, "The pairs of a master or worker")
            assert revoked["etcdRevoked"] == revoked["revoked"] == ["worker-1"]
            assert revoked["certAllowedCn"] == ["dmctl", "master-1", "worker-1b"]
            assert allowed(etcd, stolen) == ALL
            folder.replace_list()
            assert allowed(etcd, stolen) == set()
            assert "revoked" in (etcd.directory / "server.log").read_text()
            assert allowed(etcd, folder.files("worker-1b", "etcd")) == ALL
            # etcd does not check an open connection again.
            assert _by_grpc(thief) == {"gRPC read", "gRPC write"}
            etcd.kill()
            etcd.start()
            assert _by_grpc(thief) == allowed(etcd, stolen) == set()
            _leads(folder, master)
            # The revocation of another certificate leaves the earlier one out of the line, too.
            made, revoked = folder.follow(STOLEN, "dmctl's certificate")
            assert (made["made"], made["etcdMade"]) == (["dmctl-2"], [])
            assert revoked["certAllowedCn"] == ["dmctl-2", "master-1", "worker-1b"]
            master.stop()
            master.write_config(cert_allowed_cn=revoked["certAllowedCn"])
            master.start()
            _leads(folder, master, "dmctl-2")
            assert errors.tls.NAME_REFUSED.name in _asked(folder, master, "dmctl")["msg"]
        finally:
            master.stop()


def test_etcds_pair_and_its_authoritys_key_are_stolen(folder: Folder, etcd: Etcd) -> None:
    folder.follow(STOLEN, "A pair of etcd")
    folder.replace_list()
    stolen = folder.files("etcd-1", "etcd")
    assert allowed(etcd, stolen) == set()
    etcd.stop()
    etcd.tls = folder.files("etcd-1b", "etcd")
    etcd.start()
    assert allowed(etcd, stolen) == set()
    assert allowed(etcd, folder.files("master-1", "etcd")) == ALL
    [made] = folder.follow(STOLEN, "The key of an authority")
    assert made["authority"] and made["etcdAuthority"]
    folder.follow(STOLEN, "The key of an authority", block=1)
    folder.replace_list()
    old, new = folder.path / "tls" / "etcd-stolen", folder.files("master-1", "etcd")
    etcd.stop()
    etcd.tls = folder.files("etcd-1", "etcd")
    etcd.start()
    assert allowed(etcd, new) == ALL
    assert allowed(etcd, TlsFiles(new.ca, str(old / "master-1.pem"), str(old / "master-1.key"))) == set()
