"""Tests that the files for Kubernetes agree with each other and with what dm-worker accepts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from ruamel.yaml import YAML

from shardmerge.proto.config.check import check_text
from shardmerge.worker.core.spark.settings import slots

_FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
_VARIABLES = {
    "SPARK_JAVA_OPT_0": "-Da=b c",
    "SPARK_JAVA_OPT_1": "-Dd=$(touch x)",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_HOME": "/spark",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@dm-worker-0:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "8",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "shardmerge-exec-3",
}


def _documents() -> Iterator[dict[str, Any]]:
    for path in sorted(_FOLDER.glob("*.yaml")):
        for text in path.read_text(encoding="utf-8").split("\n---\n"):
            yield _loaded(text)


def _loaded(text: str) -> dict[str, Any]:
    return cast("dict[str, Any]", YAML(typ="safe", pure=True).load(text))


def _object(kind: str, name: str = "dm-worker") -> dict[str, Any]:
    [found] = [one for one in _documents() if one["kind"] == kind and one["metadata"].get("name", name) == name]
    return found


def _worker_file() -> str:
    return str(_object("ConfigMap")["data"]["worker.yaml"])


def _spark() -> dict[str, str]:
    return _loaded(_worker_file())["spark"]


def _pods() -> list[dict[str, Any]]:
    return [_object("StatefulSet")["spec"]["template"]["spec"], _object("Pod")["spec"]]


def test_the_workers_file_is_accepted() -> None:
    found = check_text(
        f"name: dm-worker-0\nadvertise-addr: dm-worker-0.dm-worker.shardmerge.svc.cluster.local:8262\n{_worker_file()}",
        "worker.yaml",
    )
    assert found.findings == ()
    settings = {f"spark.{key}" if key == "master" else key: value for key, value in _spark().items()}
    assert slots(settings) == 16


def test_ports_are_the_same_in_all_files() -> None:
    spark = _spark()
    wanted = {8262, int(spark["spark.driver.port"]), int(spark["spark.driver.blockManager.port"])}
    [container] = _object("StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert {port["containerPort"] for port in container["ports"]} == wanted
    assert {port["port"] for port in _object("Service")["spec"]["ports"]} == wanted
    executors, members = _object("NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for port in executors["ports"]} == wanted
    assert {port["port"] for port in members["ports"]} == {8262}


def test_names_that_refer_to_objects() -> None:
    accounts = {one["metadata"]["name"] for one in _documents() if one["kind"] == "ServiceAccount"}
    assert {pod["serviceAccountName"] for pod in _pods()} == accounts
    assert _spark()["spark.kubernetes.authenticate.serviceAccountName"] == "dm-worker"
    binding = _object("RoleBinding")
    assert binding["roleRef"]["name"] == _object("Role")["metadata"]["name"]
    assert [one["name"] for one in binding["subjects"]] == ["dm-worker"]
    stateful = _object("StatefulSet")["spec"]
    assert stateful["serviceName"] == _object("Service")["metadata"]["name"]
    [container] = stateful["template"]["spec"]["containers"]
    assert container["image"] == _spark()["spark.kubernetes.container.image"]
    [executor] = _object("Pod")["spec"]["containers"]
    assert executor["name"] == _spark()["spark.kubernetes.executor.podTemplateContainerName"]


def test_files_of_the_worker_are_mounted() -> None:
    """Executors read the certificates at the worker's paths."""
    worker, executor = ({one["mountPath"] for one in pod["containers"][0]["volumeMounts"]} for pod in _pods())
    settings = _loaded(_worker_file())
    for key in ("ssl-ca", "ssl-cert", "ssl-key"):
        assert str(Path(settings[key]).parent) in worker & executor
    assert str(Path(settings["secret-key-path"]).parent) in worker - executor
    assert settings["relay-dir"] in worker
    assert settings["spark"]["spark.kubernetes.executor.podTemplateFile"] in worker
    claims = {one["metadata"]["name"] for one in _object("StatefulSet")["spec"]["volumeClaimTemplates"]}
    for pod in _pods():
        volumes = {one["name"] for one in pod["volumes"]} | claims
        assert {one["name"] for one in pod["containers"][0]["volumeMounts"]} <= volumes


def test_least_privilege() -> None:
    for pod in _pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        [container] = pod["containers"]
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert _object("Pod")["spec"]["automountServiceAccountToken"] is False
    assert _object("ServiceAccount", "dm-executor")["automountServiceAccountToken"] is False
    for rule in _object("Role")["rules"]:
        assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
        assert "secrets" not in rule["resources"]


def test_entry_point_of_an_executor(tmp_path: Path) -> None:
    """It passes Spark's variables as arguments, without evaluating them."""
    java = tmp_path / "java"
    java.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    java.chmod(0o755)
    done = subprocess.run(
        [_FOLDER / "executor.sh", "executor"],
        env={**_VARIABLES, "PATH": f"{tmp_path}:/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "-Da=b c",
        "-Dd=$(touch x)",
        "-Xms512m",
        "-Xmx512m",
        "-cp",
        "/opt/spark/conf:/spark/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url",
        "spark://CoarseGrainedScheduler@dm-worker-0:7078",
        "--executor-id",
        "3",
        "--cores",
        "8",
        "--app-id",
        "spark-1",
        "--hostname",
        "10.0.0.9",
        "--resourceProfileId",
        "0",
        "--podName",
        "shardmerge-exec-3",
    ]
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("missing", ["SPARK_DRIVER_URL", "SPARK_EXECUTOR_ID"])
def test_entry_point_without_a_variable_fails(tmp_path: Path, missing: str) -> None:
    environment = {name: value for name, value in _VARIABLES.items() if name != missing}
    done = subprocess.run(
        [_FOLDER / "executor.sh", "executor"],
        env={**environment, "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert missing in done.stderr


def test_entry_point_runs_another_command() -> None:
    done = subprocess.run([_FOLDER / "executor.sh", "echo", "a b", "c"], capture_output=True, text=True, check=True)
    assert done.stdout == "a b c\n"
