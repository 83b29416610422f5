"""The rows of `top`, computed from successive overviews, and their table: the worst task first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import RenderableType
from rich.text import Text

from shardmerge.ctl.dm_words import stage_word
from shardmerge.ctl.render import format, style
from shardmerge.proto import common_pb2, errors
from shardmerge.proto import diagnose_pb2 as diagnosis
from shardmerge.proto import master_pb2 as pb

_BUSY_CAUSES = ("target", "gather", "decode", "read", "retry", "barrier", "start")
_LEAST_SHARE = 0.2
"""A cause with a smaller share of the lanes' time is not named."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task over all of its sources. ``stage``: the worst; ``lag``: the largest, None: of some source it is not
    known. ``cause``: what most of the time goes to, a phrase; ``worst``: the source with it. ``eta``: seconds until the
    histories are copied, None: not known, or none is copied. ``share``: of the histories, None: none is copied."""

    task: str
    stage: str
    failed: bool
    sources: int
    lag: float | None
    rate: int
    bytes_behind: int
    synced: bool
    held_keys: int
    cause: str
    worst: str
    share: float | None
    eta: float | None
    urgency: tuple[float, ...]


@dataclass(slots=True)
class LaneTimes:
    """Remembers the lanes' time of the last overview, by (task, source)."""

    _last: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict[tuple[str, str], dict[str, float]])

    def shares(self, key: tuple[str, str], seconds: Mapping[str, float]) -> dict[str, float]:
        """The shares of the time since the last call for ``key``; {} at the first one, and when nothing is new."""
        before = self._last.get(key)
        self._last[key] = dict(seconds)
        if before is None:
            return {}
        spent = {cause: value - before.get(cause, 0.0) for cause, value in seconds.items()}
        total = sum(spent.values())
        if total <= 0 or any(value < 0 for value in spent.values()):
            return {}  # the lanes were counted anew: another worker has the source
        return {cause: value / total for cause, value in spent.items()}


def rows(answer: pb.OverviewResponse, times: LaneTimes) -> list[TaskRow]:
    """One row for each task, those that need attention first, then by lag."""
    by_task: dict[str, list[pb.SourceOverview]] = {}
    for part in answer.sources:
        by_task.setdefault(part.task, []).append(part)
    found = [_row(task, parts, times) for task, parts in by_task.items()]
    return sorted(found, key=lambda row: (*(-value for value in row.urgency), row.task))


def _row(task: str, parts: list[pb.SourceOverview], times: LaneTimes) -> TaskRow:
    causes = {part.source: _cause(part, times) for part in parts}
    worst = max(parts, key=lambda part: (causes[part.source][0], _lag(part) or 0.0))
    weight, phrase = causes[worst.source]
    running = [part.subtask for part in parts if part.subtask.stage == common_pb2.STAGE_RUNNING]
    copies = [one for one in running if one.unit == common_pb2.UNIT_SNAPSHOT]
    lags = [_lag(part) for part in parts if part.subtask.unit != common_pb2.UNIT_SNAPSHOT]
    known = [lag for lag in lags if lag is not None]
    etas = [float(one.eta_seconds) for one in copies if one.eta_seconds]
    return TaskRow(
        task=task,
        stage=_stage(parts),
        failed=any(
            part.subtask.HasField("error") or (part.HasField("error") and not _is_earlier(part)) for part in parts
        ),
        sources=len(parts),
        lag=max(known) if known and len(known) == len(lags) else None,
        rate=sum(one.recent_rps for one in running),
        bytes_behind=sum(one.bytes_behind for one in running),
        synced=bool(parts) and all(part.subtask.synced for part in parts),
        held_keys=sum(part.subtask.held_keys for part in parts),
        cause=phrase,
        worst=worst.source if len(parts) > 1 and phrase else "",
        share=sum(one.share for one in copies) / len(copies) if copies else None,
        eta=max(etas) if etas and len(etas) == len(copies) else None,
        urgency=(weight, max(known, default=0.0)),
    )


def _lag(part: pb.SourceOverview) -> float | None:
    return part.subtask.lag_seconds if part.subtask.HasField("lag_seconds") else None


def _is_earlier(part: pb.SourceOverview) -> bool:
    """Whether its worker has no overview of its tasks: that does not mean that they have failed."""
    return part.HasField("error") and part.error.code == errors.master.PEER_UNIMPLEMENTED.code


