"""Files of dm-master and dm-worker, flags over them, and the samples that are shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.config.daemon.daemon_file import load_daemon, parse_master, parse_worker
from shardmerge.proto.config.daemon.model import MasterFile, WorkerFile
from shardmerge.proto.config.daemon.tls import etcd_tls_of, tls_of
from shardmerge.proto.config.source import parse_source_file
from shardmerge.proto.config.task.task_file import parse_task
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.tls.model import Tls, TlsFiles

EXAMPLES = Path(__file__).parents[5] / "deploy" / "examples"


def test_defaults_and_identity() -> None:
    master = parse_master("", "m", {})
    assert master.master_addr == master.advertise_addr == "127.0.0.1:8261"
    assert master.etcd == ("127.0.0.1:2379",)
    assert master.lock_alert_seconds == 300
    assert parse_master("lock-alert-seconds: 60\n", "m", {}).lock_alert_seconds == 60
    assert parse_master("lock-alert-seconds: 60\n", "m", {"lock-alert-seconds": "5"}).lock_alert_seconds == 5
    assert master.name.endswith("-8261")
    worker = parse_worker("worker-addr: :8300\ninsecure: true\n", "w", {})
    assert worker.advertise_addr.endswith(":8300")
    assert not worker.advertise_addr.startswith(":")
    assert (worker.keepalive_ttl, worker.drain_seconds, worker.max_inflated_event_mib) == (10, 10, 256)
    assert worker.spark_settings() == {"spark.master": "local[64]"}


@pytest.mark.parametrize(
    "text",
    [
        *(f"worker-addr: '{host}:1'" for host in ("localhost", "127.0.0.1", "127.1.2.3", "[::1]", "Localhost.")),
        "{worker-addr: ':1', insecure: true}",
        "{worker-addr: ':1', advertise-addr: 'h:1', ssl-ca: a, ssl-cert: b, ssl-key: c}",
    ],
)
def test_addresses_that_are_taken(text: str) -> None:
    worker = parse_worker(text, "w", {})
    assert worker.is_open == worker.insecure


@pytest.mark.parametrize(
    ("text", "address", "is_default"),
    [
        ("", "127.0.0.1:9262", True),
        ("{worker-addr: 'h:8300', insecure: true, http-addr: AUTO}", "127.0.0.1:9300", True),
        ("worker-addr: 127.0.0.1:65000", "127.0.0.1:64000", True),
        ("http-addr: 127.0.0.1:9000", "127.0.0.1:9000", False),
        ("http-addr: off", "", False),
        ("http-addr: ''", "", False),
        ("{http-addr: ':9262', insecure: true}", ":9262", False),
        ("{http-addr: ':9262', ssl-ca: a, ssl-cert: b, ssl-key: c}", ":9262", False),
    ],
)
def test_address_of_the_http_endpoint(text: str, address: str, is_default: bool) -> None:
    worker = parse_worker(text, "w", {})
    assert (worker.http_address, worker.http_is_default) == (address, is_default)


def test_flags_win_over_the_file() -> None:
    worker = parse_worker("name: a\netcd: [h:1]\n", "w", {"name": "b", "etcd": "x:1,y:2", "drain-seconds": "3"})
    assert (worker.name, worker.etcd, worker.drain_seconds) == ("b", ("x:1", "y:2"), 3)


def test_spark_settings() -> None:
    worker = parse_worker("spark: {master: 'local[4]', spark.driver.memory: 1g}\n", "w")
    assert worker.spark_settings() == {"spark.master": "local[4]", "spark.driver.memory": "1g"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("worker-addr: 8262", "w:1:14: worker-addr: must be host:port"),
        ("worker-addr: ::1:8262", "an IPv6 address needs brackets"),
        ("advertise-addr: :8262", "must name a host that the other processes can reach"),
        ("etcd: []", "w:1:7: etcd: needs at least 1"),
        ("http-addr: 9262", "w:1:12: http-addr: must be host:port"),
        ("metrics-per-table: some", "w:1:20: metrics-per-table: must be one of 'auto', 'on' or 'off'"),
        ("log-level: loud", "must be one of 'debug', 'info', 'warn', 'error' or 'fatal'"),
        ("keepalive-ttl: 0", "keepalive-ttl: must be at least 1"),
        ("spark: {mster: x}", "spark.mster: must be master or the full name of a Spark setting"),
        ("relay_dir: x", "w:1:1: relay_dir: unknown key; did you mean relay-dir?"),
    ],
)
def test_refused(text: str, says: str) -> None:
    with pytest.raises(ShardmergeError) as caught:
        parse_worker(text, "w")
    assert caught.value.spec is errors.config.INVALID
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("worker-addr: :8262", "w:1:14: worker-addr: other machines reach :8262, and without TLS"),
        ("worker-addr: '[::]:8262'", "other machines reach [::]:8262"),
        ("worker-addr: 0.0.0.0:8262", "other machines reach 0.0.0.0:8262"),
        ("worker-addr: 10.0.0.2:8262", "other machines reach 10.0.0.2:8262"),
        ("worker-addr: worker.example:8262", "other machines reach worker.example:8262"),
        (
            "http-addr: :9262",
            "w:1:12: http-addr: other machines reach :9262, and without TLS any program there may read",
        ),
        ("advertise-addr: 10.0.0.2:8262", "w:1:17: advertise-addr: other machines reach 10.0.0.2:8262"),
    ],
)
def test_addresses_that_are_refused(text: str, says: str) -> None:
    with pytest.raises(ShardmergeError) as caught:
        parse_worker(text, "w")
    assert caught.value.spec is errors.config.OPEN_ADDRESS
    assert says in caught.value.message
    assert "dmctl tls init" in caught.value.workaround and "insecure: true" in caught.value.workaround


def test_a_wrong_alert_is_refused() -> None:
    with pytest.raises(ShardmergeError) as caught:
        parse_master("name: x\nlock-alert-seconds: 0\n", "m")
    assert "m:2:" in caught.value.message
    assert "lock-alert-seconds: must be at least 1" in caught.value.message


def test_a_wrong_flag_is_not_blamed_on_the_file() -> None:
    with pytest.raises(ShardmergeError) as caught:
        parse_master("name: x\n", "m", {"log-level": "loud"})
    assert caught.value.message.startswith("command line: log-level:")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, content in ((tmp_path / "none", None), (tmp_path / "latin", b"name: \xe9")):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ShardmergeError) as caught:
            load_daemon(MasterFile, path)
        assert caught.value.spec is errors.config.UNREADABLE


def test_the_shipped_samples_are_valid() -> None:
    environ = {"DM_TARGET_PASSWORD": "t", "DM_SOURCE_PASSWORD": "s"}
    task = parse_task((EXAMPLES / "task.yaml").read_text(), "task.yaml", environ)
    assert [subtask.source_id for subtask in task.to_subtasks()] == ["mysql-01", "mysql-02"]
    assert all(subtask.target.password == "t" for subtask in task.to_subtasks())
    source = parse_source_file((EXAMPLES / "source.yaml").read_text(), "source.yaml", environ)
    assert source.config.source_id == "mysql-01"
    assert not source.notes
    assert load_daemon(MasterFile, EXAMPLES / "master.yaml").model.name == "master-1"
    assert load_daemon(WorkerFile, EXAMPLES / "worker.yaml").model.spark_settings()["spark.driver.memory"] == "512m"


def tls(text: str) -> tuple[Tls | None, TlsFiles | None]:
    """Between the processes, and to etcd."""
    worker = parse_worker(text, "w")
    return tls_of(worker), etcd_tls_of(worker)


def test_tls_of_a_daemon() -> None:
    assert tls("") == (None, None)
    ours = "ssl-ca: ca\nssl-cert: cert\nssl-key: key\n"
    files = TlsFiles("ca", "cert", "key")
    assert tls(ours) == (Tls(files), files)
    assert tls(ours + "cert-allowed-cn: [a, b]\n") == (Tls(files, ("a", "b")), files)
    assert parse_worker(ours, "w", {"cert-allowed-cn": "a, b"}).cert_allowed_cn == ("a", "b")


def test_tls_to_etcd_of_its_own() -> None:
    ours = "ssl-ca: ca\nssl-cert: cert\nssl-key: key\n"
    assert tls(ours + "etcd: ['http://h:1']\n")[1] is None
    assert tls(ours + "etcd-ssl-ca: other\n")[1] == TlsFiles("other", "cert", "key", "etcd-")
    alone = "etcd-ssl-ca: other\netcd-ssl-cert: c\netcd-ssl-key: k\n"
    assert tls(alone) == (None, TlsFiles("other", "c", "k", "etcd-"))
    assert tls(ours + alone)[1] == TlsFiles("other", "c", "k", "etcd-")
    assert tls("etcd-ssl-ca: other\n") == (None, TlsFiles("other", "", "", "etcd-"))
    # Its own certificate, the common authority.
    assert tls(ours + "etcd-ssl-cert: c\netcd-ssl-key: k\n")[1] == TlsFiles("ca", "c", "k", "etcd-")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ssl-ca: a", "w:1:1: ssl-ca: ssl-ca, ssl-cert and ssl-key go together: ssl-cert and ssl-key are missing"),
        ("ssl-ca: a\nssl-key: k", "ssl-cert is missing"),
        ("cert-allowed-cn: [a]", "w:1:1: cert-allowed-cn: needs ssl-ca"),
        ("etcd-ssl-ca: a\netcd-ssl-key: k", "w:2:1: etcd-ssl-key: etcd-ssl-key without etcd-ssl-cert"),
        ("etcd: ['https://h:2379']", "w:1:7: etcd: https:// needs etcd-ssl-ca or ssl-ca"),
        (
            "etcd: ['ftp://h:2379']",
            "must be host:port, https://host:port, http://host:port or unix:/path/of/the/socket",
        ),
    ],
)
def test_tls_keys_without_those_they_need(text: str, says: str) -> None:
    with pytest.raises(ShardmergeError) as caught:
        parse_worker(text + "\n", "w")
    assert caught.value.spec is errors.config.INVALID
    assert says in caught.value.message
