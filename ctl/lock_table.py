"""The locks of sharding DDLs as tables for a terminal; pure."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ctl import figures, look
from ctl.report import Report
from proto import master_pb2 as pb

_STYLES = {"ready": "green", "passed": "cyan", "missing": "yellow", "unknown": "yellow", "conflicting": "bold red"}
_STAGES = {"gathering": "yellow", "executing": "cyan", "released": "green"}


def locks(answer: pb.ShowDDLLocksResponse) -> RenderableType:
    """A row per lock, then for each its shard tables, and its conflict in full."""
    if not answer.locks:
        return Text(answer.msg or "There is no lock.", style="dim")
    made = look.table("lock", "owner", "stage", "for", "synced", "unsynced", "statement", right=("for",))
    for lock in answer.locks:
        made.add_row(
            look.cell(lock.id, "bold"),
            look.cell(lock.owner),
            Text(lock.stage + (", forced" if lock.forced else ""), style=_STAGES.get(lock.stage, "magenta")),
            look.cell(figures.duration(lock.seconds)),
            look.cell(", ".join(lock.synced) or "–"),
            look.cell(", ".join(lock.unsynced) or "–"),
            look.cell("; ".join(lock.ddls)),
        )
    parts: list[RenderableType] = [made]
    for lock in answer.locks:
        parts += [look.heading(f"{look.flat(lock.id)} goes on when {look.flat(lock.waiting_for)}"), _tables(lock)]
        parts += [
            look.cell(f"{table.source} {table.schema}.{table.table} waits: {table.reason}")
            for table in lock.tables
            if table.reason
        ]
        if lock.HasField("conflict"):
            parts.append(look.problem(Report.of_detail(lock.conflict)))
    return Group(*parts)


def _tables(lock: pb.DDLLock) -> RenderableType:
    made = look.table("source", "table", "standing", "for", "position", "waits before", right=("for",))
    for table in lock.tables:
        name = f"{table.schema}.{table.table}" if table.table else "has not told"
        made.add_row(
            look.cell(table.source, "bold"),
            look.cell(name),
            Text(look.flat(table.standing), style=_STYLES.get(table.standing, "magenta")),
            look.cell(figures.duration(table.seconds) if table.since else "–"),
            look.cell(table.position or "–"),
            look.cell(table.ddl or "–"),
        )
    return made


def unlocked(answer: pb.UnlockDDLLockResponse) -> RenderableType:
    """What was decided."""
    return look.cell(answer.msg)
