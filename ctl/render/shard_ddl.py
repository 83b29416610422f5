"""Sharding DDLs as tables for a terminal: their locks, and the dry run of one. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from shardmerge.ctl.error_report import ErrorReport
from shardmerge.ctl.render import format, style
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import worker_pb2
from shardmerge.proto.listed_names import listed

_STATE_STYLES = {
    "ready": "green",
    "passed": "cyan",
    "missing": "yellow",
    "unknown": "yellow",
    "conflicting": "bold red",
}
_STAGE_STYLES = {"gathering": "yellow", "executing": "cyan", "released": "green"}
_OUTCOME_WORDS = {
    "at-once": "at once",
    "nothing": "at once, nothing to do",
    "waits": "waits",
    "stops": "the task would stop",
}
_OUTCOME_STYLES = {"at-once": "green", "nothing": "green", "waits": "yellow", "stops": "bold red"}
_MAX_MISSING = 20  # missing tables listed per shard table; JSON has them all


def locks(answer: pb.ShowDDLLocksResponse) -> RenderableType:
    """A row per lock, then for each its shard tables, and its conflict in full."""
    if not answer.locks:
        return Text(answer.msg or "There is no lock.", style="dim")
    made = style.table("lock", "owner", "stage", "for", "synced", "unsynced", "statement", right=("for",))
    for lock in answer.locks:
        made.add(
            lock.id,
            lock.owner,
            Text(lock.stage + (", forced" if lock.forced else ""), style=_STAGE_STYLES.get(lock.stage, "magenta")),
            format.duration(lock.seconds),
            ", ".join(lock.synced) or "–",
            ", ".join(lock.unsynced) or "–",
            "; ".join(lock.ddls),
        )
    parts: list[RenderableType] = [made]
    for lock in answer.locks:
        parts += [style.heading(f"{style.flat(lock.id)} waits for {style.flat(lock.waiting_for)}"), _tables(lock)]
        parts += [
            style.cell(f"{table.source} {table.schema}.{table.table} waits: {table.reason}")
            for table in lock.tables
            if table.reason
        ]
        if lock.HasField("conflict"):
            parts.append(style.problem(ErrorReport.of_detail(lock.conflict)))
    return Group(*parts)


def _tables(lock: pb.DDLLock) -> RenderableType:
    made = style.table("source", "table", "state", "for", "position", "parked at", right=("for",))
    for table in lock.tables:
        name = f"{table.schema}.{table.table}" if table.table else "has not reported"
        made.add(
            table.source,
            name,
            Text(style.flat(table.standing), style=_STATE_STYLES.get(table.standing, "magenta")),
            format.duration(table.seconds) if table.since else "–",
            table.position or "–",
            table.ddl or "–",
        )
    return made


def unlocked(answer: pb.UnlockDDLLockResponse) -> RenderableType:
    """The operator's decision."""
    return style.cell(answer.msg)


def previewed(answer: pb.PreviewDDLResponse) -> RenderableType:
    """A row per shard table in the order of the dry run, then for each why it waits, for which tables, and what is at
    risk."""
    made = style.table("", "source", "table", "target", "outcome", "at the target", right=("",))
    for number, each in enumerate(answer.tables, 1):
        word = _OUTCOME_WORDS.get(each.outcome, each.outcome)
        made.add(
            style.cell(str(number)),
            style.cell(each.source, "bold"),
            f"{each.schema}.{each.table}",
            each.target,
            Text(
                style.flat(word) + (", contradicts" if each.contradicts else ""),
                style=_OUTCOME_STYLES.get(each.outcome, ""),
            ),
            _statement(each),
        )
    parts: list[RenderableType] = [made]
    for number, each in enumerate(answer.tables, 1):
        parts += _details(number, each)
    parts.append(Text(f"shard-mode {answer.mode}: a dry run, nothing has run.", style="dim"))
    return Group(*parts)


def _statement(each: worker_pb2.DDLPreview) -> str:
    if not each.statement:
        return "–"
    return f"when all have reached it: {each.statement}" if each.outcome == "waits" else each.statement


def _details(number: int, each: worker_pb2.DDLPreview) -> Iterator[RenderableType]:
    has_error = each.HasField("error")
    reason = "" if has_error else each.reason
    if not (reason or has_error or each.missing or each.risks):
        return
    yield style.heading(f"{number}  {each.source} {style.flat(each.schema)}.{style.flat(each.table)}")
    if reason:
        yield style.cell(f"{'waits' if each.outcome == 'waits' else 'because'}: {reason}")
    if each.missing:
        names = [f"{one.source} {one.schema}.{one.table}" for one in each.missing]
        yield style.cell(f"missing: {listed(names, _MAX_MISSING)}")
    for risk in each.risks:
        yield Text.assemble(("! ", "bold yellow"), style.flat(risk))
    if has_error:
        yield style.problem(ErrorReport.of_detail(each.error))
