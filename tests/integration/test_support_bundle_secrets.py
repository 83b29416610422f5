"""Searches a support bundle for secrets that were put into every place where a user can put one."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest

from shardmerge.proto import errors
from shardmerge.proto.config.daemon.daemon_file import parse_worker, shown
from shardmerge.proto.rpc.coded_errors import error_to_proto
from tests.integration.fake_worker import FakeWorker
from tests.support.bundle import Bundle
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.wait import until

_VARIABLE = "SHARDMERGE_CANARY"


@dataclass
class Canaries:
    """Makes secrets, each with its own text, and remembers them."""

    made: list[str] = field(default_factory=list[str])

    def new(self) -> str:
        self.made.append(f"Geheim+{len(self.made)}/nie?zeigen>{len(self.made):04}")
        return self.made[-1]

    def key(self, path: str) -> str:
        """Return the text of a key file; each of its lines is a secret."""
        text = Path(path).read_text()
        self.made += [line for line in text.splitlines() if line and not line.startswith("-----")]
        return text


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


@pytest.fixture
def cluster(tmp_path: Path, canaries: Canaries) -> Iterator[Cluster]:
    """Provide two masters, which have a secret in their environment, and no worker."""
    environment = {_VARIABLE: canaries.new(), "DM_MASTER_PASSWORD": canaries.new()}
    with Cluster(tmp_path / "cluster", workers=0, masters=2, environment=environment) as made:
        yield made


def _settings(canaries: Canaries, key: str) -> str:
    """Return what a worker records of its own settings."""
    canaries.key(key)
    in_url = quote(canaries.new(), safe="")
    canaries.made.append(in_url)
    lines = [
        "name: w1",
        f"ssl-ca: {key}",
        f"ssl-cert: {key}",
        f"ssl-key: {key}",
        f"# {canaries.new()}",
        "spark:",
        f"  spark.authenticate.secret: {canaries.new()}",
        f"  spark.hadoop.fs.s3a.access.key: {canaries.new()}",
        f"  spark.kubernetes.authenticate.submission.oauthToken: {canaries.new()}",
        f"  spark.executorEnv.DB_PASSWD: {canaries.new()}",
        f"  spark.driver.extraJavaOptions: -Djavax.net.ssl.keyStorePassword={canaries.new()}",
        f"  spark.some.url: https://user:{in_url}@host/path",
    ]
    return shown(parse_worker("\n".join(lines), "w.yaml"))


def _sources(canaries: Canaries, keys: list[str]) -> dict[str, str]:
    """Return source files that hold their secrets in all forms."""
    numbers = ", ".join(str(byte) for byte in canaries.key(keys[0]).encode())
    canaries.made.append(numbers[:60])
    in_base64 = base64.b64encode(canaries.key(keys[1]).encode()).decode()
    canaries.made.append(in_base64[:60])
    canaries.key(keys[2])
    indented = "".join(f"      {line}\n" for line in canaries.key(keys[3]).splitlines())
    head = "  host: 127.0.0.1\n  port: 3306\n  user: dm\n"
    return {
        "plain": f"source-id: plain # {canaries.new()}\nfrom:\n{head}  password: {canaries.new()}\n"
        f"# {canaries.new()}\n",
        "bytes": f"source-id: bytes\nfrom:\n{head}  password: '{canaries.new()}'\n"
        f"  security: {{ssl-cert: /c.pem, ssl-key-bytes: [{numbers}]}}\n",
        "base64": f"source-id: base64\nfrom:\n{head}  password: |\n    {canaries.new()}\n"
        f"  security: {{ssl-cert: /c.pem, ssl-key-base64: {in_base64}}}\n",
        "text": f"source-id: text\nfrom:\n{head}  password: ''\n"
        f"  security:\n    ssl-cert: /c.pem\n    ssl-key-bytes: |\n{indented}",
        "file": f"source-id: file\nfrom:\n{head}  password: '{canaries.new()}'\n"
        f"  security: {{ssl-ca: {keys[2]}, ssl-cert: {keys[2]}, ssl-key: {keys[2]}}}\n",
        "variable": f'source-id: variable\nfrom:\n{head}  password: "${{{_VARIABLE}}}"\n',
        "alias": f"source-id: alias\nfrom:\n{head}  password: &p {canaries.new()}\n  session: {{init_connect: *p}}\n",
    }


def _task(canaries: Canaries, name: str, key: str) -> str:
    indented = "".join(f"      {line}\n" for line in canaries.key(key).splitlines())
    return (
        f"name: {name}\ntask-mode: incremental\ntarget-database:\n  host: 127.0.0.1\n  port: 4000\n  user: dm\n"
        f"  # before: {canaries.new()}\n  password: '{canaries.new()}'\n"
        f"  security:\n    ssl-cert: /c.pem\n    ssl-key-bytes: |\n{indented}"
        "mysql-instances:\n  - {source-id: plain, meta: {start-at: earliest}}\n"
    )


@pytest.mark.turns
def test_no_secret_is_in_any_byte(cluster: Cluster, canaries: Canaries, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "keys")
    keys = [authority.issue(f"k{number}", "dm").key for number in range(6)]
    with ExitStack() as stack:
        # The source is created while there is one worker, which then holds it.
        worker = FakeWorker("w1", cluster.etcd.endpoint, settings=_settings(canaries, keys[4])).start()
        stack.callback(worker.stop)
        for name, text in _sources(canaries, keys).items():
            cluster.dmctl("operate-source", "create", cluster.write(f"{name}.yaml", text))
        cluster.wait_bound(["plain"])
        cluster.dmctl("start-task", cluster.write("t.yaml", _task(canaries, "merge", keys[5])))
        # Files and statements that are refused, and an override, which is stored.
        for text in (f"name: [{canaries.new()}", f"from: {{password: {canaries.new()}, no-such-key: 1}}"):
            assert cluster.dmctl("operate-source", "create", cluster.write("bad.yaml", text), check=False).code == 1
        statement = f"ALTER TABLE a.b COMMENT '{canaries.new()}'"
        cluster.dmctl("binlog", "replace", "merge", statement, "-b", "mysql-bin.000001:4", check=False)
        # The error of a row, with its key and the text of the server.
        names = {"source": "plain", "schema": "s", "table": "t", "target_schema": "s", "target_table": "u"}
        reason = f"Duplicate entry 'O'{canaries.new()}' for key 'PRIMARY'"
        refused = errors.replicate.ROW_REFUSED(**names, position="b:4", key=canaries.new(), reason=reason, errno=1062)
        worker.behaviour.paused_with = error_to_proto(refused)
        cluster.dmctl("pause-task", "merge", check=False)
        assert "Duplicate" in cluster.dmctl("resume-task", "merge", check=False).text
        # A worker that is gone, and still holds a source.
        gone = FakeWorker("w2", cluster.etcd.endpoint).start()
        until(lambda: gone.source, "the second worker has a source", 60)
        gone.vanish()
        gone.lapse()

        path = tmp_path / "b.tar.gz"
        answer = cluster.dmctl("support-bundle", "-o", str(path))
        bundle = Bundle(path)

    canaries.key(str(cluster.directory / "state" / "shardmerge" / "secret.key"))
    assert len(canaries.made) > 30 and min(map(len, canaries.made)) > 10
    assert bundle.found((*canaries.made, "enc:v1:", "enc:v2:")) == []

    # It is not empty: all of the places are in the bundle.
    assert len([name for name in bundle.files if name.startswith("config/sources/")]) == 7
    assert "port: 3306" in bundle.text("config/sources/base64.yaml")
    assert f"${{{_VARIABLE}}}" in bundle.text("config/sources/variable.yaml")
    assert "spark.some.url" in bundle.text("config/workers/w1.yaml")
    assert "user: dm" in bundle.text("config/tasks/merge.yaml")
    assert f"[{errors.replicate.ROW_REFUSED.code} row-refused]" in bundle.readme
    assert "errno 1062" in bundle.readme
    assert {f"daemons/{name}/about.json" for name in ("master-master-1", "master-master-2", "worker-w1")} <= set(
        bundle.files
    )
    missing = {one["what"]: one["error"] for one in answer.json["notCollected"]}
    assert missing["the diagnostics of worker w2"].startswith(f"[{errors.master.WORKER_UNKNOWN.code} ")
    assert "worker w2 is offline" in bundle.readme
    _without_etcd(cluster, tmp_path / "without-etcd.tar.gz")


@pytest.mark.turns
def test_a_worker_that_does_not_answer_is_listed(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", workers=0, masters=1) as cluster, ExitStack() as stack:
        workers = [FakeWorker(name, cluster.etcd.endpoint).start() for name in ("answers", "earlier", "silent")]
        for worker in workers:
            stack.callback(worker.stop)
        workers[1].behaviour.is_earlier = workers[2].behaviour.is_silent = True
        path = tmp_path / "b.tar.gz"
        began = time.monotonic()
        answer = cluster.dmctl("support-bundle", "-o", str(path))
        assert time.monotonic() - began < 30
        missing = {one["what"]: one["error"] for one in answer.json["notCollected"]}
        unknown, late = errors.master.PEER_UNIMPLEMENTED.code, errors.master.PEER_TIMEOUT.code
        assert missing["the diagnostics of worker earlier"].startswith(f"[{unknown} ")
        assert missing["the diagnostics of worker silent"].startswith(f"[{late} ")
        bundle = Bundle(path)
        assert "daemons/worker-answers/about.json" in bundle.files and "worker silent" in bundle.readme

        refused = cluster.dmctl("support-bundle", "-o", str(tmp_path / "no" / "b.tar.gz"), check=False)
        assert refused.code == 1 and f"[{errors.ctl.WRITE_FAILED.code} " in refused.text
        assert not (tmp_path / "no").exists()


def _without_etcd(cluster: Cluster, path: Path) -> None:
    """A master answers for itself, and for the daemons that it knows."""
    cluster.etcd.stop()
    answer = cluster.dmctl("support-bundle", "-o", str(path))
    cluster.etcd.ensure_running()  # without it masters end slowly
    bundle = Bundle(path)
    assert {name for name in bundle.files if name.endswith("/stacks.txt")} & {
        f"daemons/master-{master.name}/stacks.txt" for master in cluster.masters
    }
    unavailable = f"[{errors.master.ETCD_UNAVAILABLE.code} "
    missing = {one["what"]: one["error"] for one in answer.json["notCollected"]}
    assert missing["the members"].startswith(unavailable)
    assert missing["the configurations of tasks"].startswith(unavailable)
    assert missing[f"the state of etcd {cluster.etcd.endpoint}"].startswith(unavailable)


def test_the_search_finds_each_form(tmp_path: Path) -> None:
    """The search itself is tested: a search that finds nothing anywhere would prove nothing."""
    import io
    import tarfile

    secret = "Geheim+1/nie?zeigen>0001"
    raw = secret.encode()
    forms = {
        "plain": b"x" + raw,
        "hex": raw.hex().encode(),
        **{f"base64-{n}": base64.b64encode(b"abc"[:n] + raw + b"abc") for n in range(3)},
        **{f"url-{n}": base64.urlsafe_b64encode(b"abc"[:n] + raw + b"abc") for n in range(3)},
    }
    for name, content in forms.items():
        path = tmp_path / f"{name}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            entry = tarfile.TarInfo("shardmerge-support-x/file")
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
        path.chmod(0o600)
        assert "file" in {place for _, place in Bundle(path).found([secret])}, name
