"""The dry run of a sharding DDL as a table for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from shardmerge.ctl.error_report import Report
from shardmerge.ctl.render import style
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import worker_pb2
from shardmerge.proto.listed_names import listed

_WORDS = {"at-once": "at once", "nothing": "at once, nothing to do", "waits": "waits", "stops": "the task would stop"}
_STYLES = {"at-once": "green", "nothing": "green", "waits": "yellow", "stops": "bold red"}
_MAX_MISSING = 20  # missing tables listed per shard table; JSON has them all


def previewed(answer: pb.PreviewDDLResponse) -> RenderableType:
    """A row per shard table in the order of the dry run, then for each why it waits, for which tables, and what is at
    risk."""
    made = style.table("", "source", "table", "target", "outcome", "at the target", right=("",))
    for number, each in enumerate(answer.tables, 1):
        word = _WORDS.get(each.outcome, each.outcome)
        made.add_row(
            str(number),
            style.cell(each.source, "bold"),
            style.cell(f"{each.schema}.{each.table}"),
            style.cell(each.target),
            Text(style.flat(word) + (", contradicts" if each.contradicts else ""), style=_STYLES.get(each.outcome, "")),
            style.cell(_statement(each)),
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
        yield style.problem(Report.of_detail(each.error))
