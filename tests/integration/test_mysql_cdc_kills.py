"""Kills a query of mysql-cdc again and again while rows change: each change is in the sink exactly once.

The sink keeps one file per batch number, as Spark gives it to foreachBatch, and compares a batch that comes again with
the file. By default a small engine runs the query, which keeps offsets and batch numbers as Spark does; the grid runs
Spark.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cdc_stream import Replica, RowsWriter
from tests.support.daemon import ROOT
from tests.support.database import Database
from tests.support.pair import KINDS, login
from tests.support.wait import until

pytestmark = pytest.mark.turns

_SINK = """
import json, os, pickle, sys
from pathlib import Path
folder, options, ends = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3] == "ends"
def keep(rows, number):
    text = "\\n".join(json.dumps(row, sort_keys=True, default=str) for row in rows)
    file = folder / "sink" / f"{number:06}"
    if file.exists() and sorted(file.read_text().split("\\n")) != sorted(text.split("\\n")):
        (folder / "differs").write_text(str(number))
    (folder / "new").write_text(text)
    os.replace(folder / "new", file)
"""

_SPARK = """
from pyspark.sql import SparkSession
from shardmerge.worker.datasource import register
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config(
    "spark.ui.showConsoleProgress", "false").getOrCreate()
register(spark)
stream = spark.readStream.format("mysql-cdc").options(**options).load()
def sink(batch, number):
    keep([row.asDict(recursive=True) for row in batch.collect()], number)
writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))
(writer.trigger(availableNow=True) if ends else writer).start().awaitTermination()
"""

_SMALL = """
from tests.support.cdc_stream import Query
log = folder / "checkpoint"
log.mkdir(exist_ok=True)
def saved(name, value):
    (log / "new").write_text(json.dumps(value))
    os.replace(log / "new", log / name)
query = Query(options)
number = -1
query.begin()  # not kept, as in Spark
while (log / f"offset-{number + 1}").exists():
    number += 1
    end = json.loads((log / f"offset-{number}").read_text())
    if not (log / f"done-{number}").exists():
        keep(query.rows(query.begin(), end), number)
        saved(f"done-{number}", 1)
    query.offset = end
if ends:
    query.until_now()
while True:
    end = query.next_offset()
    if json.dumps(end) == json.dumps(query.begin()):
        if ends:
            break
        continue
    number += 1
    saved(f"offset-{number}", end)
    keep(query.rows(query.begin(), end), number)
    saved(f"done-{number}", 1)
    query.offset = end
"""


def _started(folder: Path, engine: str, options: dict[str, str], *, ends: bool) -> subprocess.Popen[bytes]:
    program = folder / "program.py"
    program.write_text(_SINK + engine, encoding="utf-8")
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(program), str(folder), json.dumps(options), "ends" if ends else "goes-on"],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": sys.executable,
                # A process that is killed leaves its temporary files.
                "SPARK_LOCAL_DIRS": str(folder),
                "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder}",
            },
            start_new_session=True,
            stdout=log,
            stderr=log,
        )


def _kill(query: subprocess.Popen[bytes]) -> None:
    os.killpg(query.pid, signal.SIGKILL)
    query.wait()


def _kills(folder: Path, server: Database, engine: str, kills: int) -> None:
    (folder / "sink").mkdir()
    server.execute("DROP DATABASE IF EXISTS d", "CREATE DATABASE d")
    for table in (1, 2):
        server.execute(
            f"CREATE TABLE d.t_{table} (id INT PRIMARY KEY, v VARCHAR(100))",
            f"INSERT INTO d.t_{table} VALUES " + ",".join(f"({number}, 'r')" for number in range(300)),
        )
    options = login(server) | {"tables": "d.t_*", "chunk-rows": "100", "max-bytes-per-batch": "20000"}
    rng = random.Random(kills)
    changes = RowsWriter(server, kills, 2)
    changes.start()
    try:
        for _ in range(kills):
            count = len(os.listdir(folder / "sink"))
            query = _started(folder, engine, options, ends=False)
            try:
                until(
                    lambda count=count, query=query: (
                        query.poll() is not None or len(os.listdir(folder / "sink")) > count + rng.randrange(3)
                    ),
                    "the query delivers batches",
                )
                assert query.poll() is None, (folder / "log").read_text(encoding="utf-8")[-3000:]
                time.sleep(rng.random() * 0.7)
            finally:
                _kill(query)
        until(lambda: changes.count > 50, "rows change")
    finally:
        changes.end()
    last = _started(folder, engine, options | {"max-bytes-per-batch": "10000000"}, ends=True)
    try:
        assert last.wait(300) == 0, (folder / "log").read_text(encoding="utf-8")[-3000:]
    finally:
        if last.poll() is None:
            _kill(last)
    assert not (folder / "differs").exists()
    replica = Replica(("id",))
    for file in sorted((folder / "sink").iterdir()):
        rows: list[dict[str, Any]] = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
        rows.sort(key=lambda row: (row["position"]["file"], row["position"]["byte"], row["sequence"] or 0))
        replica.apply(rows)
    for table in (1, 2):
        assert replica.of("d", f"t_{table}") == sorted(server.query(f"SELECT id, v FROM d.t_{table}"), key=repr)


def test_query_killed_twice(tmp_path: Path) -> None:
    server = KINDS["mariadb"](tmp_path / "server", 101).start()
    try:
        _kills(tmp_path, server, _SMALL, 2)
    finally:
        server.stop()


@pytest.mark.grid
@pytest.mark.parametrize("flavor", KINDS)
@pytest.mark.parametrize("engine", [_SMALL, _SPARK], ids=["small", "spark"])
def test_query_killed_20_times(flavor: str, engine: str, tmp_path: Path) -> None:
    server = KINDS[flavor](tmp_path / "server", 101).start()
    try:
        _kills(tmp_path, server, engine, 20)
    finally:
        server.stop()
