"""Runs one subtask's snapshot in this process: real servers, relay, gRPC; threads replace Spark tasks."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from pymysql.cursors import Cursor

from shardmerge.proto import config_pb2, relay_pb2_grpc
from shardmerge.proto.rpc.server import listen, make_server
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, connect, current_position, server_info
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.row_change import RowChange
from shardmerge.worker.core.spark.run_access import RunAccess
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_numbers import TableNumbers
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.core.task_runner import TaskRunner
from shardmerge.worker.daemon.task_service import TaskService
from shardmerge.worker.relay.model import BlockData, PurgePolicy, ReachedUntil
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.rules import Rules
from shardmerge.worker.snapshot.chunk_store import read_handover
from shardmerge.worker.snapshot.handover import Handover
from shardmerge.worker.snapshot.reader.chunk_reader import ReaderSpec
from shardmerge.worker.snapshot.unit import SnapshotUnit
from shardmerge.worker.target.members.member_cache import MemberCache
from shardmerge.worker.target.members.merged_targets import MergedTargets
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.schema import ensure_meta
from shardmerge.worker.target.tables.deferred_index import Defer
from shardmerge.worker.target.tables.make_targets import make_plans, read_structures
from shardmerge.worker.unit.contract import Outcome
from shardmerge.worker.unit.run_context import RunContext
from tests.support.database import Database
from tests.support.epochs import numbered
from tests.support.hooks import Hooks
from tests.support.server_ids import unleased
from tests.support.task_runners import Threads

META = "dm_meta"
TASK = "merge"
SOURCE = "s1"
RUN_SECRET = "secret-of-the-run"


def endpoint(server: Database) -> Endpoint:
    return Endpoint(server.host, server.port, "root")


def subtask_config(target: Database, **snapshot: object) -> config_pb2.SubTaskConfig:
    """Return a configuration that routes every schema named ``shard_*`` by ``config.routes``; without routes names
    stay."""
    config = config_pb2.SubTaskConfig(
        task=TASK,
        source_id=SOURCE,
        mode=config_pb2.TASK_MODE_ALL,
        meta_schema=META,
        target=config_pb2.Endpoint(host=target.host, port=target.port, user="root"),
        case_sensitive=True,
        block_allow_list=config_pb2.BlockAllowList(name="shards", do_dbs=["~^shard"]),
    )
    config.snapshot.CopyFrom(config_pb2.SnapshotConfig(**snapshot))  # pyright: ignore[reportArgumentType]
    return config


class Rig:
    """A snapshot in this process. Use it with ``with``. The source's tables must exist before."""

    def __init__(
        self,
        source: Database,
        target: Database,
        directory: Path,
        config: config_pb2.SubTaskConfig,
        *,
        relay: bool = True,
    ) -> None:
        self.source, self.target, self.config = source, target, config
        self.source_endpoint, self.target_endpoint = endpoint(source), endpoint(target)
        self.rules = Rules.from_config(config)
        self.relay = self._new_relay(directory / "relay")
        self._relays = relay
        self.service = TaskService(lambda: self.relay)
        self.service.totals.begin(TASK, SOURCE)
        self._server = make_server(["shardmerge.v1.Relay"])
        relay_pb2_grpc.add_RelayServicer_to_server(self.service, self._server)
        self.address = f"127.0.0.1:{listen(self._server, '127.0.0.1:0')}"
        self._epochs = itertools.count(1)
        self.epoch = 0
        self.plans: tuple[TablePlan, ...] = ()
        self.ran: SnapshotUnit | None = None
        """The newest unit of :meth:`unit`."""

    def __enter__(self) -> Self:
        self._server.start()
        session = self.session(Side.SOURCE)
        try:
            self.start = current_position(session, server_info(session))
            self.relay.ensure_from(self.start)
            if self._relays:
                self.relay.start()
            self.tables = read_structures(session, self.rules, SOURCE)
        finally:
            session.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()
        self.relay.stop()

    def renew_relay(self, directory: Path) -> None:
        """Go on with another relay log, as if the source had moved to another worker. No run may exist."""
        self.relay.stop()
        self.relay = self._new_relay(directory)
        self.relay.ensure_from(self.start)
        self.relay.start()

    def _new_relay(self, directory: Path) -> Relay:
        return Relay(directory, SOURCE, self.source_endpoint, self.source.flavor, unleased(4000), PurgePolicy())

    def session(self, side: Side, *, raw: bool = False) -> Session:
        where = self.source_endpoint if side is Side.SOURCE else self.target_endpoint
        return connect(where, side, name=SOURCE if side is Side.SOURCE else "target", raw=raw)

    def take_over(self) -> int:
        """Let a newer epoch own the subtask."""
        self.epoch = next(self._epochs)
        session = self.session(Side.TARGET)
        try:
            ensure_meta(session, META)
            subtask_record.take_over(session, SubtaskKey(META, TASK, SOURCE), numbered(self.epoch), "")
        finally:
            session.close()
        return self.epoch

    def context(self, task_runner: TaskRunner | None = None) -> RunContext:
        """Return the context of a run with a new epoch and its plans."""
        self.take_over()
        source, target = self.session(Side.SOURCE), self.session(Side.TARGET)
        try:
            defer = Defer.of(self.config.load)
            merged = MergedTargets(SubtaskKey(META, TASK, SOURCE), self.epoch, MemberCache(META, TASK))
            self.plans = make_plans(
                self.rules, SOURCE, self.tables, source, target, merged, META, defer=defer, after_load=True
            )
        finally:
            source.close()
            target.close()
        return RunContext(
            config=self.config,
            source=config_pb2.SourceConfig(source_id=SOURCE),
            epoch=self.epoch,
            rules=self.rules,
            tables=self.tables,
            source_endpoint=self.source_endpoint,
            target_endpoint=self.target_endpoint,
            relay=self.relay,
            task_runner=task_runner or Threads(),
            lane_address=self.address,
            registry=self.service,
            members=MemberCache(META, self.config.task),
            numbers=TableNumbers(len(self.tables)),
            run_secret=RUN_SECRET,
        )

    def access(self, secret: str = RUN_SECRET) -> RunAccess:
        """Return the identity by which the worker recognises the tasks of a run with this secret."""
        return RunAccess(secret, self.source_endpoint, self.target_endpoint)

    def unit(self, task_runner: TaskRunner | None = None) -> SnapshotUnit:
        """Return a unit with a new epoch."""
        context = self.context(task_runner)
        valid_from = dict.fromkeys((plan.shard for plan in self.plans), self.start)
        self.ran = SnapshotUnit(context, self.plans, valid_from)
        return self.ran

    def run(self, stop: StopSignal | None = None) -> Outcome:
        return self.unit().run(stop or StopSignal())

    def spec(self) -> ReaderSpec:
        """Return what the readers of the newest unit receive."""
        return ReaderSpec(
            self.address,
            RUN_SECRET,
            TASK,
            SOURCE,
            self.epoch,
            self.source_endpoint,
            self.target_endpoint,
            META,
            self.plans,
            self.config.snapshot.position == "watermark",
        )

    def handover(self) -> Handover:
        session = self.session(Side.TARGET)
        try:
            found = read_handover(
                session,
                SubtaskKey(META, TASK, SOURCE),
                self.plans,
                self.relay,
                self.source_endpoint,
                StopSignal(),
                replicating=False,
            )
        finally:
            session.close()
        assert found is not None
        return found

    def follow(self) -> int:
        """Play the stream strictly from the lowest high watermark to the source's end; return the number of counted
        changes."""
        handover = self.handover()
        session = self.session(Side.SOURCE)
        end = current_position(session, server_info(session))
        session.close()
        stop = StopSignal()
        until = self.relay.locate(end, 300, stop)
        start = handover.lowest[1]
        count = 0
        if until <= start:
            return 0
        plans = {(plan.table.schema, plan.table.name): plan for plan in self.plans}
        decoder = BlockDecoder(lambda schema, name: plans.get((schema, name)), source_keys=True, source=SOURCE)
        decoder.open(self.relay.opened(start).format_description)
        target = self.session(Side.TARGET)
        try:
            with target.cursor() as cursor:
                for item in self.relay.subscribe(start, until, None, stop):
                    if isinstance(item, ReachedUntil):
                        break
                    if isinstance(item, BlockData):
                        for change in handover.apply(decoder.decode(item.events), _offsets(item.start)):
                            _play(cursor, change)
                            count += 1
        finally:
            target.close()
        return count


