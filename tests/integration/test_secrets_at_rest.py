"""Tests passwords without a configured key: encrypted in etcd, shown only at the Unix socket; and which key is
valid."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors, etcd_keys, secret
from shardmerge.proto import state_pb2 as state
from shardmerge.proto.config.secrets.sealed import in_plain
from shardmerge.proto.errors import ErrorSpec
from shardmerge.proto.etcd import RecordSnapshot
from tests.support.cluster import Cluster, source_yaml
from tests.support.daemon import Daemon
from tests.support.etcd import Etcd
from tests.support.mariadb import MariaDB
from tests.support.wait import until

pytestmark = pytest.mark.spark

OF_SOURCE = "source-Geheim-4713"
OF_TARGET = "target's-Geheim-4714"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[MariaDB, MariaDB]]:
    both = MariaDB(tmp_path / "source", 101), MariaDB(tmp_path / "target", 201)
    for server, password in zip(both, (OF_SOURCE, OF_TARGET), strict=True):
        server.start()
        quoted = password.replace("'", "''")
        server.execute(f"CREATE USER m@'127.0.0.1' IDENTIFIED BY '{quoted}'", "GRANT ALL ON *.* TO m@'127.0.0.1'")
    both[0].execute("CREATE DATABASE rest", "CREATE TABLE rest.t (id INT PRIMARY KEY)", "INSERT INTO rest.t VALUES (1)")
    yield both
    for server in both:
        server.stop()


def task(target: MariaDB) -> str:
    return (
        "name: rest\ntask-mode: all\n"
        f'target-database: {{host: {target.host}, port: {target.port}, user: m, password: "{OF_TARGET}"}}\n'
        "mysql-instances:\n  - source-id: mysql-01\n    block-allow-list: one\n"
        "block-allow-list:\n  one: {do-dbs: [rest]}\n"
    )


def records(etcd: Etcd) -> RecordSnapshot:
    with etcd.client() as client:
        return client.get_prefix(etcd_keys.PREFIX)


def holding(etcd: Etcd, text: str) -> list[str]:
    """Return the keys of the records that contain a text."""
    return [one.key for one in records(etcd).records if text.encode() in one.value]


def open_to_others(folder: Path, apart: tuple[str, ...]) -> list[str]:
    """Return files and folders that another user may access, except those of servers that are not part of the
    program."""
    found: list[str] = []
    for path in (folder, *folder.rglob("*")):
        ours = not any(part in apart for part in path.relative_to(folder).parts)
        if ours and not path.is_symlink() and stat.S_IMODE(path.lstat().st_mode) & 0o077:
            found.append(str(path))
    return found


def test_without_any_setting(servers: tuple[MariaDB, MariaDB], tmp_path: Path) -> None:
    source, target = servers
    with Cluster(tmp_path / "cluster", workers=1) as cluster:
        [master], [worker] = cluster.masters, cluster.workers
        file = source_yaml("mysql-01", source, "m", OF_SOURCE)
        plain = cluster.write("mysql-01.yaml", file)
        cluster.dmctl("operate-source", "create", plain)
        cluster.start_task(task(target))
        cluster.wait_replicating("rest")
        assert not holding(cluster.etcd, OF_SOURCE) + holding(cluster.etcd, OF_TARGET)
        key = tmp_path / "cluster" / "state" / "shardmerge" / "secret.key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
        unchanged = cluster.dmctl("operate-source", "update", plain)
        assert "nothing changes" in unchanged.text

        # No other user of the machine may read a file of the program.
        cluster.compare("rest")
        assert open_to_others(tmp_path / "cluster", ("etcd", "hooks")) == []

        # Secrets are shown only at the Unix socket.
        said = f"[{errors.master.SECRETS_REFUSED.code} {errors.master.SECRETS_REFUSED.name}]"
        refused = cluster.dmctl("config", "export", "-p", str(tmp_path / "refused"), check=False)
        assert refused.code == 1 and said in refused.text and cluster.socket(master) in refused.text
        assert OF_SOURCE not in refused.text and not (tmp_path / "refused").exists()
        socket = Path(cluster.socket(master).removeprefix("unix:"))
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        there = str(tmp_path / "exported")
        cluster.dmctl("--master-addr", cluster.socket(master), "config", "export", "-p", there, check=False)
        assert (tmp_path / "exported" / "sources" / "mysql-01.yaml").read_text() == file
        assert (tmp_path / "exported" / "tasks" / "rest.yaml").read_text() == task(target)
        again = cluster.dmctl("config", "import", "-p", there)
        assert "is there already" in again.text and OF_SOURCE not in again.text
        shown = cluster.dmctl("config", "source", "mysql-01")
        assert OF_SOURCE not in shown.text and "******" in shown.text

        # A worker on another machine without the key reports where to copy the key, and then continues.
        elsewhere = tmp_path / "elsewhere" / "secret.key"
        worker.terminate()
        worker.write_config(secret_key_path=str(elsewhere))
        shutil.copytree(key.parent, elsewhere.parent)
        secret.make_key(str(tmp_path / "other.key"))
        shutil.copy(tmp_path / "other.key", elsewhere)
        worker.start()
        told = f"the key in {elsewhere} did not make it"
        until(lambda: told in worker.log.read_text(), "the worker names the file that is to be another")
        shutil.copy(key, elsewhere)
        source.execute("INSERT INTO rest.t VALUES (2)")
        until(lambda: target.query("SELECT COUNT(*) FROM rest.t") == [(2,)], "it goes on")
        for log in (master.log, worker.log):
            assert OF_SOURCE not in log.read_text() and OF_TARGET not in log.read_text()
    assert not socket.exists()


@pytest.mark.parametrize("form", ["plain", "unbound"])
def test_what_an_earlier_version_stored_is_encrypted_and_nothing_begins_anew(
    servers: tuple[MariaDB, MariaDB], tmp_path: Path, form: str
) -> None:
    source, target = servers
    with Cluster(tmp_path / "cluster", workers=1, master_settings={"worker-ttl": 300}) as cluster:
        [master], [worker] = cluster.masters, cluster.workers
        file = source_yaml("mysql-01", source, "m", OF_SOURCE)
        plain = cluster.write("mysql-01.yaml", file)
        cluster.dmctl("operate-source", "create", plain)
        cluster.start_task(task(target))
        [before] = cluster.wait_replicating("rest").values()
        master.terminate()
        place = str(tmp_path / "cluster" / "state" / "shardmerge" / "secret.key")
        secret.use(place)
        key = secret.load_key(place)
        of_source, of_target = (key.encrypt(one) if form == "unbound" else one for one in (OF_SOURCE, OF_TARGET))
        assert not holding(cluster.etcd, "enc:v1:")
        try:
            _as_before(
                cluster.etcd,
                file.replace(OF_SOURCE, of_source),
                task(target).replace(OF_TARGET, of_target),
                {OF_SOURCE: of_source, OF_TARGET: of_target},
            )
        finally:
            secret.use("")
        assert len(holding(cluster.etcd, of_source)) == 1
        assert sorted(holding(cluster.etcd, of_target)) == [
            etcd_keys.subtask("rest", "mysql-01"),
            etcd_keys.task("rest"),
        ]
        source.execute("INSERT INTO rest.t VALUES (2)")
        until(lambda: target.query("SELECT COUNT(*) FROM rest.t") == [(2,)], "the task goes on by it")

        master.start()
        until(
            lambda: not holding(cluster.etcd, of_source) + holding(cluster.etcd, of_target),
            "the leader has encrypted and bound what was stored",
        )
        source.execute("INSERT INTO rest.t VALUES (3)")
        until(lambda: target.query("SELECT COUNT(*) FROM rest.t") == [(3,)], "the task goes on")
        unchanged = cluster.dmctl("operate-source", "update", plain)
        assert "nothing changes" in unchanged.text
        [after] = cluster.wait_replicating("rest").values()
        assert after.raw["epoch"] == before.raw["epoch"], "no run began anew"
        assert "source released" not in worker.log.read_text()


def _as_before(etcd: Etcd, source_file: str, task_file: str, passwords: dict[str, str]) -> None:
    """Write the records in the form of a version without a key, or with secrets that are bound to no server."""
    with etcd.client() as client:
        for record in client.get_prefix(etcd_keys.PREFIX).records:
            if record.key == etcd_keys.SECRET_KEY:
                client.delete(record.key)
            elif record.key.startswith(etcd_keys.SOURCES):
                source = etcd_keys.decode(state.SourceRecord, record.value, record.key)
                source.config.CopyFrom(in_plain(source.config))
                endpoint: config_pb2.Endpoint = getattr(source.config, "from")
                endpoint.password = passwords[endpoint.password]
                source.yaml = source_file
                client.put(record.key, etcd_keys.encode(source))
            elif record.key.startswith(etcd_keys.TASKS):
                found = etcd_keys.decode(state.TaskRecord, record.value, record.key)
                found.yaml = task_file
                client.put(record.key, etcd_keys.encode(found))
            elif record.key.startswith(etcd_keys.SUBTASKS):
                subtask = etcd_keys.decode(state.SubTaskRecord, record.value, record.key)
                subtask.config.CopyFrom(in_plain(subtask.config))
                subtask.config.target.password = passwords[subtask.config.target.password]
                client.put(record.key, etcd_keys.encode(subtask))


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path / "etcd").start()
    yield server
    server.stop()


def _master(etcd: Etcd, folder: Path, name: str) -> Daemon:
    folder.mkdir(parents=True, exist_ok=True)
    return Daemon("master", name, folder, {"etcd": [etcd.endpoint], "worker-ttl": 300}, {})


def _refuses(master: Daemon, spec: ErrorSpec) -> str:
    master.start(wait=False)
    until(lambda: not master.alive, f"{master.name} ends")
    text = master.log.read_text()
    assert f"[{spec.code} {spec.name}]" in text
    return text


def _leads(etcd: Etcd, name: str) -> bool:
    with etcd.client() as client:
        record = client.get(etcd_keys.LEADER)
    return record is not None and etcd_keys.decode(state.LeaderRecord, record.value, record.key).name == name


def test_whose_key_it_is(etcd: Etcd, tmp_path: Path) -> None:
    first = _master(etcd, tmp_path / "one machine", "m1")
    own = tmp_path / "one machine" / "state" / "shardmerge" / "secret.key"
    beside = _master(etcd, tmp_path / "one machine", "m2")
    other = _master(etcd, tmp_path / "another machine", "m3")
    place = tmp_path / "another machine" / "state" / "shardmerge" / "secret.key"
    try:
        for master in (first, beside):
            master.start(wait=False)
        for master in (first, beside):
            master.wait_until_ready()
        until(lambda: _leads(etcd, "m1") or _leads(etcd, "m2"), "one of them leads")
        until(
            lambda: {one.key for one in records(etcd).records} >= {etcd_keys.master("m1"), etcd_keys.master("m2")},
            "both join",
        )
        said = _refuses(other, errors.master.SECRET_KEY_ABSENT)
        assert str(place) in said and not place.exists(), "no second key is made"
        secret.make_key(str(place))
        assert str(place) in _refuses(other, errors.master.SECRET_KEY_DIFFERS)

        # etcd is not reachable when this master starts: later it must not join.
        etcd.kill()
        other.start()
        etcd.start()
        said = f"[{errors.master.SECRET_KEY_DIFFERS.code} "
        until(lambda: other.log.read_text().count(said) > 1, "it finds out before it joins")
        assert etcd_keys.master("m3") not in {one.key for one in records(etcd).records}
        shutil.copy(own, place)
        until(
            lambda: etcd_keys.master("m3") in {one.key for one in records(etcd).records}, "with the right key it joins"
        )
    finally:
        for master in (first, beside, other):
            master.stop()


def test_clusters_of_one_user_share_the_key(etcd: Etcd, tmp_path: Path) -> None:
    second = Etcd(tmp_path / "second etcd").start()
    here = tmp_path / "machine"
    masters = [_master(server, here, name) for server, name in ((etcd, "a"), (second, "b"))]
    try:
        for master in masters:
            master.start(wait=False)
        until(lambda: _leads(etcd, "a") and _leads(second, "b"), "each leads its own")
        found = [
            {one.value for one in records(server).records if one.key == etcd_keys.SECRET_KEY}
            for server in (etcd, second)
        ]
        assert found[0] == found[1] and len(found[0]) == 1
    finally:
        for master in masters:
            master.stop()
        second.stop()


def test_the_socket_of_a_dead_master_is_taken_over_that_of_a_living_one_is_not(etcd: Etcd, tmp_path: Path) -> None:
    # Short: the path of a socket is limited to 107 bytes.
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"sm-{os.getpid()}"
    path = folder / "m.sock"
    one, other = _master(etcd, tmp_path / "m", "m1"), _master(etcd, tmp_path / "m", "m2")
    try:
        one.write_config(master_socket=str(path))
        one.start()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        other.write_config(master_socket=str(path))
        assert "another process listens there" in _refuses(other, errors.master.SOCKET_UNUSABLE)
        assert path.exists()
        one.kill()
        assert path.exists(), "kill -9 leaves it behind"
        other.start()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert other.terminate() == 0
        assert not path.exists()
        folder.chmod(0o755)
        assert "other users may access its folder" in _refuses(one, errors.master.SOCKET_UNUSABLE)
    finally:
        one.stop()
        other.stop()
        shutil.rmtree(folder, ignore_errors=True)
