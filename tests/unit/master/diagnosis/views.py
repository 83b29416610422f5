"""Views of one source, put together for the tests of conclusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmerge.master.diagnosis.conclude import conclude
from shardmerge.master.diagnosis.finding import Finding
from shardmerge.master.diagnosis.view import SourceView
from shardmerge.proto import common_pb2, config_pb2, master_pb2, worker_pb2
from shardmerge.proto import diagnose_pb2 as pb

SECONDS = 4.0
TASK, SOURCE = "orders", "mysql-01"


def lane(
    number: int,
    shares: Mapping[str, float],
    *,
    changes: int = 0,
    rows: int | None = None,
    transactions: int = 0,
    commit: float = 0.0,
    tables: Sequence[tuple[str, int, str]] = (),
    hot: pb.HotKey | None = None,
    connection: int = 0,
) -> pb.LaneUse:
    """``shares``: of the time, by cause; ``commit``: seconds of each transaction."""
    use = pb.LaneUse(
        lane=number,
        changes=changes,
        written_rows=changes if rows is None else rows,
        transactions=transactions,
        commit_seconds=transactions * commit,
        connection=connection,
        tables=[pb.TableUse(table=name, changes=count, one_lane=why) for name, count, why in tables],
        hot_key=hot,
    )
    use.seconds.update({cause: share * SECONDS for cause, share in shares.items()})
    return use


def sync(
    lanes: int = 2, *, phase: str = "committing", phase_seconds: float = 0.1, **fields: Any
) -> worker_pb2.SyncStatus:
    made = worker_pb2.SyncStatus(**fields)
    for number in range(lanes):
        made.lanes.add(lane=number, phase=phase, phase_seconds=phase_seconds)
    return made


def view(
    *lanes: pb.LaneUse,
    status: worker_pb2.SyncStatus | worker_pb2.LoadStatus | None = None,
    stage: common_pb2.Stage = common_pb2.STAGE_RUNNING,
    target: pb.TargetLook | None = None,
    relay: pb.RelayUse | None = None,
    copy: pb.CopyUse | None = None,
    config: config_pb2.SubTaskConfig | None = None,
    source: str = SOURCE,
    worker_status: worker_pb2.WorkerStatusResponse | None = None,
    subtask: worker_pb2.SubTaskStatus | None = None,
    compared: bool = False,
    **fields: Any,
) -> SourceView:
    """A source whose worker has answered. ``status``: of the unit, by default one that lags a minute."""
    one = subtask if subtask is not None else worker_pb2.SubTaskStatus(name=TASK, stage=stage)
    if subtask is None:
        match status:
            case worker_pb2.LoadStatus():
                one.unit = common_pb2.UNIT_SNAPSHOT
                one.load.CopyFrom(status)
            case _:
                one.unit = common_pb2.UNIT_REPLICATE
                one.sync.CopyFrom(status if status is not None else behind())
    found = worker_status if worker_status is not None else worker_pb2.WorkerStatusResponse(worker="w1", source=source)
    found.subtasks.append(one)
    use = pb.SubTaskUse(
        seconds=SECONDS, lanes=lanes, relay=relay, target=target or looked(), copy=copy, compared=compared
    )
    answer = worker_pb2.WorkerDiagnoseResponse(status=found, use=use)
    given = config if config is not None else config_pb2.SubTaskConfig(task=TASK, source_id=source)
    return SourceView(TASK, source, "w1", None, answer, given, **fields)


def behind(lanes: int = 2, **fields: Any) -> worker_pb2.SyncStatus:
    return sync(lanes, oldest_ms=60_000, bytes_behind=1 << 20, **fields)


def looked(round_trip: float = 0.001, **fields: Any) -> pb.TargetLook:
    return pb.TargetLook(answered=True, round_trip=round_trip, **fields)


def findings(*views: SourceView, locks: Sequence[master_pb2.DDLLock] = ()) -> tuple[Finding, ...]:
    return conclude(views, locks)


def ids(*views: SourceView, locks: Sequence[master_pb2.DDLLock] = ()) -> list[str]:
    return [each.id for each in findings(*views, locks=locks)]


def one(wanted: str, *views: SourceView, locks: Sequence[master_pb2.DDLLock] = ()) -> Finding:
    """The only finding with this id."""
    [found] = [each for each in findings(*views, locks=locks) if each.id == wanted]
    return found
