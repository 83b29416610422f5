"""Tests that other users of the machine reach no block, page or secret of a worker's Spark, and cannot stop its start.

They reach no port beyond loopback. Their connections fork no process and use little memory.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from shardmerge.proto import errors, worker_pb2, worker_pb2_grpc
from shardmerge.proto.rpc import client
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.mariadb import MariaDB
from tests.support.spark_cluster import SECRET, SparkCluster
from tests.support.spark_merge import SparkMerge
from tests.support.wait import until
from tests.support.world import Family

pytestmark = [pytest.mark.spark, pytest.mark.turns]

_SECRET = "what-nobody-may-read"
_SECRET_KEY = "spark.authenticate.secret"
_SETTINGS = {"master": "local[8]", _SECRET_KEY: _SECRET, "spark.x.password": _SECRET}
_START_SECONDS = 300
_CONNECTIONS = 200
_GARBAGE_BYTES = 65536
_WATCH_SECONDS = 4.0
_GROWTH_BYTES = 50 * 2**20
_PAGES = {
    **_SETTINGS,
    "spark.ui.enabled": "true",
    "spark.redaction.regex": "nothing-else",
}


def _listening(process: psutil.Process) -> set[tuple[str, int]]:
    try:
        return {
            (each.laddr.ip, each.laddr.port)
            for each in process.net_connections(kind="tcp")
            if each.status == psutil.CONN_LISTEN
        }
    except psutil.NoSuchProcess:
        return set()


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = getattr(parsed, "ipv4_mapped", None)
    return parsed.is_loopback or (mapped is not None and mapped.is_loopback)


def _command_lines() -> str:
    """Return the command lines of every process that this user sees, as every user sees them."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
    return "\n".join(found)


def _get(worker: Daemon, path: str, *options: str, at: str = "") -> str:
    """Request a page of Spark at this address, else at each port of the JVM. ``options``: for curl."""
    answers: list[str] = []
    for host, port in _listening(psutil.Process(worker.jvm_pid())):
        assert _is_loopback(host)
        if at and str(port) != at.rpartition(":")[2].strip("/"):
            continue
        done = subprocess.run(
            ["curl", "-s", "-m", "20", *options, "-w", "\n%{http_code}", f"http://127.0.0.1:{port}{path}"],
            capture_output=True,
            text=True,
            check=False,
        )
        body, _, status = done.stdout.rpartition("\n")
        if status == "200":
            answers.append(body)
    return "\n".join(answers)


def _told_page(worker: Daemon) -> str:
    """Return the address of the page, as the worker reports it."""
    with client.channel(worker.address) as channel:
        request = worker_pb2.WorkerStatusRequest()
        return worker_pb2_grpc.WorkerStub(channel).QueryStatus(request, timeout=60).spark_ui


def _no_block_is_served(jvm: psutil.Process) -> None:
    """The lanes are tasks, which are blocks of broadcasts: another program must receive none."""
    ports = [str(port) for _, port in sorted(_listening(jvm))]
    assert ports
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.spark_thief", *ports],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith(("got ", "refused "))]
    assert answers == [f"refused {port}" for port in ports], done.stdout


