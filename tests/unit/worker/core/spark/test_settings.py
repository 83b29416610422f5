"""The settings of a worker's Spark: defaults, refused settings, encryption, and the properties file."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.spark.settings import effective, is_protected, properties, slots, ui_address

_SECRET = {"spark.authenticate.secret": "s"}
_STANDALONE = {"spark.master": "spark://host:7077", **_SECRET}
_UI_TLS = {"spark.ssl.ui.enabled": "true"}


@pytest.mark.parametrize(
    ("settings", "safe"),
    [
        ({"spark.master": "local[16]"}, True),
        (_STANDALONE, True),
        ({"spark.master": "yarn", "spark.network.crypto.enabled": "false"}, False),
        ({"spark.master": "yarn", "spark.network.crypto.enabled": "true"}, True),
        ({"spark.master": "k8s://host", "spark.ssl.rpc.enabled": "true"}, True),
    ],
)
def test_connections_of_spark(settings: dict[str, str], safe: bool) -> None:
    assert is_protected(effective(settings)) is safe


@pytest.mark.parametrize("master", ["local", "local[16]", "local[*]", "local[2,3]", "yarn", "k8s://host:443"])
def test_what_protects_is_on_without_a_word(master: str) -> None:
    found = effective({"spark.master": master})
    assert found["spark.authenticate"] == "true"
    assert found["spark.python.unix.domain.socket.enabled"] == "true"
    assert found["spark.sql.variable.substitute"] == "false"
    assert (found["spark.ui.enabled"], found["spark.ui.killEnabled"]) == ("false", "false")
    assert (found["spark.ui.threadDumpsEnabled"], found["spark.ui.heapHistogramEnabled"]) == ("false", "false")
    assert (found["spark.driver.bindAddress"], found["spark.driver.host"]) == ("127.0.0.1", "127.0.0.1")
    assert found.get("spark.network.crypto.enabled") == (None if master.startswith("local") else "true")


@pytest.mark.parametrize(
    ("settings", "spec", "named"),
    [
        ({"spark.authenticate": "false"}, errors.worker.SPARK_SETTING_REFUSED, "spark.authenticate: false"),
        ({"spark.authenticate": " FALSE"}, errors.worker.SPARK_SETTING_REFUSED, "spark.authenticate"),
        (
            {"spark.python.unix.domain.socket.enabled": "false"},
            errors.worker.SPARK_SETTING_REFUSED,
            "spark.python.unix.domain.socket.enabled: false",
        ),
        (
            {"spark.python.unix.domain.socket.dir": "/tmp"},
            errors.worker.SPARK_SETTING_REFUSED,
            "spark.python.unix.domain.socket.dir: /tmp",
        ),
        ({"spark.sql.variable.substitute": "true"}, errors.worker.SPARK_SETTING_REFUSED, "variable.substitute: true"),
        ({"spark.ui.killEnabled": "true"}, errors.worker.SPARK_SETTING_REFUSED, "spark.ui.killEnabled: true"),
        ({"spark.ui.threadDumpsEnabled": "true"}, errors.worker.SPARK_SETTING_REFUSED, "threadDumpsEnabled"),
        ({"spark.ui.heapHistogramEnabled": "true"}, errors.worker.SPARK_SETTING_REFUSED, "heapHistogramEnabled"),
        ({"spark.driver.bindAddress": "0.0.0.0"}, errors.worker.SPARK_SETTING_REFUSED, "bindAddress: 0.0.0.0"),
        ({"spark.driver.bindAddress": "::"}, errors.worker.SPARK_SETTING_REFUSED, "bindAddress: ::"),
        (
            {"spark.master": "yarn", "spark.driver.bindAddress": "0.0.0.0", "spark.network.crypto.enabled": "false"},
            errors.worker.SPARK_SETTING_REFUSED,
            "bindAddress",
        ),
        ({"spark.master": "spark://host:7077"}, errors.worker.SPARK_SECRET_MISSING, "spark://host:7077"),
        ({"spark.master": "local-cluster[1,1,1024]"}, errors.worker.SPARK_SECRET_MISSING, "local-cluster"),
        ({"spark.master": "sc://host:15002"}, errors.config.SPARK_MASTER, "master: sc://host:15002"),
    ],
)
def test_what_takes_protection_away_is_refused(settings: dict[str, str], spec: ErrorSpec, named: str) -> None:
    with pytest.raises(ShardmergeError) as caught:
        effective(settings)
    assert caught.value.spec is spec
    assert named in caught.value.message
    assert "spark" in caught.value.workaround


def test_every_interface_with_encryption() -> None:
    found = effective({"spark.master": "yarn", "spark.driver.bindAddress": "0.0.0.0"})
    assert found["spark.driver.bindAddress"] == "0.0.0.0"
    assert ui_address(found, "", only_tls=False) == "127.0.0.1"


@pytest.mark.parametrize(
    ("settings", "environment", "only_tls", "address"),
    [
        ({}, "", False, "127.0.0.1"),
        ({"spark.driver.bindAddress": "10.1.2.3"}, "", False, "10.1.2.3"),
        ({"spark.driver.bindAddress": "10.1.2.3"}, "", True, "127.0.0.1"),
        ({"spark.driver.bindAddress": "10.1.2.3", **_UI_TLS}, "", True, "10.1.2.3"),
        ({}, "10.1.2.3", False, "10.1.2.3"),
        (_UI_TLS, "0.0.0.0", False, "0.0.0.0"),
    ],
)
def test_where_the_page_listens(settings: dict[str, str], environment: str, only_tls: bool, address: str) -> None:
    assert ui_address(effective(settings), environment, only_tls=only_tls) == address


def test_a_plain_page_is_not_for_every_interface() -> None:
    with pytest.raises(ShardmergeError) as caught:
        ui_address(effective({}), "0.0.0.0", only_tls=False)
    assert caught.value.spec is errors.worker.SPARK_SETTING_REFUSED
    assert "SPARK_LOCAL_IP: 0.0.0.0" in caught.value.message


def test_what_the_page_hides_can_only_become_more() -> None:
    own = effective({"spark.redaction.regex": "host"})["spark.redaction.regex"]
    assert own == effective({})["spark.redaction.regex"] + "|(host)"


def test_options_are_joined() -> None:
    found = effective({"spark.driver.extraJavaOptions": "-Dx=1"}, Path("/tmp/a b"))
    assert found["spark.driver.extraJavaOptions"].endswith(' -Dx=1 -Djava.io.tmpdir="/tmp/a b"')
    assert found["spark.local.dir"] == "/tmp/a b"


@pytest.mark.parametrize("master", ["local[4]", "yarn"])
def test_where_the_sockets_are_is_not_for_the_user(master: str) -> None:
    """Spark makes them in the folder for temporary files; of equal options the JVM uses the last one. Executors get the
    settings of the driver, and do not have its folder."""
    own = {"spark.master": master, "spark.driver.extraJavaOptions": "-Djava.io.tmpdir=/tmp"}
    found = effective(own, Path("/var/long"), sockets=Path("/tmp/short"))
    assert found["spark.driver.extraJavaOptions"].endswith('-Djava.io.tmpdir=/tmp -Djava.io.tmpdir="/tmp/short"')
    assert found["spark.local.dir"] == "/var/long"
    assert "spark.python.unix.domain.socket.dir" not in found


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[7]"}, 7),
        ({"spark.master": "local[7,2]"}, 7),
        ({"spark.master": "local[*]"}, None),
        ({"spark.master": "yarn", "spark.cores.max": "9"}, 9),
        ({"spark.master": "yarn", "spark.cores.max": "9", "spark.task.cpus": "2"}, 4),
        ({"spark.master": "yarn", "spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        (_STANDALONE, None),
    ],
)
def test_slots(settings: dict[str, str], count: int | None) -> None:
    assert slots(effective(settings)) == count


@pytest.mark.parametrize(
    ("settings", "bind", "host"),
    [
        (_STANDALONE, "10.0.0.2", "10.0.0.2"),
        ({"spark.master": "yarn", "spark.driver.bindAddress": "10.1.2.3"}, "10.1.2.3", "10.0.0.2"),
        ({"spark.master": "yarn", "spark.driver.host": "worker-1"}, "10.0.0.2", "worker-1"),
        ({"spark.master": "local[4]"}, "127.0.0.1", "127.0.0.1"),
    ],
)
def test_executors_reach_the_driver_at_the_advertised_host(settings: dict[str, str], bind: str, host: str) -> None:
    found = effective(settings, advertised="10.0.0.2:8262")
    assert (found["spark.driver.bindAddress"], found["spark.driver.host"]) == (bind, host)


def test_the_page_stays_at_loopback_where_the_driver_does_not() -> None:
    assert ui_address(_STANDALONE, "", only_tls=False) == "127.0.0.1"


def test_a_worker_that_executors_cannot_reach() -> None:
    with pytest.raises(ShardmergeError) as caught:
        effective(_STANDALONE, advertised="127.0.0.1:8262")
    assert caught.value.spec is errors.worker.SPARK_WORKER_ON_LOOPBACK
    assert "127.0.0.1:8262" in caught.value.message
    assert "advertise-addr" in caught.value.workaround


def test_a_task_of_a_cluster_fails_once() -> None:
    assert effective(_STANDALONE)["spark.task.maxFailures"] == "1"
    assert "spark.task.maxFailures" not in effective({"spark.master": "local[4]"})


def test_options_of_executors_are_joined() -> None:
    found = effective({**_STANDALONE, "spark.executor.extraJavaOptions": "-Dx=1"})
    assert found["spark.executor.extraJavaOptions"].endswith(" -Djavax.xml.accessExternalDTD= -Dx=1")
    assert "spark.executor.extraJavaOptions" not in effective({"spark.master": "local[4]"})


def test_a_file_of_properties() -> None:
    text = properties({"spark.a": "x=1 # \\ \n\ty", "spark.b c": " z: é"})
    assert text == "spark.a=x=1 # \\\\ \\n\\ty\nspark.b\\ c=\\ z: é\n"


def test_a_lost_executor_is_noticed_soon_on_a_cluster() -> None:
    found = effective(_STANDALONE)
    assert found["spark.executor.heartbeatInterval"] == "2s"
    assert found["spark.storage.blockManagerHeartbeatTimeoutMs"] == "15s"
    assert found["spark.network.timeoutInterval"] == "1s"
    assert found["spark.executor.heartbeat.maxFailures"] == "15"
    assert not [key for key in effective({"spark.master": "local[4]"}) if "eartbeat" in key]


@pytest.mark.parametrize("key", ["spark.network.timeout", "spark.executor.heartbeatInterval"])
def test_own_heartbeats_are_kept_without_ours(key: str) -> None:
    """With ours, Spark would ignore the first one, and refuse the second one if it is longer than our time-out."""
    found = effective({**_STANDALONE, key: "60s"})
    assert found[key] == "60s"
    assert "spark.storage.blockManagerHeartbeatTimeoutMs" not in found
