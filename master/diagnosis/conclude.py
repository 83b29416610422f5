"""All findings of a task, in the order of their weight. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardmerge.master.diagnosis.finding import STOPPED, Finding, in_order
from shardmerge.master.diagnosis.history import history, reader_shares
from shardmerge.master.diagnosis.lanes import lanes
from shardmerge.master.diagnosis.source import compared, finished, idle, relay_behind
from shardmerge.master.diagnosis.stopped import stopped
from shardmerge.master.diagnosis.view import LANE_CAUSES, SourceView
from shardmerge.master.diagnosis.waits import (
    AT_LOCK,
    Connections,
    ddl_locks,
    held_rows,
    joining_tables,
    locks_of_statements,
    locks_of_target,
    own_connections,
    running_statements,
    silent_lanes,
    statement_scans,
    target_unreachable,
    waiting_lanes,
)
from shardmerge.proto import diagnose_pb2 as pb
from shardmerge.proto import master_pb2

_UNKNOWN_WEIGHT = 65.0


def conclude(views: Sequence[SourceView], locks: Sequence[master_pb2.DDLLock]) -> tuple[Finding, ...]:
    """The causes that delay the task, the heaviest first. ``locks``: its DDL locks."""
    own = own_connections(views)
    parked = {table.source for lock in locks for table in lock.tables if table.standing in AT_LOCK}
    found: list[Finding] = [
        each.of(view.source) for view in views for each in _of_source(view, own, is_parked=view.source in parked)
    ]
    of_target = (locks_of_statements(views, own), running_statements(views), statement_scans(views, own))
    return in_order([*found, *(each for part in of_target for each in part), *ddl_locks(locks)])


def _of_source(view: SourceView, own: Connections, *, is_parked: bool) -> Iterator[Finding]:
    """``is_parked``: rows of some of its tables wait at a DDL lock."""
    why_stopped = list(stopped(view))
    yield from why_stopped
    yield from held_rows(view)
    yield from joining_tables(view)
    if any(each.weight >= STOPPED for each in why_stopped):
        return
    unreachable = list(target_unreachable(view))
    yield from unreachable
    locks = list(locks_of_target(view, own))
    yield from locks
    yield from silent_lanes(view)
    yield from _unknown(view)
    if not why_stopped:
        yield from relay_behind(view)
    if not unreachable or view.transactions:  # else it explains what the lanes do
        yield from lanes(view, waiting_lanes(view) if locks else (), is_parked=is_parked)
    yield from history(view)
    if not is_parked:
        yield from idle(view)
    yield from finished(view)
    yield from compared(view)


def _unknown(view: SourceView) -> Iterator[Finding]:
    status = view.status
    if view.is_replicating and status is not None and status.sync.unknown and not list(stopped(view)):
        yield Finding(
            "lag-unknown",
            _UNKNOWN_WEIGHT,
            f"The lag of the target is not known: {status.sync.unknown}.",
            (f"`dmctl query-status {view.task_word} --more`",),
        )


def unknown_facts(views: Sequence[SourceView]) -> list[str]:
    """What could not be found out, as sentences."""
    found: list[str] = []
    for view in views:
        target = view.use.target
        if view.answer is None or not (view.is_replicating or view.is_copying):
            continue
        if target.hidden:
            found.append(f"{view.source}: not visible at the target: {target.hidden}.{_optional(target.grants)}")
        elif not target.answered and not target.HasField("error"):
            found.append(
                f"{view.source}: the target did not answer in time (or another look at a target had not ended), so "
                "locks there are not known."
            )
        silent = len(view.use.lanes) - len(view.lanes)
        if view.is_replicating and silent:
            found.append(f"{view.source}: {silent} lane(s) did not report while they were measured.")
        if view.is_copying and not reader_shares(view):
            found.append(f"{view.source}: no reader of the history has reported while it was measured.")
    return found


def _optional(grants: Sequence[str]) -> str:
    """The statements with which more is visible, as a sentence; "" without any."""
    if not grants:
        return ""
    statements = " ".join(f"`{statement}`" for statement in grants)
    return f" An administrator of the target can allow it: {statements} Only `dmctl why` uses that, the task does not."


def source_use(view: SourceView) -> pb.SourceUse | None:
    """What the source's part of the task spends its time on; None: it was not measured."""
    status = view.status
    if status is None:
        return None
    use = pb.SourceUse(source=view.source, worker=view.worker, stage=status.stage, unit=status.unit)
    if view.is_copying:
        use.shares.update(reader_shares(view))
        use.changes_per_second = status.load.rows_per_second
    elif view.is_replicating:
        use.shares.update({cause: share for cause in LANE_CAUSES if (share := view.share(cause)) > 0})
        use.changes_per_second = view.changes_per_second
        if view.commit_seconds is not None:
            use.commit_ms = view.commit_seconds * 1000
        if view.lag is not None:
            use.lag_seconds = view.lag
            use.bytes_behind = status.sync.bytes_behind
    if view.round_trip is not None:
        use.round_trip_ms = view.round_trip * 1000
    return use