def test_what_is_reached_of_spark(
    make_server: Callable[..., MariaDB],
    make_cluster: Callable[..., Cluster],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    source, target = make_server("source"), make_server("target")
    cluster = make_cluster(workers=1, worker_settings={"spark": _SETTINGS})
    [worker] = cluster.workers
    cluster.create_source("mysql-01", source)
    family = Family("ports", (("mysql-01", source),), target)
    family.create(100)
    cluster.start_task(family.task())
    cluster.wait_replicating("ports")

    # Every port of every process that the worker has started.
    own = int(worker.address.split(":")[1])
    found = {place for process in worker.session() for place in _listening(process)}
    assert len(found) >= 4
    assert [place for place in found if not _is_loopback(place[0]) and place[1] != own] == []

    # None of them is of Spark's Python processes, nor one of PySpark in the worker: these use Unix sockets.
    http = int(worker.http.split(":")[1])
    assert found - _listening(psutil.Process(worker.jvm_pid())) == {
        place for place in _listening(psutil.Process(worker.pid)) if place[1] in (own, http)
    }

    # There is no page; the worker reports that too.
    assert _get(worker, "/jobs/") == ""
    assert _told_page(worker) == ""

    _no_block_is_served(psutil.Process(worker.jvm_pid()))

    # No list of processes and no remaining file contains the settings; only the worker's user may read its files.
    assert f"{worker.config}" in _command_lines()
    assert _SECRET not in _command_lines()
    assert not [path for path in temporary.rglob("*.conf") if _SECRET in path.read_text(errors="replace")]
    folders = [path for path in temporary.iterdir() if path.is_dir()]
    assert folders
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}

    # The same with the page enabled: at loopback, and without pages that end lanes, show memory, or reveal secrets.
    worker.terminate()
    worker.write_config(spark=_PAGES)
    worker.start()
    cluster.wait_replicating("ports")
    found = {place for process in worker.session() for place in _listening(process)}
    assert [place for place in found if not _is_loopback(place[0]) and place[1] != own] == []
    page = _told_page(worker)
    assert page.startswith("http://127.0.0.1:")
    assert "shardmerge" in _get(worker, "/jobs/", at=page)
    paths = ["/environment/", "/executors/", "/metrics/json/", "/stages/"]
    paths += [f"/{kind}/?executorId=driver" for kind in ("executors/threadDump", "executors/heapHistogram")]
    [application] = set(re.findall(r"local-\d+", _get(worker, "/metrics/json/", at=page)))
    api = f"/api/v1/applications/{application}"
    paths += [f"{api}/environment", f"{api}/executors/driver/threads", f"{api}/executors"]
    for path in paths:
        shown = _get(worker, path, at=page)
        assert _SECRET not in shown, path
        assert "threadState" not in shown, path
        assert "java.lang.String" not in shown, path
        assert "sparkProperties" not in shown, path
        assert "/kill/" not in shown, path
    lanes = worker.spark_task_pids()
    for number in range(8):
        _get(worker, f"/jobs/job/kill/?id={number}", "--data", "", at=page)
        _get(worker, f"/stages/stage/kill/?id={number}", "--data", "", at=page)
    with family.sources[0][1].connect() as link, link.cursor() as cursor:
        cursor.execute("DELETE FROM ports_01.order_01 LIMIT 5")
        link.commit()
    cluster.wait_caught_up("ports", {"mysql-01": source})
    assert worker.spark_task_pids() == lanes
    assert _SECRET not in _command_lines()

    # The worker does not start with settings that remove this protection.
    for setting, code in (
        ({"spark.authenticate": "false"}, errors.worker.SPARK_SETTING_REFUSED.code),
        ({"spark.sql.variable.substitute": "true"}, errors.worker.SPARK_SETTING_REFUSED.code),
        ({"spark.driver.bindAddress": "0.0.0.0"}, errors.worker.SPARK_SETTING_REFUSED.code),
        ({"master": "spark://127.0.0.1:7077", _SECRET_KEY: ""}, errors.worker.SPARK_SECRET_MISSING.code),
    ):
        if worker.alive:
            worker.terminate()
        size = worker.log.stat().st_size
        worker.write_config(spark={**_SETTINGS, **setting})
        worker.start(wait=False)
        until(lambda: not worker.alive, "it refuses to start", 300)
        told_at_start = worker.log.read_bytes()[size:].decode()
        assert f"[{code} " in told_at_start
        assert "what to do:" in told_at_start
        assert _SECRET not in told_at_start


@pytest.mark.grid
@pytest.mark.clusters
def test_what_is_reached_of_an_executor(
    make_spark: Callable[..., SparkCluster], make_merge: Callable[[SparkCluster], SparkMerge]
) -> None:
    spark = make_spark(cores=(4,))
    merge = make_merge(spark)
    merge.family.create(100)
    merge.start()
    [node] = spark.workers
    [executor] = node.executors()
    pythons = node.python_processes()
    assert pythons
    assert [_listening(process) for process in pythons] == [set() for _ in pythons]
    sockets = _sockets([executor, *pythons])
    assert sockets
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in sockets} == {0o700}
    _no_block_is_served(executor)
    assert SECRET not in _command_lines()
    merge.end()


def test_no_module_of_the_working_directory_is_imported(tmp_path: Path) -> None:
    """Other users may write to it: it can be /tmp."""
    folder = tmp_path / "entered"
    folder.mkdir()
    marker = folder / "imported"
    for name, rest in (("struct", "from _struct import *; from _struct import _clearcache"), ("pickletools", "")):
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write(__name__)\n{rest}\n")
    with Cluster(tmp_path / "cluster", workers=0) as cluster:
        worker = Daemon("worker", "w1", cluster.directory, {"etcd": [cluster.etcd.endpoint]}, {})
        worker.folder = folder
        try:
            worker.start()
            until(worker.spark_task_pids, "Python processes run")
            assert not marker.exists(), marker.read_text()
        finally:
            worker.stop()


