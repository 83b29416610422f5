"""Defines the merge that is measured: its target table, its task file, and the master's answers about it.

The queries go to the master over gRPC: a dmctl process per query would cost more than it measures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import grpc

from shardmerge.proto import common_pb2, master_pb2, worker_pb2
from shardmerge.proto.master_pb2_grpc import MasterStub
from shardmerge.proto.rpc import client
from shardmerge.worker.core.position import SourcePosition
from tests.benchmarks.settings import Settings
from tests.benchmarks.sysbench import SCHEMA
from tests.support.cluster import parse_position
from tests.support.database import Database

TASK = "benchmark"
META_SCHEMA = "dm_meta"
MERGED = "merged.sbtest"
CEILING = "ceiling.sbtest"
ORIGINAL_BITS = 51
"""Bits of the original id in a merged id: above them are 4 bits for the source and 8 for the table."""

_COLUMNS = (
    "id BIGINT NOT NULL{auto}, k INT NOT NULL DEFAULT 0, c CHAR(120) NOT NULL DEFAULT '', "
    "pad CHAR(60) NOT NULL DEFAULT '', PRIMARY KEY (id), KEY k_1 (k)"
)


class BenchmarkFailed(Exception):
    """The benchmark cannot continue; the message is for the person who runs it."""


def create_table(server: Database, name: str, *, auto_increment: bool = False) -> None:
    """Create ``name`` anew, empty, as a merged sysbench table: the merged one and those of the ceilings are alike."""
    schema = name.partition(".")[0]
    columns = _COLUMNS.format(auto=" AUTO_INCREMENT" if auto_increment else "")
    server.execute(
        f"CREATE DATABASE IF NOT EXISTS {schema}",
        f"DROP TABLE IF EXISTS {name}",
        f"CREATE TABLE {name} ({columns}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
    )


def merged_id(source: int, table: int, original: int) -> int:
    """Return the id of row ``original`` of ``sbtest<table>`` at source number ``source``, as `partition id` makes
    it."""
    return (source << 8 | table) << ORIGINAL_BITS | original


def task_yaml(
    settings: Settings,
    sources: Sequence[str],
    target: Database,
    *,
    name: str = TASK,
    merged: str = MERGED,
    lanes: int | None = None,
    further: Sequence[str] = (),
) -> str:
    """Return the task file that merges all shard tables of ``sources`` (their ids, in order) into one table.
    ``lanes``: per source, those of the settings by default. ``further``: lines of it."""
    schema, table = merged.split(".")
    lines = [
        f"name: {name}",
        "task-mode: all",
        f"auto-increment: {'keep' if settings.auto_increment else 'none'}",
        f"meta-schema: {META_SCHEMA}",
        f'target-database: {{host: {target.host}, port: {target.port}, user: root, password: ""}}',
        "mysql-instances:",
    ]
    for number, source in enumerate(sources, 1):
        lines += [
            f"  - source-id: {source}",
            "    block-allow-list: all",
            "    route-rules: [merge]",
            f"    column-mapping-rules: [ids-{number}]",
            "    mydumper-config-name: global",
        ]
    pattern = f'schema-pattern: "{SCHEMA}", table-pattern: "sbtest*"'
    lines += [
        "block-allow-list:",
        f"  all: {{do-dbs: [{SCHEMA}]}}",
        "routes:",
        f"  merge: {{{pattern}, target-schema: {schema}, target-table: {table}}}",
        "column-mappings:",
    ]
    lines += [
        f"  ids-{number}: {{{pattern}, expression: partition id, source-column: id, target-column: id, "
        f'arguments: ["{number}", "", "sbtest"]}}'
        for number in range(1, len(sources) + 1)
    ]
    lines += [
        "mydumpers:",
        f"  global: {{threads: {settings.threads}}}",
        "replicate:",
        f"  lanes: {lanes or settings.lanes}",
        *further,
    ]
    return "\n".join(lines) + "\n"


class Master:
    """Requests to the master about one task. Close it after use."""

    def __init__(self, address: str, task: str, subtasks: int) -> None:
        self._channel = client.channel(address)
        self._stub = MasterStub(self._channel)
        self._task = task
        self._subtasks = subtasks

    def close(self) -> None:
        self._channel.close()

    def create_source(self, source: str, host: str, port: int) -> None:
        """Create a source; raises BenchmarkFailed with the master's answer when it rejects the source."""
        text = f"source-id: {source}\nfrom: {{host: {host}, port: {port}, user: root, password: ''}}\n"
        file = master_pb2.ConfigFile(name=f"{source}.yaml", content=text)
        answer = self._stub.OperateSource(
            master_pb2.OperateSourceRequest(op=master_pb2.OperateSourceRequest.OP_CREATE, files=[file]), timeout=300
        )
        if not answer.result:
            raise BenchmarkFailed(f"operate-source create failed: {answer}")

    def alive(self) -> list[str]:
        """Return, for each worker that is alive, the source that it holds, "" for none; in order. [] while there is no
        leader."""
        try:
            answer = self._stub.ListMember(master_pb2.ListMemberRequest(worker=True), timeout=60)
        except grpc.RpcError:
            return []
        return sorted(member.source for member in answer.workers if member.stage != "offline")

    def start(self, text: str, *, remove_meta: bool = False) -> None:
        file = master_pb2.ConfigFile(name=f"{self._task}.yaml", content=text)
        request = master_pb2.StartTaskRequest(file=file, remove_meta=remove_meta)
        answer = self._stub.StartTask(request, timeout=300)
        if not answer.result:
            raise BenchmarkFailed(f"start-task failed: {answer}")

    def pause(self) -> None:
        """Return when every subtask is paused."""
        self._operate(master_pb2.OperateTaskRequest.OP_PAUSE)
        self.wait(lambda state: state.stage == common_pb2.STAGE_PAUSED, "is paused")

    def resume(self) -> None:
        """Return when the master has accepted the request."""
        self._operate(master_pb2.OperateTaskRequest.OP_RESUME)

    def stop(self) -> None:
        self._operate(master_pb2.OperateTaskRequest.OP_STOP)

    def _operate(self, op: master_pb2.OperateTaskRequest.Op) -> None:
        answer = self._stub.OperateTask(master_pb2.OperateTaskRequest(op=op, name=self._task), timeout=120)
        if not answer.result:
            raise BenchmarkFailed(f"{self._task}: {master_pb2.OperateTaskRequest.Op.Name(op)} failed: {answer}")

    def pause_relay(self, sources: Sequence[str]) -> None:
        self._relay(master_pb2.OperateRelayRequest.OP_PAUSE, sources)

    def resume_relay(self, sources: Sequence[str]) -> None:
        self._relay(master_pb2.OperateRelayRequest.OP_RESUME, sources)

    def _relay(self, op: master_pb2.OperateRelayRequest.Op, sources: Sequence[str]) -> None:
        answer = self._stub.OperateRelay(master_pb2.OperateRelayRequest(op=op, sources=sources), timeout=120)
        if not answer.result:
            raise BenchmarkFailed(f"{master_pb2.OperateRelayRequest.Op.Name(op)} failed: {answer}")

    def status(self) -> master_pb2.QueryStatusResponse:
        return self._stub.QueryStatus(master_pb2.QueryStatusRequest(name=self._task), timeout=60)

    def locks(self) -> master_pb2.ShowDDLLocksResponse:
        return self._stub.ShowDDLLocks(master_pb2.ShowDDLLocksRequest(task=self._task), timeout=60)

    def update(self, text: str) -> None:
        file = master_pb2.ConfigFile(name=f"{self._task}.yaml", content=text)
        answer = self._stub.UpdateTask(master_pb2.UpdateTaskRequest(file=file), timeout=300)
        if not answer.result:
            raise BenchmarkFailed(f"update-task failed: {answer}")

    def subtasks(self) -> list[worker_pb2.SubTaskStatus]:
        """Return the status of all subtasks; raises BenchmarkFailed when one of them has stopped with an error."""
        found = [state for source in self.status().sources for state in source.sub_task_status]
        for state in found:
            if state.stage == common_pb2.STAGE_PAUSED and state.result.errors:
                raise BenchmarkFailed(f"{self._task} has stopped: {state.result.errors}")
        return found

    def check(self) -> None:
        """Raise BenchmarkFailed when a subtask has stopped with an error; do nothing while the master is busy."""
        with suppress(grpc.RpcError):
            self.subtasks()

    def wait(
        self,
        condition: Callable[[worker_pb2.SubTaskStatus], bool],
        what: str,
        *,
        seconds: float = 3600.0,
        every: float = 0.1,
    ) -> list[worker_pb2.SubTaskStatus]:
        """Wait until ``condition`` holds for every subtask; BenchmarkFailed at the deadline or when one has failed."""
        deadline = time.monotonic() + seconds
        found: list[worker_pb2.SubTaskStatus] = []
        while time.monotonic() < deadline:
            try:
                found = self.subtasks()
            except grpc.RpcError:
                found = []  # the master is busy; the deadline decides
            if len(found) == self._subtasks and all(condition(state) for state in found):
                return found
            time.sleep(every)
        raise BenchmarkFailed(f"not within {seconds:.0f} s: every subtask {what}; last seen: {found}")

    def relay_positions(self) -> dict[str, tuple[int, int]]:
        """Return how far each source's relay log reaches: (number of the binlog file, byte)."""
        return {
            source.source_status.source: parse_position(source.source_status.relay_status.relay_binlog)
            for source in self.status().sources
        }

    def wait_relayed(self, ends: dict[str, SourcePosition], seconds: float = 1800.0) -> None:
        """Wait until the relay logs hold everything up to ``ends`` (by source)."""
        deadline = time.monotonic() + seconds
        reached: dict[str, tuple[int, int]] = {}
        while time.monotonic() < deadline:
            reached = self.relay_positions()
            if all(reached.get(source, (0, 0)) >= end.file_order() for source, end in ends.items()):
                return
            time.sleep(0.1)
        raise BenchmarkFailed(f"the relay logs are at {reached}, not at {ends}, after {seconds:.0f} s")
