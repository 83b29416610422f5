"""Measures mysql-cdc: ``python -m tests.benchmarks.spark_stream [changes]``.

One source, one task at a time (``local[1]``), Spark's noop sink, and no change while the stream reads. The changes are
read in batches of 64 MiB; the first query, which starts processes and compiles code, does not count. Two kinds of
transactions: of one change each, and of 100 changes. The processor time is that of Spark and of its Python processes,
without the server: on a machine with other work it says more than the time that passes.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from shardmerge.worker.datasource import register
from tests.benchmarks.servers import make_source
from tests.support.database import Database

_CHANGES = 400_000
_WARM_UP = 20_000
_TABLE = (
    "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, customer INT, name VARCHAR(60), amount DECIMAL(12,2), "
    "weight DOUBLE, made DATETIME, day DATE, note VARCHAR(120)) CHARACTER SET utf8mb4"
)
_WRITE = """CREATE PROCEDURE shop.put(first INT, many INT, together INT)
BEGIN
  DECLARE n INT DEFAULT first;
  WHILE n < first + many DO
    IF together > 1 AND (n - first) % together = 0 THEN START TRANSACTION; END IF;
    IF n % 3 = 2 THEN
      UPDATE shop.orders SET amount = amount + 1, note = 'changed' WHERE id = n - 1;
    ELSE
      INSERT INTO shop.orders VALUES (n, n % 9973, CONCAT('customer ', n % 9973), n / 7, n / 3,
        '2024-01-01' + INTERVAL n SECOND, '2024-01-01' + INTERVAL n % 365 DAY, REPEAT('n', n % 120));
    END IF;
    SET n = n + 1;
    IF together > 1 AND (n - first) % together = 0 THEN COMMIT; END IF;
  END WHILE;
END"""


def main(changes: int) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        server = make_source("mariadb", Path(folder) / "source", 1).start()
        try:
            server.execute("CREATE DATABASE shop", _TABLE, _WRITE)
            builder: Any = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
            spark: Any = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
            register(spark)
            _measure(spark, server, folder, 0, _WARM_UP, 1)
            for together in (1, 100):
                seconds, busy, size = _measure(spark, server, folder, together, changes, together)
                print(
                    f"transactions of {together}: {changes:,} changes, {size >> 20} MiB in {seconds:.2f} s: "
                    f"{changes / seconds:,.0f} changes/s; {busy:.2f} s of processor time: "
                    f"{changes / busy:,.0f} changes/s of it"
                )
            spark.stop()
        finally:
            server.stop()


def _busy_seconds() -> float:
    """Return the processor time of this process, of Spark, and of Spark's Python processes."""
    me = psutil.Process()
    found = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            if process.name().startswith(("java", "python")):
                times = process.cpu_times()
                found += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return found


def _measure(
    spark: Any, server: Database, folder: str, number: int, changes: int, together: int
) -> tuple[float, float, int]:
    """Return the seconds for all batches, the processor time, and the bytes of the binlog."""
    begin = _place(server)
    server.execute(f"CALL shop.put({3 * number * changes}, {changes}, {together})")
    end = _place(server)
    stream = (
        spark.readStream.format("mysql-cdc")
        .options(host=server.host, port=str(server.port), user="root", tables="shop.orders")
        .option("start", f"{begin[0]}:{begin[1]}")
        .load()
    )
    began, busy = time.monotonic(), _busy_seconds()
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", f"{folder}/checkpoint-{number}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    whole, busy = time.monotonic() - began, _busy_seconds() - busy
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    rows = sum(one["numInputRows"] for one in progress)
    if rows != changes:
        raise RuntimeError(f"{rows} of {changes} changes")
    seconds = sum(one["durationMs"]["triggerExecution"] for one in progress) / 1000
    steps = {name: sum(one["durationMs"].get(name, 0) for one in progress) for name in ("latestOffset", "addBatch")}
    if number:
        print(f"  from the query's start: {whole:.2f} s; ms in {len(progress)} batches: {steps}")
    return seconds, busy, end[1] - begin[1]


def _place(server: Database) -> tuple[str, int]:
    [(file, place, *_)] = server.query("SHOW MASTER STATUS")
    return str(file), int(str(place))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else _CHANGES)
