"""How far the copy of a history is, when it ends, and what limits it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.master.diagnosis.finding import BUSY, LOCKED, Finding, percent, seconds
from shardmerge.master.diagnosis.stopped import coded, workaround
from shardmerge.master.diagnosis.view import SourceView
from shardmerge.proto import config_pb2, worker_pb2

_HISTORY = 40.0
_LEAST_THROTTLED = 0.25
_MOST_SHARE = 0.5
_LEAST_NAMED = 0.05

_LIMITS = {
    "snapshot.rows-per-second": "rows_per_second",
    "snapshot.bytes-per-second": "bytes_per_second",
    "snapshot.max-threads-running": "max_threads_running",
    "snapshot.max-replica-lag": "max_replica_lag",
}
"""The limits by their key in the task file, and the fields that hold them."""

_RATES = frozenset({"snapshot.rows-per-second", "snapshot.bytes-per-second"})


def history(view: SourceView) -> Iterator[Finding]:
    """The findings of a source whose history is copied."""
    status = view.status
    if not view.is_copying or status is None:
        return
    shares = reader_shares(view)
    yield from _retried(view, status.load)
    yield from _throttled(view, shares)
    load = status.load
    left = f"about {seconds(load.eta_seconds)} left" if load.eta_seconds else "how long it takes is not known yet"
    limit, action = _limit(shares, _apply(view))
    figures = {f"{cause}_share": share for cause, share in shares.items()}
    figures |= {"rows_per_second": load.rows_per_second, "finished_rows": float(load.finished_rows)}
    if load.eta_seconds:
        figures["eta_seconds"] = float(load.eta_seconds)
    yield Finding(
        "history",
        _HISTORY,
        f"The history is being copied: {load.progress or '0 %'}, {load.rows_per_second:,.0f} rows/s, {left}. {limit} "
        "Changes are applied after it.",
        (action,) if action else (),
        figures=figures,
    )


def reader_shares(view: SourceView) -> dict[str, float]:
    """The shares of the readers' time by cause; {}: not known."""
    found = view.use.copy.seconds
    total = sum(found.values())
    return {cause: value / total for cause, value in sorted(found.items())} if total > 0 else {}


def _retried(view: SourceView, load: worker_pb2.LoadStatus) -> Iterator[Finding]:
    if load.HasField("retried"):
        error = load.retried
        yield Finding(
            "copy-retried",
            LOCKED,
            f"The copy of the history tries again after this error: {coded(error)}.",
            workaround(view, error),
            figures={"code": error.code},
            names={"error": error.name},
        )


def _throttled(view: SourceView, shares: dict[str, float]) -> Iterator[Finding]:
    share, reason = shares.get("throttle", 0.0), view.use.copy.throttle
    if share < _LEAST_THROTTLED:
        return
    limits = _configured(view.config.snapshot)
    # Between two chunks no reader waits, and there is no reason at that moment.
    only = next(iter(limits)) if len(limits) == 1 else ""
    key = next((name for name in _LIMITS if reason.startswith(name)), only)
    set_ones = ", ".join(f"`{name}: {value}`" for name, value in limits.items())
    # Of the limits of a rate the reason has only when the next chunk begins.
    now = f" Now: {reason}." if reason and key not in _RATES else ""
    names = {"limit": key} if key else {}
    figures = {"throttle_share": share}
    if key in limits:
        figures["limit"] = float(limits[key])
    yield Finding(
        "throttle",
        BUSY * share + 35.0 * (1 - share),
        f"The task's own limits slow the copy of the history down: its readers wait for them {percent(share)} of their "
        f"time. The task file has {set_ones or 'no limit that this master knows'}.{now}",
        (f"Raise or remove {f'`{key}`' if key else 'the limit'} in the task file, then {_apply(view)}.",),
        figures=figures,
        names=names,
    )


def _configured(snapshot: config_pb2.SnapshotConfig) -> dict[str, int]:
    """The limits that are set, by their key in the task file."""
    values = {name: int(getattr(snapshot, field)) for name, field in _LIMITS.items()}
    return {name: value for name, value in values.items() if value}


def _apply(view: SourceView) -> str:
    """How a copy that runs gets another value of the task file; a task of mode full cannot be updated."""
    if view.config.mode == config_pb2.TASK_MODE_FULL:
        return (
            f"`dmctl stop-task {view.task_word}` and `dmctl start-task FILE`: a task with `task-mode: full` cannot be "
            "updated. Chunks that are copied stay"
        )
    return "`dmctl update-task FILE`: the copy continues with it at once"


def _limit(shares: dict[str, float], apply: str) -> tuple[str, str]:
    """What limits the copy, as a sentence, and what to do; "" for nothing. ``apply``: how the task file's values take
    effect."""
    if not shares:
        return "What limits it is not known: no reader has reported in this time.", ""
    parts = (
        f"The readers spend {percent(shares.get('read', 0.0))} of their time reading the source, "
        f"{percent(shares.get('write', 0.0))} writing the target"
    )
    if shares.get("throttle", 0.0):
        parts += f", {percent(shares['throttle'])} waiting for the task's limits"
    if shares.get("wait", 0.0) >= _LEAST_NAMED:
        parts += f", {percent(shares['wait'])} waiting until chunks are planned"
    if shares.get("throttle", 0.0) >= _MOST_SHARE:
        return f"{parts}.", ""
    if shares.get("write", 0.0) >= _MOST_SHARE:
        return f"{parts}: the target limits it.", (
            "Look at the target's disk and indexes. While the target has room, more readers help: `snapshot.threads` "
            f"in the task file, then {apply}."
        )
    if shares.get("wait", 0.0) >= _MOST_SHARE:
        return f"{parts}: planning limits it, which reads the bounds of chunks from the source.", (
            "More readers do not help. Larger chunks (`snapshot.chunk-rows`) need fewer bounds; the load of the source "
            "delays each of them."
        )
    return f"{parts}: reading limits it.", (
        "While the source and the worker have room, more readers help: `snapshot.threads` in the task file, then "
        f"{apply}."
    )
