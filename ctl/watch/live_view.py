"""The live view of `query-status --watch`: a renderable from a TaskProgress. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shardmerge.ctl.render import format
from shardmerge.ctl.render import style as look
from shardmerge.ctl.render.progress import Lane, ReplicatePart, SnapshotPart, TableRow, TaskProgress

_PHASE_STYLES = {
    "reading": "cyan",
    "applying": "green",
    "committing": "bold green",
    "retrying": "bold yellow",
    "barrier": "yellow",
    "starting": "dim",
}
_LANES_SHOWN = 16


@dataclass(frozen=True, slots=True)
class Frame:
    """What surrounds the progress. ``elapsed``: seconds watched; ``stale_reason``: why the view is not up to date."""

    title: str
    address: str
    elapsed: float
    width: int
    height: int
    lanes: bool = False
    stale_reason: str = ""
    closing: str = ""


def render(progress: TaskProgress, frame: Frame) -> RenderableType:
    """At most ``frame.height`` lines: tables that are done or wait are counted when there is no room."""
    parts: list[RenderableType] = [_title(_state(progress), frame)]
    room = frame.height - 6 - 4 * (len(progress.problems) + len(progress.warnings)) - len(progress.idle)
    if progress.replicates:
        room -= 3 + len(progress.replicates)
    if progress.snapshots:
        parts += [Text(""), _snapshots(progress.snapshots, frame, max(3, room))]
    if progress.replicates:
        parts += [Text(""), _replicates(progress.replicates, frame)]
    for part in progress.idle:
        parts += [
            Text.assemble(
                ("  ", ""),
                (look.flat(part.source), "bold"),
                "  ",
                look.stage(part.stage, failed=part.failed),
                (f"  {look.flat(part.activity)}", "dim"),
            )
        ]
    parts += [look.problem(problem.report, problem.where) for problem in progress.problems]
    parts += [look.warning(warning, f"source {source}") for source, warning in progress.warnings]
    parts += [Text(""), _footer(frame)]
    return Group(*parts)


def render_tasks(tasks: RenderableType, frame: Frame) -> RenderableType:
    """The view without a task: the list of tasks as it changes."""
    return Group(_title(Text(""), frame), Text(""), tasks, Text(""), _footer(frame))


def _title(state: Text, frame: Frame) -> RenderableType:
    line = Table.grid(expand=True)
    line.add_column(no_wrap=True)
    line.add_column(justify="right", style="dim", no_wrap=True)
    left = Text.assemble(("▌", "bold cyan"), (f" {look.flat(frame.title)}  ", "bold"), state)
    line.add_row(left, f"{frame.address}  {_clock(frame.elapsed)}")
    return line


def _state(progress: TaskProgress) -> Text:
    """One phrase for all subtasks together."""
    if progress.problems:
        return Text("needs attention", style="bold red")
    if progress.snapshots:
        return Text("copying history", style="green")
    if progress.replicates:
        if all(part.stage == "Paused" for part in progress.replicates):
            return Text("paused", style="yellow")
        if any(part.unknown for part in progress.replicates):
            return Text("progress unknown", style="yellow")
        if all(part.synced for part in progress.replicates):
            return Text("in sync", style="bold green")
        return Text("catching up", style="green")
    if progress.idle and all(part.stage == "Finished" for part in progress.idle):
        return Text("finished", style="cyan")
    return Text("waiting", style="dim")


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def _footer(frame: Frame) -> Text:
    if frame.closing:
        return Text(look.flat(frame.closing), style="bold")
    if frame.stale_reason:
        return Text(look.flat(f"not up to date: {frame.stale_reason}"), style="yellow")
    return Text("Ctrl-C ends this view; the task continues.", style="dim")


# --- snapshot


def _snapshots(parts: tuple[SnapshotPart, ...], frame: Frame, room: int) -> RenderableType:
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(width=_bar_width(frame))
    for _ in range(4):
        grid.add_column(justify="right", no_wrap=True)
    grid.add_row(
        Text("Snapshot", style="bold"), "", *(Text(name, style="dim") for name in ("", "rows", "rows/s", "left"))
    )
    each = max(1, (room - 2 * len(parts)) // len(parts))
    for part in parts:
        _snapshot_rows(grid, part, each, frame)
    if len(parts) > 1:
        _total_row(grid, parts, frame)
    return grid


def _snapshot_rows(grid: Table, part: SnapshotPart, room: int, frame: Frame) -> None:
    name = Text.assemble((look.flat(part.source), "bold"), "  ", look.stage(part.stage, failed=part.failed))
    if part.activity:
        name.append(f"  {look.flat(part.activity)}", style="dim")
    grid.add_row(
        name,
        _bar(part.share, frame, failed=part.failed, done=part.stage == "Finished"),
        Text(format.percent(part.share), style="bold"),
        Text(_of(part.finished_rows, part.total_rows, planning=part.planning)),
        Text(format.rate(part.rate), style="green" if part.rate else "dim"),
        _left(part.eta),
    )
    shown, rest = choose(part.tables, room)
    for table in shown:
        share = 1.0 if table.done else min(0.999, format.share(table.finished_rows, table.total_rows))
        style = "dim" if table.done or not table.finished_rows else ""
        grid.add_row(
            Text.assemble("  ", (look.flat(table.source_table), style), (f" → {look.flat(table.target_table)}", "dim")),
            _bar(share, frame, done=table.done),
            Text(format.percent(share), style=style),
            Text(_of(table.finished_rows, table.total_rows), style=style),
            Text("done", style="cyan") if table.done else Text(format.rate(table.rate), style=style),
            Text("") if table.done else _left(table.eta),
        )
    if rest:
        grid.add_row(Text(f"  {rest}", style="dim"), "", "", "", "", "")


def choose(tables: tuple[TableRow, ...], room: int) -> tuple[tuple[TableRow, ...], str]:
    """The tables to show in ``room`` lines, those in progress first, and a phrase that counts the others."""
    if len(tables) <= room:
        return tables, ""

    def urgency(table: TableRow) -> int:
        return 2 if table.done else 0 if table.finished_rows else 1

    ordered = sorted(tables, key=urgency)
    shown, hidden = tuple(ordered[: room - 1]), ordered[room - 1 :]
    done = sum(table.done for table in hidden)
    waiting = sum(not table.done and not table.finished_rows for table in hidden)
    counts = ((len(hidden) - done - waiting, "on the way"), (waiting, "waiting"), (done, "done"))
    return shown, "… and " + ", ".join(f"{count} {word}" for count, word in counts if count)


def _total_row(grid: Table, parts: tuple[SnapshotPart, ...], frame: Frame) -> None:
    finished, total = sum(part.finished_rows for part in parts), sum(part.total_rows for part in parts)
    share = sum(part.share * max(1, part.total_rows) for part in parts) / sum(max(1, part.total_rows) for part in parts)
    etas = [part.eta for part in parts if part.stage != "Finished"]
    known = [eta for eta in etas if eta is not None]
    grid.add_row(
        Text("all sources", style="bold"),
        _bar(share, frame),
        Text(format.percent(share), style="bold"),
        Text(_of(finished, total, planning=any(part.planning for part in parts)), style="bold"),
        Text(format.rate(sum(part.rate for part in parts)), style="bold green"),
        _left(max(known) if known and len(known) == len(etas) else None),
    )


def _of(finished: int, total: int, *, planning: bool = False) -> str:
    """``12 / 34``; the total is an estimate: never below what is done, ``+`` while tables are still planned."""
    return f"{format.rows(finished)} / {format.rows(max(finished, total))}{'+' if planning else ''}"


def _left(eta: float | None) -> Text:
    return Text("–", style="dim") if eta is None else Text(format.duration(eta))


def _bar_width(frame: Frame) -> int:
    return max(8, min(32, (frame.width - 60) // 2))


def _bar(share: float, frame: Frame, *, failed: bool = False, done: bool = False) -> ProgressBar:
    return ProgressBar(
        total=1.0,
        completed=share,
        width=_bar_width(frame),
        complete_style="red" if failed else "cyan" if done else "green",
        finished_style="cyan",
        style="bright_black",
    )


# --- replicate


def _replicates(parts: tuple[ReplicatePart, ...], frame: Frame) -> RenderableType:
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for _ in range(4):
        grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    headers = ("lag", "backlog", "rows", "rows/s", "", "lanes")
    grid.add_row(Text("Replicate", style="bold"), *(Text(name, style="dim") for name in headers))
    for part in parts:
        state = Text("✓ synced", style="green") if part.synced else Text("… lags", style="yellow")
        if part.unknown:
            state = look.cell(f"unknown: {part.unknown}", "yellow")
        if part.stage != "Running" or part.failed:
            state = look.stage(part.stage, failed=part.failed)
        name = Text.assemble((look.flat(part.source), "bold"), "  ", state)
        if part.activity:
            name.append(f"  {look.flat(part.activity)}", style="dim")
        grid.add_row(
            name,
            Text(_lag(part.lag), style=_lag_style(part.lag)),
            _behind(part.bytes_behind),
            Text(format.rows(part.total_rows)),
            Text(format.rate(part.rate), style="green" if part.rate else "dim"),
            Text(format.sparkline(part.rates), style="green"),
            _lanes(part.lanes),
        )
        if frame.lanes:
            for lane in part.lanes:
                waits = f"  {look.flat(lane.waiting_for)}" if lane.waiting_for else ""
                grid.add_row(
                    Text.assemble(
                        "  ", (f"lane {lane.number}  ", "dim"), (look.flat(lane.phase), _phase(lane)), (waits, "dim")
                    ),
                    Text(_lag(lane.lag), style=_lag_style(lane.lag)),
                    _behind(lane.bytes_behind),
                    Text(format.rows(lane.rows)),
                    Text(format.rate(lane.rate), style="dim"),
                    "",
                    "",
                )
    return grid


def _behind(count: int | None) -> Text:
    return Text("–", style="dim") if count is None else Text(format.size(count))


def _lag(seconds: float | None) -> str:
    return "–" if seconds is None else format.duration(seconds)


def _lag_style(seconds: float | None) -> str:
    if seconds is None:
        return "dim"
    return "green" if 0 <= seconds < 1 else "yellow" if seconds < 60 else "red"


def _phase(lane: Lane) -> str:
    return _PHASE_STYLES.get(lane.phase, "magenta")


def _lanes(lanes: tuple[Lane, ...]) -> Text:
    """A square per lane in the colour of its phase."""
    line = Text()
    for lane in lanes[:_LANES_SHOWN]:
        line.append("■", style=_phase(lane))
    if len(lanes) > _LANES_SHOWN:
        line.append(f" +{len(lanes) - _LANES_SHOWN}", style="dim")
    return line
