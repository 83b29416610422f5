"""The locks of sharding DDLs as tables for a terminal; pure."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from shardmerge.ctl.error_report import Report
from shardmerge.ctl.render import format, style
from shardmerge.proto import master_pb2 as pb

_STYLES = {"ready": "green", "passed": "cyan", "missing": "yellow", "unknown": "yellow", "conflicting": "bold red"}
_STAGES = {"gathering": "yellow", "executing": "cyan", "released": "green"}


def locks(answer: pb.ShowDDLLocksResponse) -> RenderableType:
    """A row per lock, then for each its shard tables, and its conflict in full."""
    if not answer.locks:
        return Text(answer.msg or "There is no lock.", style="dim")
    made = style.table("lock", "owner", "stage", "for", "synced", "unsynced", "statement", right=("for",))
    for lock in answer.locks:
        made.add_row(
            style.cell(lock.id, "bold"),
            style.cell(lock.owner),
            Text(lock.stage + (", forced" if lock.forced else ""), style=_STAGES.get(lock.stage, "magenta")),
            style.cell(format.duration(lock.seconds)),
            style.cell(", ".join(lock.synced) or "–"),
            style.cell(", ".join(lock.unsynced) or "–"),
            style.cell("; ".join(lock.ddls)),
        )
    parts: list[RenderableType] = [made]
    for lock in answer.locks:
        parts += [style.heading(f"{style.flat(lock.id)} waits until {style.flat(lock.waiting_for)}"), _tables(lock)]
        parts += [
            style.cell(f"{table.source} {table.schema}.{table.table} waits: {table.reason}")
            for table in lock.tables
            if table.reason
        ]
        if lock.HasField("conflict"):
            parts.append(style.problem(Report.of_detail(lock.conflict)))
    return Group(*parts)


def _tables(lock: pb.DDLLock) -> RenderableType:
    made = style.table("source", "table", "state", "for", "position", "parked at", right=("for",))
    for table in lock.tables:
        name = f"{table.schema}.{table.table}" if table.table else "has not reported"
        made.add_row(
            style.cell(table.source, "bold"),
            style.cell(name),
            Text(style.flat(table.standing), style=_STYLES.get(table.standing, "magenta")),
            style.cell(format.duration(table.seconds) if table.since else "–"),
            style.cell(table.position or "–"),
            style.cell(table.ddl or "–"),
        )
    return made


def unlocked(answer: pb.UnlockDDLLockResponse) -> RenderableType:
    """The operator's decision."""
    return style.cell(answer.msg)
