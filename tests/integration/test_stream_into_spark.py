"""Runs the page Stream changes into Spark in a Spark of its own, over a server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import ROOT
from tests.support.mariadb import MariaDB

PASSWORD = "pass-word-of-the-page"
_PAGE = ROOT / "docs/how-to/stream-into-spark.md"
_BEGIN = """
import json, sys
from pathlib import Path
import pymysql
from pyspark.sql import SparkSession
folder = Path(sys.argv[1])
SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config(
    "spark.sql.shuffle.partitions", "1").config("spark.ui.showConsoleProgress", "false").getOrCreate()
def write(*statements):
    with pymysql.connect(host="127.0.0.1", port=int(sys.argv[2]), user="root", autocommit=True) as server:
        with server.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
"""
_AFTER_FILES = """
write("INSERT INTO shop_1.orders_1 VALUES (9, 'eve', 9.50)", "UPDATE shop_1.orders_2 SET amount = 20 WHERE id = 1",
      "DELETE FROM shop_1.orders_1 WHERE id = 2")
"""
_END = """
found = {}
found["files"] = spark.read.parquet(f"{folder}/orders-changes").count()
found["totals"] = [[row[0], str(row[1])] for row in spark.sql("SELECT * FROM totals ORDER BY customer").collect()]
write("UPDATE shop_1.orders_1 SET id = 5, amount = 1.25 WHERE id = 1", "DELETE FROM shop_1.orders_2 WHERE id = 2")
again = changes.writeStream.foreachBatch(merge).option("checkpointLocation", f"{folder}/orders-checkpoint").trigger(
    availableNow=True).start()
again.awaitTermination()
rows = DeltaTable(f"{folder}/orders").to_pyarrow_table().to_pylist()
found["delta"] = sorted([row["source_table"], row["id"], row["customer"], str(row["amount"])] for row in rows)
(folder / "found.json").write_text(json.dumps(found))
spark.stop()
"""


@pytest.mark.turns
def test_page(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    server = MariaDB(tmp_path / "server", 101).start()
    try:
        server.execute("DROP DATABASE IF EXISTS shop_1", "CREATE DATABASE shop_1")
        for table in (1, 2):
            server.execute(
                f"CREATE TABLE shop_1.orders_{table} "
                "(id BIGINT PRIMARY KEY, customer VARCHAR(20), amount DECIMAL(10,2))",
                f"INSERT INTO shop_1.orders_{table} VALUES (1, 'ann', 10), (2, 'bob', 2.50)",
            )
        server.execute(
            "DROP USER IF EXISTS reader@'127.0.0.1'",
            f"CREATE USER reader@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'",
            "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader@'127.0.0.1'",
        )
        text = "\n".join([blocks[0], _AFTER_FILES, *blocks[1:]])
        text = text.replace('"10.0.0.1"', f'"{server.host}"').replace('"port", 3306', f'"port", {server.port}')
        text = text.replace("/run/secrets/orders", str(password)).replace("/data/", f"{tmp_path}/")
        program = tmp_path / "program.py"
        program.write_text(_BEGIN + text + _END, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(program), str(tmp_path), str(server.port)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    checkpoint = [path.read_bytes() for path in (tmp_path / "orders-checkpoint").rglob("*") if path.is_file()]
    assert checkpoint and not any(PASSWORD.encode() in part for part in checkpoint)
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert found["files"] == 4
    assert found["totals"] == [["ann", "30.00"], ["bob", "2.50"], ["eve", "9.50"]]
    assert found["delta"] == [
        ["orders_1", 5, "ann", "1.25"],
        ["orders_1", 9, "eve", "9.50"],
        ["orders_2", 1, "ann", "20.00"],
    ]