@contextmanager
def held_at(moment: str, rig: Rig, hooks: Hooks) -> Generator[list[Outcome]]:
    """Run the snapshot until it is held at hook ``moment``; it ends with the block, its outcome is in the list."""
    outcome: list[Outcome] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDMERGE_HOOKS", str(hooks.directory))
        hooks.hold(moment)
        unit = rig.unit()
        run = threading.Thread(target=lambda: outcome.append(unit.run(StopSignal())))
        run.start()
        hooks.reached(moment)
        yield outcome
        hooks.release_all()
        run.join(300)


def _offsets(start: RelayOffset) -> Callable[[RowChange], RelayOffset]:
    return lambda change: RelayOffset(start.segment, start.byte + change.byte)


def _play(cursor: Cursor, change: RowChange) -> None:
    """Apply a change: every deleted row must exist exactly as recorded, and no inserted row may exist."""
    plan = change.plan
    names = [f"`{item.target_name}`" for item in plan.columns]
    if change.before:
        images = [value.decode("utf-8", "surrogateescape") for value in change.before]
        where = " AND ".join(f"{name} <=> {value}" for name, value in zip(names, images, strict=True))
        assert cursor.execute(f"DELETE FROM {plan.target_name} WHERE {where} LIMIT 1") == 1, change
    if change.after:
        images = [value.decode("utf-8", "surrogateescape") for value in change.after]
        cursor.execute(f"INSERT INTO {plan.target_name} ({', '.join(names)}) VALUES ({', '.join(images)})")


def count_rows(server: Database, name: str) -> int:
    [(count,)] = server.query(f"SELECT COUNT(*) FROM {name}")
    assert isinstance(count, int)
    return count
