"""The rows of `top` as a table; pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from shardmerge.ctl.render import format, style
from shardmerge.ctl.render.diagnosis.top_rows import TaskRow


def table(found: Sequence[TaskRow], most: int | None = None) -> RenderableType:
    """``most``: how many tasks there is room for; None: for all."""
    if not found:
        return Text("There is no task.", style="dim")
    right = ("sources", "lag", "rows/s", "backlog", "left")
    made = style.table("task", "stage", "sources", "lag", "rows/s", "backlog", "left", "main cause", right=right)
    shown = found if most is None or len(found) <= most else found[: max(1, most - 1)]
    for row in shown:
        made.add_row(
            style.cell(row.task, "bold"),
            style.stage(row.stage, failed=row.failed),
            style.cell(str(row.sources)),
            _lag(row),
            style.cell(format.rate(row.rate), "" if row.rate else "dim"),
            style.cell(format.size(row.bytes_behind) if row.bytes_behind else "–", "" if row.bytes_behind else "dim"),
            _left(row),
            style.cell(f"{row.cause} ({row.worst})" if row.worst else row.cause),
        )
    if len(shown) < len(found):
        made.add_row(style.cell(f"and {len(found) - len(shown)} more", "dim"))
    return made


def _lag(row: TaskRow) -> Text:
    if row.lag is None:
        return Text("–", style="dim")
    look = "green" if row.lag < 1 else "yellow" if row.lag < 60 else "red"
    return style.cell("in sync" if row.synced and not row.lag else format.duration(row.lag), look)


def _left(row: TaskRow) -> Text:
    """Of the histories: the share that is copied, and how long it takes."""
    if row.share is None:
        return Text("–", style="dim")
    left = format.duration(row.eta) if row.eta is not None else "?"
    return style.cell(f"{format.percent(row.share)}, {left}")
