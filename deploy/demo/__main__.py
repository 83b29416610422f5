"""``python -m deploy.demo <directory>``: the demonstration from empty servers to the judge's verdict.

Started by deploy/demo.sh, which has made the environment and marked the processes. All daemons continue to run
afterwards.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import grpc

from deploy.demo import lag
from deploy.demo.scenario import (
    ALL,
    FIRST,
    ROWS_PER_TABLE,
    TARGET_SCHEMA,
    TARGET_TABLE,
    TASK,
    Source,
    judged_target,
    prepare_target,
    task_yaml,
)
from shardmerge.proto import common_pb2, master_pb2, master_pb2_grpc, worker_pb2, worker_pb2_grpc
from shardmerge.proto.rpc import client
from tests.support.cluster import Cluster
from tests.support.daemon import command
from tests.support.judge import compare
from tests.support.mariadb import MariaDB
from tests.support.writer import ShardTable, Writer, create_tables, fill

_REPLICATE_SECONDS = 12.0
# The writer leaves the watch no time without a new change: after this time without progress it pauses.
_PATIENCE_SECONDS = 3.0
_WATCH_SECONDS = 60.0
_FULL_LIMIT_SECONDS = 600.0


class DemoFailed(Exception):
    """The demonstration failed; the text is for its user."""


def announce(text: str) -> None:
    print(f"\n-- {text}", flush=True)


class FullPhase(threading.Thread):
    """Records the time at which every subtask has left the snapshot unit.

    Asks the master directly: a dmctl process per query would cost more than it measures.
    """

    def __init__(self, master: str, subtasks: int) -> None:
        super().__init__(name="full-phase", daemon=True)
        self._master = master
        self._subtasks = subtasks
        self.started = time.monotonic()
        self.seconds: float | None = None
        self.problem = ""

    def run(self) -> None:
        with client.channel(self._master) as channel:
            stub = master_pb2_grpc.MasterStub(channel)
            while self.seconds is None and time.monotonic() - self.started < _FULL_LIMIT_SECONDS:
                try:
                    answer = stub.QueryStatus(master_pb2.QueryStatusRequest(name=TASK), timeout=10)
                except grpc.RpcError as error:
                    self.problem = str(error)
                else:
                    states = [state for source in answer.sources for state in source.sub_task_status]
                    if len(states) == self._subtasks and all(
                        state.unit == common_pb2.UNIT_REPLICATE for state in states
                    ):
                        self.seconds = time.monotonic() - self.started
                time.sleep(0.1)


class Demo:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sources = [
            Source(f"mysql-{number:02d}", number, MariaDB(directory / f"mysql-{number:02d}", server_id=100 + number))
            for number in (1, 2)
        ]
        self.target = MariaDB(directory / "target", server_id=200)
        self.cluster = Cluster(directory / "shardmerge", workers=2)
        self.dmctl_file = directory / "dmctl.toml"

    @property
    def tables(self) -> list[ShardTable]:
        return [table for source in self.sources for table in source.tables()]

    def dmctl(self, *arguments: str) -> list[str]:
        return [command("dmctl"), "--config", str(self.dmctl_file), *arguments]

    def shown(self, *arguments: str) -> list[str]:
        """The same with tables as output, on a terminal or in a file."""
        line = self.dmctl("--output", "table", *arguments)
        print("$", *line, flush=True)
        return line

    def show(self, *arguments: str) -> None:
        """Run dmctl as a user would, its output on the terminal."""
        ended = subprocess.run(self.shown(*arguments), stdin=subprocess.DEVNULL, check=False, timeout=300)
        if ended.returncode != 0:
            raise DemoFailed(f"dmctl {arguments[0]} failed with exit code {ended.returncode}")

    def run(self) -> int:
        announce("starting 2 sources, 1 target, etcd, dm-master, 2 dm-workers (each starts Spark)")
        self.start()
        announce(
            f"filling {len(self.tables)} shard tables with {len(self.tables) * ROWS_PER_TABLE:,} rows; ids collide"
        )
        create_tables(self.tables)
        for table in self.tables:
            fill(table, ROWS_PER_TABLE, seed=1)
        announce("a writer starts: inserts, updates, deletes, changes of keys, in all shard tables")
        writer = Writer(self.tables, seed=1, threads=2, pause_seconds=0.02).start()
        try:
            full_seconds = self.merge(writer)
            announce(f"replicating while the writer continues: {_REPLICATE_SECONDS:.0f} s of measuring the lag")
            probed = [shard for source in self.sources for shard in source.judged()[:1]]
            lags = lag.measure(probed, self.target, _REPLICATE_SECONDS)
            self.add_tables()
            announce("dmctl compare: every row of both sides, while the writer continues")
            self.show("compare", TASK, "--report", str(self.directory / "compare.jsonl"))
        finally:
            counts = writer.stop()
        print(
            f"{len(lags)} rows inserted at a source were visible at the target after: "
            f"p50 {lag.percentile(lags, 50):.1f} ms, p95 {lag.percentile(lags, 95):.1f} ms, max {max(lags):.1f} ms"
        )
        print(
            f"the writer committed {counts.transactions:,} transactions: {counts.inserts:,} inserts, "
            f"{counts.updates:,} updates, {counts.deletes:,} deletes, {counts.key_changes:,} changes of keys"
        )
        announce("the writer has stopped; catching up, then comparing every row")
        self.cluster.wait_caught_up(TASK, {source.source_id: source.server for source in self.sources})
        shards = [shard for source in self.sources for shard in source.judged()]
        verdict = compare(shards, judged_target(self.target))
        for example in verdict.examples:
            print(f"  {example}")
        self.look_around()
        print(
            f"demo: merged rows={verdict.rows} differences={verdict.differences} "
            f"full_seconds={full_seconds:.1f} lag_p50_ms={lag.percentile(lags, 50):.1f}",
            flush=True,
        )
        return 0 if verdict.differences == 0 else 1

    def start(self) -> None:
        for server in (*(source.server for source in self.sources), self.target):
            server.start()
            self.note_pid(server.directory.name, server.pid)
        for source in self.sources:
            source.prepare()
        prepare_target(self.target)
        self.cluster.start()
        [master] = self.cluster.masters
        # The demo has a state folder of its own, so dmctl does not find the cluster's key by itself.
        self.dmctl_file.write_text(f'master-addr = "{master.address}"\nsecret-key-path = "{master.key}"\n', "utf-8")
        self.note_pid("etcd", self.cluster.etcd.pid)
        for daemon in self.cluster.daemons:
            self.note_pid(daemon.name, daemon.pid)

    def note_pid(self, name: str, pid: int) -> None:
        pids = self.directory / "pids"
        pids.mkdir(exist_ok=True)
        (pids / f"{name}.pid").write_text(f"{pid}\n", encoding="utf-8")

    def merge(self, writer: Writer) -> float:
        """Create the sources, check and start the task, wait for its history; seconds that took."""
        for source in self.sources:
            self.show("operate-source", "create", self.cluster.write(f"{source.source_id}.yaml", source.yaml()))
        task = self.cluster.write("task.yaml", task_yaml(self.sources, self.target, FIRST))
        self.show("check-task", task)
        full = FullPhase(self.cluster.masters[0].address, len(self.sources))
        full.start()
        self.show("start-task", task)
        self.watch(full, writer)
        if full.seconds is None:
            raise DemoFailed(f"the history was not merged within {_FULL_LIMIT_SECONDS:.0f} s {full.problem}")
        return full.seconds

    def add_tables(self) -> None:
        """Another shard schema, with its history, into the running task."""
        announce("the task file now lets shard_03 through, too: its table is copied while all the others continue")
        task = self.cluster.write("task.yaml", task_yaml(self.sources, self.target, ALL))
        self.show("update-task", task, "--dry-run")
        self.show("update-task", task)
        began = time.monotonic()
        self.show("query-status", TASK)
        self.cluster.wait_subtasks(
            TASK, lambda sub: sub.stage == "Running" and not sub.raw.get("join"), "has no joining tables any more"
        )
        print(f"shard_03 of both sources has joined after {time.monotonic() - began:.1f} s", flush=True)

    def watch(self, full: FullPhase, writer: Writer) -> None:
        """Show the progress until synced."""
        interval = "1" if sys.stdout.isatty() else "3"
        watching = subprocess.Popen(
            self.shown("query-status", TASK, "--watch", "--until", "synced", "--interval", interval),
            stdin=subprocess.DEVNULL,
        )
        replicating_since: float | None = None
        paused = False
        while watching.poll() is None:
            time.sleep(0.1)
            if full.seconds is None:
                if not full.is_alive():
                    watching.terminate()
                continue
            replicating_since = replicating_since or time.monotonic()
            patience = time.monotonic() - replicating_since
            if patience > _PATIENCE_SECONDS and not paused:
                writer.pause()
                paused = True
            if patience > _WATCH_SECONDS:
                watching.terminate()
        writer.resume()
        if watching.wait() != 0:
            raise DemoFailed(f"query-status ended with exit code {watching.returncode} before the task was in sync")
        full.join(timeout=5)

    def look_around(self) -> None:
        announce("look around (everything continues to run)")
        for arguments in (
            ("query-status", TASK),
            ("list-member",),
            ("pause-task", TASK),
            ("resume-task", TASK),
            ("--help",),
        ):
            print("  ", *self.dmctl(*arguments))
        token = " ".join(self.dmctl("encrypt", "--metrics-token"))
        for daemon in self.cluster.daemons:
            header = f"{{ printf 'Authorization: Bearer '; {token}; }}"  # not on a command line
            print(f"   {header} | curl -H @- http://{daemon.http}/metrics   # {daemon.name}")
        for address in self.spark_uis():
            print(f"   Spark UI        {address}")
        for server in (*(source.server for source in self.sources), self.target):
            print(f"   {server.directory.name:<15} mariadb --protocol=tcp -h {server.host} -P {server.port} -u root")
        print(f"   merged table    {TARGET_SCHEMA}.{TARGET_TABLE} at the target")
        print(f"   logs, configs   {self.cluster.directory}")
        print("   the end         bash deploy/demo.sh stop\n")

    def spark_uis(self) -> Sequence[str]:
        found: list[str] = []
        for worker in self.cluster.workers:
            with client.channel(worker.address) as channel:
                status = worker_pb2_grpc.WorkerStub(channel).QueryStatus(worker_pb2.WorkerStatusRequest(), timeout=10)
                if status.spark_ui:  # off unless the worker's file turns it on
                    found.append(f"{status.spark_ui} ({worker.name})")
        return found


def main(directory: Path) -> int:
    try:
        return Demo(directory).run()
    except (DemoFailed, AssertionError, TimeoutError) as problem:
        print(f"demo: failed: {problem}", file=sys.stderr)
        print(f"logs are in {directory}; `bash deploy/demo.sh stop` ends what runs", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
