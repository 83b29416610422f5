"""Provides servers, shardmerge and the running merge, each started when the first part of the benchmark needs it."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property

from shardmerge.proto import common_pb2
from shardmerge.worker.core.mysql.connection import Side, connect
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.target.members.member_cache import CHECK_VARIABLE
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records.checkpoint import Checkpoint
from tests.benchmarks import sysbench
from tests.benchmarks.first_row import FirstRow
from tests.benchmarks.processes import MASTER, SOURCE, TARGET, WORKER, Roots, Usage, Watch
from tests.benchmarks.servers import binlog_end, endpoint, make_source, make_target, shown
from tests.benchmarks.settings import SOURCES, Settings
from tests.benchmarks.task import MERGED, META_SCHEMA, TASK, BenchmarkFailed, Master, task_yaml
from tests.support.cluster import Cluster
from tests.support.database import Database
from tests.support.wait import until

_PATIENCE_SECONDS = 600.0
_LONG_SECONDS = 3600.0


def say(text: str) -> None:
    print(f"benchmark: {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class History:
    """The copy of the history. ``seconds``: from the start-task request until every subtask replicates and the merged
    table has its indexes, with a parallel writer until its changes up to then are applied; ``copying_seconds``: from
    the answer of the request, which comes after the pre-checks. ``first_row_seconds``: from the request until the first
    row was committed at the target."""

    rows: int
    seconds: float
    copying_seconds: float
    first_row_seconds: float
    usage: dict[str, Usage]


class World:
    """All servers and processes of the benchmark; they end with the ``with`` block."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.headers: list[str] = []
        self._stack = ExitStack()
        self._pids: dict[int, str] = {}
        self.filled = (SourcePosition("", 0), SourcePosition("", 0))
        """The start and end of the filling of the first source's tables in its binlog, once :attr:`sources` are
        there."""

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- servers

    def _started(self, server: Database, name: str) -> Database:
        self._stack.callback(server.stop)
        server.start()
        self._pids[server.pid] = TARGET if name == "target" else SOURCE
        self.headers.append(f"{name}: {shown(server)}")
        return server

    @cached_property
    def source_ids(self) -> tuple[str, ...]:
        return tuple(f"source-{number}" for number in range(1, SOURCES + 1))

    @cached_property
    def sources(self) -> tuple[Database, ...]:
        """Return the started sources, with the shard tables filled."""
        settings = self.settings
        say(f"{SOURCES} sources: {settings.tables} sysbench tables of {settings.rows:,} rows each")
        made = tuple(
            self._started(make_source(settings.source, settings.directory / source, number), source)
            for number, source in enumerate(self.source_ids, 1)
        )
        start = binlog_end(made[0])
        sysbench.prepare(made, settings.shards)
        self.filled = (start, binlog_end(made[0]))
        return made

    @cached_property
    def target(self) -> Database:
        settings = self.settings
        made = make_target(settings.target, settings.directory / "target", binlog=settings.target_binlog)
        return self._started(made, "target")

    def ends(self) -> dict[str, SourcePosition]:
        """Return where each source's binlog ends now."""
        return {source: binlog_end(server) for source, server in zip(self.source_ids, self.sources, strict=True)}

    # -- shardmerge

    @cached_property
    def cluster(self) -> Cluster:
        say("etcd, dm-master, 2 dm-workers (each starts Spark)")
        cluster = Cluster(self.settings.directory / "shardmerge", workers=SOURCES, environment={CHECK_VARIABLE: ""})
        self._stack.callback(cluster.stop)
        # Not cluster.start(): it uses dmctl, whose processes take the cores from Spark's start.
        cluster.etcd.start()
        for daemon in cluster.daemons:
            daemon.start(wait=False)
        for master in cluster.masters:
            master.wait_until_ready()
        return cluster

    @cached_property
    def master(self) -> Master:
        """Return the master, which has all sources, each held by a worker."""
        sources = self.sources
        master = self._stack.enter_context(closing(Master(self.cluster.masters[0].address, TASK, SOURCES)))

        def members() -> bool:
            for worker in self.cluster.workers:
                if not worker.alive:
                    raise BenchmarkFailed(f"{worker.name} has ended: {worker.last_lines()}")
            return len(master.alive()) == SOURCES

        until(members, "the workers are members", _PATIENCE_SECONDS, every=0.1)
        for source, server in zip(self.source_ids, sources, strict=True):
            master.create_source(source, server.host, server.port)
        until(
            lambda: master.alive() == sorted(self.source_ids),
            "every source is bound to a worker",
            _PATIENCE_SECONDS,
            every=0.1,
        )
        return master

    @cached_property
    def task(self) -> str:
        """Return the task file. The target table does not exist: the task creates it, like the tables of the
        ceilings."""
        self.target.execute(f"DROP TABLE IF EXISTS {MERGED}")
        return task_yaml(self.settings, self.source_ids, self.target)

    @cached_property
    def history(self) -> History:
        """Start the task and wait until it has copied its history; return how long that took."""
        master, task = self.master, self.task
        say(f"copying the history: {self.settings.all_rows:,} rows")
        with Watch(self.roots) as watch, self._writer(), FirstRow(self.target) as first:
            started = time.monotonic()
            master.start(task)
            accepted = time.monotonic()
            self.wait_replicating()
            until(self._has_all_indexes, "the merged table has its indexes", _PATIENCE_SECONDS, every=0.2)
            if self.settings.writing:
                # The changes that were written while the history was copied are merged too.
                ends = self.ends()
                until(lambda: all_past(self.checkpoints(), ends), "the changes are applied", _LONG_SECONDS, every=0.2)
            ended = time.monotonic()
        return History(
            self.settings.all_rows, ended - started, ended - accepted, first.seen_at - started, watch.usage()
        )

    def _writer(self) -> AbstractContextManager[object]:
        """Return a writer that keeps changing the shard tables, if the settings request one."""
        settings = self.settings
        if not settings.writing:
            return nullcontext()
        transactions = max(settings.writing // sysbench.CHANGES_PER_TRANSACTION // SOURCES, 1)
        return sysbench.Background(self.sources, settings.shards, transactions)

    @cached_property
    def replicating(self) -> Master:
        """Wait until the task runs and has copied its history."""
        self.history  # noqa: B018 - it must be copied
        return self.master

    def _has_all_indexes(self) -> bool:
        return not self.target.query(f"SELECT 1 FROM {META_SCHEMA}.deferred_index LIMIT 1")

    def stop_task(self) -> None:
        """End the task for good, if it ever ran."""
        if "history" in vars(self):
            self.master.stop()

    @contextmanager
    def another_task(self, name: str, sources: int = 1) -> Generator[Master]:
        """Provide the master's requests for a task of so many sources."""
        self.master  # noqa: B018 - the sources exist then
        with closing(Master(self.cluster.masters[0].address, name, sources)) as master:
            yield master

    def wait_replicating(self) -> None:
        self.master.wait(
            lambda state: state.unit == common_pb2.UNIT_REPLICATE and state.stage == common_pb2.STAGE_RUNNING,
            "replicates",
            every=0.2,
        )

    def checkpoints(self, task: str = TASK) -> dict[str, tuple[Checkpoint, ...]]:
        """Return every lane's checkpoint by source, as the target holds them."""
        session = connect(endpoint(self.target), Side.TARGET, name="target")
        try:
            found = {
                source: checkpoints.read_all(session, SubtaskKey(META_SCHEMA, task, source))
                for source in self.source_ids
            }
        finally:
            session.close()
        return {source: lanes for source, lanes in found.items() if lanes}

    def wait_applied(self) -> None:
        """Wait until the lanes have committed all that the sources' binlogs hold now."""
        for server in self.sources:
            # A relay log that begins by GTID learns the position in the binlog's file from its first event (MySQL).
            server.execute("CREATE DATABASE IF NOT EXISTS not_merged")
        self.wait_past(self.master, TASK, self.ends())

    def wait_past(self, master: Master, task: str, ends: dict[str, SourcePosition]) -> None:
        """Wait until every lane of ``task`` has committed all events before ``ends``, and the master reports it."""

        def past() -> bool:
            master.check()
            return all_past(self.checkpoints(task), ends)

        until(past, f"{task} has applied all up to {ends}", _LONG_SECONDS, every=0.25)
        master.wait(lambda state: state.sync.synced, "is in sync")

    # -- processes

    @property
    def roots(self) -> Roots:
        """Return which process belongs to which group, for a watch."""
        servers = dict(self._pids)
        cluster = self.cluster
        servers[cluster.etcd.pid] = "etcd"
        sessions = {daemon.pid: MASTER for daemon in cluster.masters}
        sessions |= {daemon.pid: WORKER for daemon in cluster.workers}
        return Roots(servers, sessions)


def all_past(found: dict[str, tuple[Checkpoint, ...]], ends: dict[str, SourcePosition]) -> bool:
    """Return whether every lane of every source is at its source's end or past it."""
    return all(
        found.get(source) and all(item.position.file_order() >= end.file_order() for item in found[source])
        for source, end in ends.items()
    )
