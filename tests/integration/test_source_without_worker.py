"""Tests a source that is created while no worker is alive: its first worker checks it and reports what is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from shardmerge.proto import errors, secret
from tests.support.cluster import Cluster, source_yaml
from tests.support.mariadb import MariaDB
from tests.support.wait import until


def _error(cluster: Cluster) -> tuple[int, str]:
    """Return code and text of the source's error as `operate-source show` and `query-status` report it."""
    [shown] = cluster.dmctl("operate-source", "show").json["sources"]
    [status] = cluster.dmctl("query-status", "-s", "mysql-01").json["sources"]
    found = shown["error"]
    # The error may have appeared between the two questions.
    if found != cast("dict[str, Any]", status["sourceStatus"])["result"]:
        return -1, ""
    return (int(found["code"]), f"{found['message']} {found['workaround']}") if found else (0, "")


def test_its_first_worker_reports_what_is_wrong(
    make_server: Callable[..., MariaDB], tmp_path: Path, watch_logs: Callable[[Path], None]
) -> None:
    server = make_server("source")
    server.execute("CREATE USER dm@'127.0.0.1' IDENTIFIED BY 'right'", "GRANT ALL ON *.* TO dm@'127.0.0.1'")
    cluster = Cluster(tmp_path / "cluster", workers=1)
    watch_logs(cluster.directory)
    [master], [worker] = cluster.masters, cluster.workers
    try:
        cluster.etcd.start()
        master.start()

        def write(password: str) -> str:
            return cluster.write("mysql-01.yaml", source_yaml("mysql-01", server, "dm", password))

        created = cluster.dmctl("operate-source", "create", write("wrong"))
        [source] = created.json["sources"]
        assert (source["result"], source["worker"], source["error"]) == (True, "", None)
        assert "not checked" in source["msg"]
        [shown] = cluster.dmctl("operate-source", "show").json["sources"]
        assert shown["result"] and "waits for a free dm-worker" in shown["msg"]

        # The worker does not prove its calls, and cannot decrypt the password, until it gets the key of the master.
        key = tmp_path / "cluster" / "state" / "shardmerge" / "secret.key"
        elsewhere = tmp_path / "elsewhere" / "secret.key"
        elsewhere.parent.mkdir(mode=0o700)
        secret.make_key(str(elsewhere))
        worker.write_config(secret_key_path=str(elsewhere))
        worker.start()
        unproven = errors.tls.SERVER_UNPROVEN.name
        until(
            lambda: unproven in cluster.dmctl("query-status", "-s", "mysql-01", check=False).text,
            "the master reports that the worker has another key",
        )
        shutil.copy(key, elsewhere)

        failed = errors.master.SOURCE_CHECK_FAILED.code
        until(lambda: _error(cluster)[0] == failed, "the worker reports the check that failed")
        _, text = _error(cluster)
        assert f"[{errors.relay.ACCESS_DENIED.code} source-access-denied]" in text and "operate-source update" in text
        shown = cluster.dmctl("operate-source", "update", write("wrong too"), check=False)
        assert shown.json["sources"][0]["error"]["code"] == failed

        # The worker repeats the checks.
        server.execute("ALTER USER dm@'127.0.0.1' IDENTIFIED BY 'wrong'")
        until(lambda: _error(cluster)[0] == 0, "the source can be used")
    finally:
        cluster.stop()