def _places(worker: Daemon) -> set[tuple[str, int]]:
    """Return where the worker and all processes that it has started listen."""
    try:
        leader = psutil.Process(worker.pid)
        return {place for each in (leader, *leader.children(recursive=True)) for place in _listening(each)}
    except psutil.NoSuchProcess:
        return set()


def _connected(place: tuple[str, int]) -> socket.socket | None:
    try:
        return socket.create_connection(("127.0.0.1", place[1]), timeout=5)
    except OSError:
        return None


@contextmanager
def _silence(worker: Daemon) -> Generator[dict[tuple[str, int], socket.socket | None]]:
    """Connect to each port as soon as the worker has it, and send nothing."""
    held: dict[tuple[str, int], socket.socket | None] = {}
    ended = threading.Event()

    def hold() -> None:
        while not ended.wait(0.1):
            for place in _places(worker) - held.keys():
                held[place] = _connected(place)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield held
    finally:
        ended.set()
        thread.join()
        for each in held.values():
            if each is not None:
                each.close()


def _memory(processes: Iterable[psutil.Process]) -> int:
    """Return the memory of these processes, pages that they share counted once."""
    found = 0
    for process in processes:
        with suppress(psutil.Error):
            found += process.memory_full_info().pss
    return found


def _send_garbage(place: tuple[str, int], open_until: ExitStack) -> None:
    """Send garbage over many connections; they stay open until the end of the stack unless the worker closes them."""
    for _ in range(_CONNECTIONS):
        if (made := _connected(place)) is not None:
            open_until.callback(made.close)
            with suppress(OSError):
                made.setblocking(False)
                made.send(os.urandom(_GARBAGE_BYTES))


def _sockets(processes: Iterable[psutil.Process]) -> set[Path]:
    """Return the paths of the sockets at which these processes listen."""
    found: set[Path] = set()
    for process in processes:
        with suppress(psutil.Error):
            found |= {
                Path(process.cwd(), str(each.laddr)) for each in process.net_connections(kind="unix") if each.laddr
            }
    return {path for path in found if path.suffix == ".sock"}


@pytest.mark.grid
def test_a_stranger_at_the_ports(
    make_cluster: Callable[..., Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The path of this folder is too long for sockets.
    temporary = tmp_path / ("t" * 100)
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    [worker] = make_cluster(workers=1, worker_settings={"spark": {**_SETTINGS, "master": "local[4]"}}).workers
    worker.kill_all()

    # The worker starts, although each of its ports has a connection that sends nothing.
    before = worker.log.stat().st_size
    worker.start(wait=False)
    with _silence(worker) as held:

        def is_ready() -> bool:
            worker.check_alive()
            return b"Spark is ready" in worker.log.read_bytes()[before:]

        until(is_ready, "Spark is ready", _START_SECONDS)
        worker.wait_until_ready()
        places = _places(worker)
        until(lambda: held.keys() >= places, "each port has a silent connection")
    print(f"measured: {len(places)} ports: {sorted(places)}")

    # The JVM's port for Python, those of Spark's driver, and two of the worker itself: none of a Python process.
    own = {int(address.split(":")[1]) for address in (worker.address, worker.http)}
    assert {port for _, port in _listening(psutil.Process(worker.pid))} == own
    jvm = psutil.Process(worker.jvm_pid())
    assert {port for _, port in places} == own | {port for _, port in _listening(jvm)}

    # The sockets in their place are in a folder of this user only.
    sockets = _sockets(worker.session())
    assert len(sockets) == 2
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in sockets} == {0o700}

    # Garbage forks no process, and takes little memory.
    for place in sorted(places):
        processes = [psutil.Process(worker.pid), jvm, *jvm.children(recursive=True)]
        forked = set(worker.spark_task_pids())
        memory = _memory(processes)
        with ExitStack() as open_until:
            _send_garbage(place, open_until)
            end = time.monotonic() + _WATCH_SECONDS
            most = 0
            while time.monotonic() < end:
                assert set(worker.spark_task_pids()) <= forked, place
                most = max(most, _memory(processes) - memory)
                time.sleep(0.5)
        print(f"measured: {place}: {most / 2**20:.1f} MiB")
        assert most < _GROWTH_BYTES, place
    worker.check_alive()

    # No socket remains of a worker that was killed, after the next one has started, nor of one that has ended.
    worker.kill_all()
    assert all(path.exists() for path in sockets)
    worker.start()
    assert not any(path.exists() for path in sockets)
    sockets = _sockets(worker.session())
    assert len(sockets) == 2
    assert worker.terminate() == 0
    assert not any(path.parent.exists() for path in sockets)
