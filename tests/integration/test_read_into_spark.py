"""Runs the page Read shard tables into Spark in a Spark of its own, over one server of each kind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import ROOT
from tests.support.database import Database
from tests.support.pair import KINDS

pytestmark = pytest.mark.turns

PASSWORD = "pass-word-of-the-page"
_PAGE = ROOT / "docs/how-to/read-into-spark.md"
_BEGIN = """
import json, sys
from pathlib import Path
import pymysql
from pyspark.sql import SparkSession
folder = Path(sys.argv[1])
SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config(
    "spark.eventLog.enabled", "true").config("spark.eventLog.compress", "false").config(
    "spark.eventLog.dir", str(folder / "events")).config("spark.ui.showConsoleProgress", "false").getOrCreate()
"""
_END = """
found = {}
found["count"] = orders.count()
found["positions"] = positions(orders)
with pymysql.connect(host="127.0.0.1", port=int(sys.argv[2]), user="root", autocommit=True) as server:
    with server.cursor() as cursor:
        cursor.execute("DELETE FROM shop_1.orders_1 WHERE id < 50")
        cursor.execute("UPDATE shop_1.orders_2 SET v = -1")
found["again"] = [list(row) for row in orders.orderBy("shard", "id").collect()]
found["filtered"] = [orders.filter("id > 90").count(), orders.count()]
found["ids"] = merged.selectExpr("count(distinct id)").collect()[0][0]
plain = spark.read.format("mysql-shards").option("host", "127.0.0.1").option("port", sys.argv[2]).option(
    "user", "reader").option("tables", "shop_1.orders_1")
shown = plain.option("password", Path(folder / "password").read_text()).load()
explain = spark._jvm.PythonSQLUtils.explainString
found["plans"] = [explain(shown._jdf.queryExecution(), mode) for mode in ("extended", "formatted", "cost", "codegen")]
shown.count()
try:
    plain.option("password", "wrong-" + Path(folder / "password").read_text()).load()
except Exception as error:
    found["error"] = str(error)
(folder / "found.json").write_text(json.dumps(found))
spark.stop()
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Database]]:
    folder = tmp_path_factory.mktemp("spark")
    made = [kind(folder / name, 101 + number) for number, (name, kind) in enumerate(KINDS.items())]
    try:
        for server in made:
            server.start()
            tables: list[str] = []
            for table in range(4):
                tables.append(f"CREATE TABLE shop_1.orders_{table} (id BIGINT PRIMARY KEY, v INT)")
                rows = ",".join(f"({number}, {table})" for number in range(100))
                tables.append(f"INSERT INTO shop_1.orders_{table} VALUES {rows}")
            server.execute("DROP DATABASE IF EXISTS shop_1", "CREATE DATABASE shop_1", *tables)
            server.execute("DROP USER IF EXISTS reader@'127.0.0.1'")
            server.execute(f"CREATE USER reader@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
            server.execute("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader@'127.0.0.1'")
        yield made
    finally:
        for server in made:
            server.stop()


def _filled(text: str, servers: list[Database], password: Path) -> str:
    """Return the code of the page with the addresses of these servers; the first one is a MariaDB."""
    text = text.replace("/run/secrets/orders", str(password))
    for number, server in enumerate(servers, start=1):
        key = ", allow-public-key-retrieval: true" if server.takes_key else ""
        text = text.replace(f"host: 10.0.0.{number}, port: 3306", f"host: {server.host}, port: {server.port}{key}")
    return text.replace('"10.0.0.1"', f'"{servers[0].host}"').replace('"port", 3306', f'"port", {servers[0].port}')


def test_page_and_secrets(servers: list[Database], tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    (tmp_path / "events").mkdir()
    blocks = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    program = tmp_path / "program.py"
    program.write_text(_BEGIN + _filled("\n".join(blocks), servers, password) + _END, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), str(servers[0].port)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert found["count"] == 400
    assert found["positions"].keys() == {"mysql-01"}
    assert found["again"] == [[number, table, str(table)] for table in range(4) for number in range(100)]
    assert found["filtered"] == [36, 400]
    assert found["ids"] == 800
    assert "[20101 source-access-denied]" in found["error"]
    events = [file.read_text(encoding="utf-8") for file in (tmp_path / "events").rglob("*") if file.is_file()]
    assert any("mysql-shards" in text for text in events)
    for text in (done.stdout, done.stderr, json.dumps(found), *events):
        assert PASSWORD not in text
