"""Settings of Spark with which no worker starts: found by check-config and at the start, with code, line and reason."""

from __future__ import annotations

import pytest

from shardmerge.proto import errors
from shardmerge.proto.config.check import check_text
from shardmerge.proto.config.daemon.daemon_file import parse_worker
from shardmerge.proto.config.daemon.spark import problem_of
from shardmerge.proto.errors import ErrorSpec, ShardmergeError

_CLUSTER = "master: spark://10.0.0.1:7077, spark.authenticate.secret: s"
_ADDRESS = "worker-addr: 10.0.0.2:8262\ninsecure: true\n"
_REFUSED = errors.worker.SPARK_SETTING_REFUSED


@pytest.mark.parametrize(
    ("spark", "spec", "says"),
    [
        ("master: 'sc://10.0.0.1:15002'", errors.config.SPARK_MASTER, "master: sc://10.0.0.1:15002"),
        ("spark.remote: 'sc://10.0.0.1'", errors.config.SPARK_MASTER, "spark.remote: sc://10.0.0.1"),
        ("spark.api.mode: Connect", errors.config.SPARK_MASTER, "spark.api.mode: Connect"),
        ("master: 'mesos://10.0.0.1'", errors.config.SPARK_MASTER, "master: mesos://10.0.0.1"),
        (_CLUSTER + ", spark.speculation: 'true'", _REFUSED, "a second process for a lane"),
        (_CLUSTER + ", spark.task.maxFailures: '4'", _REFUSED, "spark.task.maxFailures: 4"),
        (_CLUSTER + ", spark.dynamicAllocation.enabled: 'true'", _REFUSED, "minExecutors above 0"),
        ("spark.authenticate: 'false'", _REFUSED, "spark.authenticate: false"),
        ("spark.python.unix.domain.socket.enabled: 'false'", _REFUSED, "ports of loopback"),
        (_CLUSTER + ", spark.python.unix.domain.socket.dir: /tmp", _REFUSED, "makes a private folder"),
        ("master: spark://10.0.0.1:7077", errors.worker.SPARK_SECRET_MISSING, "spark://10.0.0.1:7077"),
    ],
)
def test_refused_settings(spark: str, spec: ErrorSpec, says: str) -> None:
    text = f"{_ADDRESS}spark: {{{spark}}}\n"
    [finding] = check_text(text, "w.yaml").findings
    assert (finding.spec, finding.line) == (spec, 3)
    assert says in finding.message
    with pytest.raises(ShardmergeError) as caught:
        parse_worker(text, "w.yaml")
    assert caught.value.spec is spec
    assert says in caught.value.message
    assert "<" not in caught.value.message


@pytest.mark.parametrize(
    "spark",
    [
        _CLUSTER,
        _CLUSTER + ", spark.speculation: 'false', spark.task.maxFailures: '1'",
        _CLUSTER + ", spark.dynamicAllocation.enabled: 'true', spark.dynamicAllocation.minExecutors: '2'",
        "master: yarn",
        "master: 'k8s://https://10.0.0.1:443'",
        "spark.speculation: 'true', spark.dynamicAllocation.enabled: 'true', spark.task.maxFailures: '4'",
    ],
)
def test_accepted_settings(spark: str) -> None:
    """Inside of the worker, Spark ignores the settings of a cluster."""
    assert check_text(f"{_ADDRESS}spark: {{{spark}}}\n", "w.yaml").findings == ()


@pytest.mark.parametrize(
    ("master", "address", "is_refused"),
    [
        ("spark://10.0.0.1:7077", "127.0.0.1:8262", True),
        ("spark://10.0.0.1:7077,127.0.0.1:7077", "localhost:8262", True),
        ("yarn", "127.0.0.1:8262", False),
        ("k8s://https://10.0.0.1:443", "[::1]:8262", True),
        ("spark://127.0.0.1:7077,localhost:7078", "127.0.0.1:8262", False),
        ("spark://10.0.0.1:7077", "10.0.0.2:8262", False),
        ("spark://10.0.0.1:7077", "worker-1:8262", False),
        ("local[4]", "127.0.0.1:8262", False),
        ("local-cluster[2,1,1024]", "127.0.0.1:8262", False),
    ],
)
def test_loopback_is_not_for_executors_elsewhere(master: str, address: str, is_refused: bool) -> None:
    found = problem_of({"spark.master": master, "spark.authenticate.secret": "s"}, address)
    assert (found is not None) is is_refused
    if found is not None:
        assert found.spec is errors.worker.SPARK_WORKER_ON_LOOPBACK
        assert address in found.message


def test_the_address_has_the_finding() -> None:
    text = f"worker-addr: 127.0.0.1:8262\nadvertise-addr: 127.0.0.1:8262\nspark: {{{_CLUSTER}}}\n"
    [finding] = check_text(text, "w.yaml").findings
    assert (finding.spec, finding.key) == (errors.worker.SPARK_WORKER_ON_LOOPBACK, "advertise-addr")
    assert finding.line == 2


def test_the_variable_of_connect() -> None:
    found = problem_of({"spark.master": "local[4]"}, variable="sc://10.0.0.1")
    assert found is not None
    assert found.spec is errors.config.SPARK_MASTER
    assert "SPARK_REMOTE: sc://10.0.0.1" in found.message