def _stage(parts: Iterable[pb.SourceOverview]) -> str:
    """The stage of the task; with several, the one that needs attention first."""
    found = {part.subtask.stage for part in parts if part.HasField("subtask")}
    for stage in (
        common_pb2.STAGE_PAUSED,
        common_pb2.STAGE_NEW,
        common_pb2.STAGE_STOPPED,
        common_pb2.STAGE_RUNNING,
        common_pb2.STAGE_FINISHED,
    ):
        if stage in found:
            return stage_word(stage)
    return "unknown"


def _cause(part: pb.SourceOverview, times: LaneTimes) -> tuple[float, str]:
    """How much it needs attention (0: not at all), and why, one phrase."""
    subtask = part.subtask
    shares = times.shares((part.task, part.source), subtask.seconds)
    if _is_earlier(part):
        return 0.5, "not known: its worker is of an earlier version"
    if part.HasField("error"):
        return 6.0, f"{part.error.code} {part.error.name}"
    if not part.HasField("subtask"):
        return 5.0, "not started"
    if subtask.HasField("error"):
        again = subtask.waiting_for if subtask.stage == common_pb2.STAGE_PAUSED else ""
        return 5.5, f"{subtask.error.code} {subtask.error.name}" + (f", {again}" if again else "")
    if subtask.stage == common_pb2.STAGE_PAUSED:
        return 4.0, "paused by an operator"
    if part.locks:
        return 3.5, f"DDL lock {part.locks[0]}"
    if subtask.held_keys:
        return 3.0, f"{subtask.held_keys} key(s) held"
    if subtask.stage == common_pb2.STAGE_FINISHED:
        return 0.0, "finished"
    if subtask.stage == common_pb2.STAGE_STOPPED:
        return 1.5, "is being stopped"
    if subtask.unit == common_pb2.UNIT_UNSPECIFIED:
        return 2.5, f"starts: {subtask.waiting_for}" if subtask.waiting_for else "starts"
    if subtask.unit == common_pb2.UNIT_SNAPSHOT:
        return 2.0, subtask.throttle or "history is copied"
    return _running(subtask, shares)


def _running(subtask: diagnosis.SubTaskOverview, shares: Mapping[str, float]) -> tuple[float, str]:
    if subtask.unknown:
        return 2.5, f"unknown: {subtask.unknown}"
    behind = 1.0 if subtask.HasField("lag_seconds") and subtask.lag_seconds >= 1 else 0.0
    busy = {cause: shares.get(cause, 0.0) for cause in _BUSY_CAUSES}
    # A lane gathers rows for as long as its last commit took.
    busy["target"] += busy.pop("gather")
    cause = max(busy, key=lambda name: busy[name])
    if busy[cause] >= _LEAST_SHARE:
        return behind, f"{cause} {busy[cause] * 100:.0f} %"
    if not shares:
        return behind, subtask.waiting_for
    if subtask.waiting_for:
        return behind, subtask.waiting_for
    return behind, "idle" if subtask.synced else f"idle {shares.get('idle', 0.0) * 100:.0f} %"


def table(found: Sequence[TaskRow], most: int | None = None) -> RenderableType:
    """``most``: how many tasks there is room for; None: for all."""
    if not found:
        return Text("There is no task.", style="dim")
    right = ("sources", "lag", "rows/s", "backlog", "left")
    made = style.table("task", "stage", "sources", "lag", "rows/s", "backlog", "left", "main cause", right=right)
    shown = found if most is None or len(found) <= most else found[: max(1, most - 1)]
    for row in shown:
        made.add(
            row.task,
            style.stage(row.stage, failed=row.failed),
            str(row.sources),
            _lag_cell(row),
            style.cell(format.rate(row.rate), "" if row.rate else "dim"),
            style.cell(format.size(row.bytes_behind) if row.bytes_behind else "–", "" if row.bytes_behind else "dim"),
            _left_cell(row),
            f"{row.cause} ({row.worst})" if row.worst else row.cause,
        )
    if len(shown) < len(found):
        made.add(style.cell(f"and {len(found) - len(shown)} more", "dim"))
    return made


def _lag_cell(row: TaskRow) -> Text:
    if row.lag is None:
        return Text("–", style="dim")
    look = "green" if row.lag < 1 else "yellow" if row.lag < 60 else "red"
    return style.cell("in sync" if row.synced and not row.lag else format.duration(row.lag), look)


def _left_cell(row: TaskRow) -> Text:
    """Of the histories: the share that is copied, and how long it takes."""
    if row.share is None:
        return Text("–", style="dim")
    left = format.duration(row.eta) if row.eta is not None else "?"
    return style.cell(f"{format.percent(row.share)}, {left}")
