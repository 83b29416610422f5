"""Compares mysql-shards with Spark's JDBC reader: ``python -m tests.benchmarks.spark_read [rows]``.

Both read all columns of the same table into Spark's noop sink, in turns, with two tasks at a time. JDBC gets the bounds
of the key, and is measured with a cursor and with whole results. The jar comes from Maven Central.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from shardmerge.worker.datasource import register
from tests.benchmarks.servers import make_source

_PACKAGE = "com.mysql:mysql-connector-j:9.1.0"
_ROWS = 1_500_000
_TASKS = 4
_TURNS = 3


def main(rows: int) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        server = make_source("mariadb", Path(folder) / "source", 1).start()
        try:
            server.execute(
                "CREATE DATABASE shop",
                "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, customer INT, name VARCHAR(60), "
                "amount DECIMAL(12,2), weight DOUBLE, made DATETIME, day DATE, note VARCHAR(120)) "
                "CHARACTER SET utf8mb4",
                "INSERT INTO shop.orders SELECT seq, seq % 9973, CONCAT('customer ', seq % 9973), seq / 7, "
                "seq / 3, '2024-01-01' + INTERVAL seq SECOND, '2024-01-01' + INTERVAL seq % 365 DAY, "
                f"REPEAT('n', seq % 120) FROM mysql.seq_1_to_{rows}",
                "ANALYZE TABLE shop.orders",
            )
            builder: Any = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
            spark: Any = (
                builder.config("spark.jars.packages", _PACKAGE)
                .config("spark.ui.showConsoleProgress", "false")
                .getOrCreate()
            )
            register(spark)
            base = {"host": server.host, "port": str(server.port), "user": "root", "tables": "shop.orders"}
            shards = spark.read.format("mysql-shards").options(**base, **{"chunk-rows": str(rows // _TASKS)})
            address = f"jdbc:mysql://{server.host}:{server.port}/shop?useSSL=false&allowPublicKeyRetrieval=true"
            jdbc = spark.read.format("jdbc").options(
                dbtable="orders", user="root", driver="com.mysql.cj.jdbc.Driver", partitionColumn="id",
                lowerBound="1", upperBound=str(rows), numPartitions=str(_TASKS),
            )  # fmt: skip
            streaming = jdbc.option("url", f"{address}&useCursorFetch=true").option("fetchsize", "10000")
            readers: dict[str, Callable[[], Any]] = {
                "mysql-shards": shards.load,
                "jdbc, cursor": streaming.load,
                "jdbc, whole results": spark.read.format("jdbc").options(
                    url=address, dbtable="orders", user="root", driver="com.mysql.cj.jdbc.Driver",
                    partitionColumn="id", lowerBound="1", upperBound=str(rows), numPartitions=str(_TASKS),
                ).load,
            }  # fmt: skip
            _measure(readers, rows)
            spark.stop()
        finally:
            server.stop()


def _measure(readers: dict[str, Callable[[], Any]], rows: int) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    for turn in range(_TURNS + 1):
        for name, load in readers.items():
            began = time.monotonic()
            load().write.format("noop").mode("overwrite").save()
            if turn:  # the first one starts processes and compiles code
                seconds[name].append(time.monotonic() - began)
    best = statistics.median(seconds["mysql-shards"])
    for name, found in seconds.items():
        middle = statistics.median(found)
        print(f"{name}: {middle:.2f} s, {rows / middle:,.0f} rows/s, mysql-shards is {middle / best:.2f} times as fast")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else _ROWS)
