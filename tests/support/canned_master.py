"""Runs an in-process gRPC server that answers dmctl with prepared answers: it tests the contract without a cluster."""

from __future__ import annotations

import threading
from types import FunctionType
from typing import Any

import grpc

from shardmerge.proto import common_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.common_pb2 import ErrorDetail
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.server import Handler, add_service, listen, make_server
from shardmerge.proto.worker_pb2 import (
    LaneStatus,
    LoadStatus,
    ProcessResult,
    RelayStatus,
    SubTaskStatus,
    SyncStatus,
    TableProgress,
)

_MASTER = pb.DESCRIPTOR.services_by_name["Master"]

Answer = Any
"""A response, an error to raise, or a function of the request that returns either."""


class CannedMaster:
    """Answers each method with its prepared answers in turn, and repeats the last one; records every request."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self._answers: dict[str, list[Answer]] = {}
        self._lock = threading.Lock()
        self._server = make_server([_MASTER.full_name], "canned master")
        add_service(self._server, _MASTER, {name: self._method(name) for name in _MASTER.methods_by_name})
        self.port = listen(self._server, "127.0.0.1:0")
        self._server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.stop(None).wait()

    def answer(self, method: str, *answers: Answer) -> CannedMaster:
        with self._lock:
            self._answers[method] = list(answers)
        return self

    def _method(self, name: str) -> Handler:
        def answer(request: Any, _: grpc.ServicerContext) -> Any:
            made = self._next(name, request)
            return iter(made) if _MASTER.methods_by_name[name].server_streaming else made

        return answer

    def _next(self, method: str, request: Any) -> Any:
        with self._lock:
            self.requests.append(request)
            answers = self._answers[method]
            answer: Any = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, FunctionType):
            answer = answer(request)
        if isinstance(answer, ShardmergeError):
            raise answer
        return answer


# --- answers


def detail(code: int = 40001, *, retryable: bool = False, message: str = "row collides") -> ErrorDetail:
    return ErrorDetail(
        code=code,
        name="key-collision",
        error_class="replicate",
        scope=common_pb2.ERROR_SCOPE_TARGET,
        level=common_pb2.ERROR_LEVEL_HIGH,
        message=message,
        workaround="keep the shards' keys apart",
        retryable=retryable,
        args={"key": "7"},
    )


def loading(
    share: float, *, rate: float = 50_000, done: bool = False, tables: int = 3, rows: int = 1_000_000
) -> LoadStatus:
    """Return a snapshot of which ``share`` is done; its tables are copied one after the other."""
    each = rows // tables
    finished = int(rows * share)
    progress = [
        TableProgress(
            source_table=f"shop_{index:02d}.orders_{index:02d}",
            target_table="shop.orders",
            finished_rows=max(0, min(each, finished - each * index)),
            total_rows=each,
            finished_chunks=max(0, min(each, finished - each * index)) * 100 // each,
            total_chunks=100,
            finished_bytes=max(0, min(each, finished - each * index)) * 120,
            seconds=12.5 * share,
        )
        for index in range(tables)
    ]
    return LoadStatus(
        finished_bytes=finished * 120,
        total_bytes=rows * 120,
        progress=f"{share * 100:.2f} %",
        finished_rows=finished,
        total_rows=rows,
        finished_chunks=sum(table.finished_chunks for table in progress),
        total_chunks=100 * tables,
        plan_complete=True,
        rows_per_second=rate,
        eta_seconds=0 if done else int((rows - finished) / rate) if rate else 0,
        tables=progress,
    )


def unknown_progress(why: str) -> SyncStatus:
    """Return the status of a subtask whose lag is not known."""
    status = syncing(synced=False)
    status.unknown = why
    for name in ("bytes_behind", "lag_ms", "oldest_ms", "seconds_behind_master"):
        status.ClearField(name)
    lane = status.lanes[1]
    lane.unknown = "has not reported for 8 s"
    for name in ("bytes_behind", "lag_ms", "oldest_ms"):
        lane.ClearField(name)
    return status


def syncing(*, synced: bool, behind: int = 0, rps: int = 1200, lanes: int = 2) -> SyncStatus:
    phases = ("reading", "applying", "committing", "barrier", "starting", "retrying")
    return SyncStatus(
        total_rows=123_456,
        total_rps=900,
        recent_rps=rps,
        master_binlog="(mysql-bin.000003, 7700)",
        master_binlog_gtid="0-1-99",
        syncer_binlog="(mysql-bin.000003, 7600)",
        syncer_binlog_gtid="0-1-98",
        synced=synced,
        binlog_type="relay",
        seconds_behind_master=0 if synced else 12.5,
        lag_ms=7.0,
        oldest_ms=0 if synced else 12_500,
        bytes_behind=behind,
        lanes=[
            LaneStatus(
                lane=number,
                phase=phases[number % 6] if not synced else "reading",
                committed=common_pb2.RelayOffset(segment=1, byte=7600),
                rows=60_000 + number,
                lag_ms=7.0 + number,
                bytes_behind=behind // lanes,
                oldest_ms=0 if synced else 12_500,
                recent_rps=rps // lanes,
                waits_for="events" if synced or number % 6 == 0 else "",
                phase_seconds=3.0,
            )
            for number in range(lanes)
        ],
    )


def retrying(lane: int = 0) -> SyncStatus:
    """Return a unit of two lanes, one of which repeats a transaction."""
    status = syncing(synced=False)
    one = status.lanes[lane]
    one.phase, one.attempt = "retrying", 3
    one.waits_for = "attempt 3 after errno 1213, target-lock-conflict"
    one.error.CopyFrom(detail(40023, retryable=True, message="Deadlock found when trying to get lock"))
    return status


def subtask(
    progress: LoadStatus | SyncStatus | None,
    *,
    name: str = "merge",
    stage: common_pb2.Stage = common_pb2.STAGE_RUNNING,
    errors: tuple[ErrorDetail, ...] = (),
    doing: str = "",
) -> SubTaskStatus:
    status = SubTaskStatus(name=name, stage=stage, epoch=17, waiting_for=doing)
    match progress:
        case LoadStatus():
            status.unit = common_pb2.UNIT_SNAPSHOT
            status.load.CopyFrom(progress)
        case SyncStatus():
            status.unit = common_pb2.UNIT_REPLICATE
            status.sync.CopyFrom(progress)
        case None:
            pass
    if errors:
        status.result.CopyFrom(ProcessResult(errors=errors))
    return status


def status(*subtasks: SubTaskStatus, result: bool = True) -> pb.QueryStatusResponse:
    """Return a status with one source for each subtask, from mysql-01 on."""
    return pb.QueryStatusResponse(
        result=result,
        sources=[
            pb.SourceSubTasks(
                result=True,
                source_status=pb.SourceStatus(
                    source=f"mysql-{number:02d}",
                    worker=f"worker-{number}",
                    relay_status=RelayStatus(
                        master_binlog="(mysql-bin.000003, 7700)",
                        relay_binlog="(mysql-bin.000003, 7700)",
                        relay_catch_up_master=True,
                        stage=common_pb2.STAGE_RUNNING,
                        bytes_on_disk=3 << 30,
                        relay_sub_dir="5b3e",
                    ),
                ),
                sub_task_status=[one],
            )
            for number, one in enumerate(subtasks, 1)
        ],
    )
