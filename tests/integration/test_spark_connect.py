"""Runs the page Use Spark Connect against Spark's own Connect server, with a token and TLS; and dm-worker's refusal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.support.daemon import ROOT
from tests.support.mariadb import MariaDB
from tests.support.spark_connect import TOKEN, SparkConnect, TlsProxy

pytestmark = pytest.mark.clusters

PASSWORD = "pass-word-of-the-page"
_PAGE = ROOT / "docs/how-to/spark-connect.md"
_END = """
import json, sys
from pathlib import Path
import pymysql

folder, port = Path(sys.argv[1]), int(sys.argv[2])

def write(*statements):
    with pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True) as server:
        with server.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

def refused(action):
    try:
        action()
    except Exception as error:
        return str(error)
    return "not refused"

def reader(**options):
    made = spark.read.format("mysql-shards").option("host", "127.0.0.1").option("port", port).option("user", "reader")
    made = made.option("tables", "shop_*.orders_*").option("password-file", f"{folder}/password")
    for name, value in options.items():
        made = made.option(name, value)
    return made

def states():
    counts = [row[1] for row in orders.union(orders).groupBy("id").count().collect()]
    return [orders.count(), sorted(set(counts)), orders.agg({"amount": "sum"}).collect()[0][0], positions(orders)]

found = {"at_first": states()}
write("INSERT INTO shop_1.orders_1 VALUES (9, 9)", "UPDATE shop_1.orders_2 SET amount = 100",
      "DELETE FROM shop_1.orders_1 WHERE id = 1")
found["cached_plans"] = states()
spark.conf.set("spark.connect.session.planCache.enabled", "false")
found["new_plans"] = states()
write("INSERT INTO shop_1.orders_1 VALUES (10, 10)")
found["newer_plans"] = states()
later = load_fixed(reader())
found["later"] = [later.count(), positions(later) == positions(orders)]
loaded = reader().load()
found["loaded"] = [loaded.columns, sorted(positions(loaded))]
found["not_fixed"] = refused(loaded.count)

found["files"] = spark.read.parquet(f"{folder}/orders-changes").count()
write("DELETE FROM shop_1.orders_1 WHERE id = 10")
def count(batch, number):
    with open(f"{folder}/batches", "a") as file:
        file.write(f"{batch.count()}\\n")
again = changes.writeStream.foreachBatch(count).option("checkpointLocation", f"{folder}/counted").trigger(
    availableNow=True).start()
again.awaitTermination()
found["batches"] = sum(map(int, (folder / "batches").read_text().split()))
plain = spark.read.format("mysql-shards").option("host", "127.0.0.1").option("port", port).option("user", "reader")
plain = plain.option("tables", "shop_1.orders_1").option("password", "a-wrong-one")
found["password"] = refused(lambda: plain.load().schema)
stream = spark.readStream.format("mysql-cdc").option("host", "127.0.0.1").option("port", port).option("user", "reader")
found["stream_password"] = refused(
    lambda: stream.option("tables", "shop_1.orders_1").option("password", "a-wrong-one").load().schema)
write("CREATE DATABASE shop_2")
found["other_schema"] = refused(orders.count)
spark.stop()
found["no_fallback"] = refused(lambda: SparkSession.builder.remote(
    f"sc://127.0.0.1:{sys.argv[3]}/;use_ssl=true;token=another-token").create().range(1).count())
(folder / "found.json").write_text(json.dumps(found, default=str))
"""


@pytest.mark.grid
def test_page(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    source = MariaDB(tmp_path / "server", 101).start()
    connect = SparkConnect(tmp_path / "connect")
    proxy = TlsProxy(tmp_path / "proxy", Authority(tmp_path / "tls").issue("connect", "connect"), connect.port)
    try:
        source.execute("CREATE DATABASE shop_1")
        for table in (1, 2):
            source.execute(
                f"CREATE TABLE shop_1.orders_{table} (id BIGINT PRIMARY KEY, amount INT)",
                f"INSERT INTO shop_1.orders_{table} VALUES ({table}, 1), ({table + 2}, 2)",
            )
        source.execute(
            f"CREATE USER reader@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'",
            "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader@'127.0.0.1'",
        )
        connect.start()
        proxy.start()
        found, output = _run_page(tmp_path, source, proxy)
        events = "".join(path.read_text() for path in connect.events.rglob("*") if path.is_file())
        log = connect.log.read_text(encoding="utf-8", errors="replace")
    finally:
        proxy.stop()
        connect.stop()
        source.stop()
    # Four rows with the amounts 1, 2, 1, 2; each one twice in the union with itself, whatever is written and planned.
    assert found["at_first"][:3] == [4, [2], 6]
    for name in ("cached_plans", "new_plans", "newer_plans"):
        assert found[name] == found["at_first"], name
    assert found["later"] == [5, False]
    assert found["loaded"] == [["id", "amount"], ["mysql-01"]]
    assert "[35013 read-position-needed]" in found["not_fixed"]
    assert "load_fixed" in found["not_fixed"]
    assert found["files"] == 4
    assert found["batches"] == 4
    for name in ("password", "stream_password"):
        assert "[35014 read-password-in-plan]" in found[name], name
        assert "a-wrong-one" not in found[name]
    assert "[35006 read-statement]" in found["other_schema"]
    assert "UNAUTHENTICATED" in found["no_fallback"]
    assert "mysql-shards" in events
    for text in (output, events, log, json.dumps(found)):
        assert PASSWORD not in text
    # Spark itself logs the token at level INFO when foreachBatch starts: the page describes it.
    for text in (output, events, json.dumps(found)):
        assert TOKEN not in text


def _run_page(folder: Path, source: MariaDB, proxy: TlsProxy) -> tuple[dict[str, Any], str]:
    """Run the program of the page as a client; return what it has found, and its output."""
    [text] = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    text = text.replace("10.0.0.5:15443", f"127.0.0.1:{proxy.port}").replace('"10.0.0.1"', f'"{source.host}"')
    text = text.replace('"port", 3306', f'"port", {source.port}').replace("/data/", f"{folder}/")
    program = folder / "program.py"
    program.write_text(text.replace("/run/secrets/orders", str(folder / "password")) + _END, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program), str(folder), str(source.port), str(proxy.port)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN,
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(folder / "tls" / "ca.pem"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "found.json").read_text(encoding="utf-8")), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ("spark.remote: sc://127.0.0.1:15002", {}),
        ("master: sc://127.0.0.1:15002", {}),
        ("master: local[2]", {"SPARK_REMOTE": "sc://127.0.0.1:15002"}),
    ],
)
def test_dm_worker_refuses_spark_connect(tmp_path: Path, settings: str, environment: dict[str, str]) -> None:
    file = tmp_path / "worker.yaml"
    text = f"relay-dir: {tmp_path}/relay\netcd: ['127.0.0.1:1']\ninsecure: true\nspark:\n  {settings}\n"
    file.write_text(f"name: worker-1\nworker-addr: 127.0.0.1:18262\n{text}", encoding="utf-8")
    done = subprocess.run(
        [str(Path(sys.executable).parent / "dm-worker"), "--config", str(file)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert "[10049 spark-master-not-supported]" in done.stderr
    assert "what to do:" in done.stderr
    assert "Traceback" not in done.stderr
