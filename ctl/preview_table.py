"""The rehearsal of a sharding DDL as a table for a terminal; pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from ctl import look
from ctl.report import Report
from proto import master_pb2 as pb
from proto import worker_pb2

_WORDS = {"at-once": "at once", "nothing": "at once, nothing to do", "waits": "waits", "stops": "the task would stop"}
_STYLES = {"at-once": "green", "nothing": "green", "waits": "yellow", "stops": "bold red"}
_MISSING = 20  # so many are listed per shard table; JSON has them all


def previewed(answer: pb.PreviewDDLResponse) -> RenderableType:
    """A row per shard table in the order taken, then for each why it waits, for whom, and what is at risk."""
    made = look.table("", "source", "table", "target", "outcome", "at the target", right=("",))
    for number, each in enumerate(answer.tables, 1):
        word = _WORDS.get(each.outcome, each.outcome)
        made.add_row(
            str(number),
            look.cell(each.source, "bold"),
            look.cell(f"{each.schema}.{each.table}"),
            look.cell(each.target),
            Text(look.flat(word) + (", contradicts" if each.contradicts else ""), style=_STYLES.get(each.outcome, "")),
            look.cell(_statement(each)),
        )
    parts: list[RenderableType] = [made]
    for number, each in enumerate(answer.tables, 1):
        parts += _details(number, each)
    parts.append(Text(f"shard-mode {answer.mode}: a rehearsal, nothing has run.", style="dim"))
    return Group(*parts)


def _statement(each: worker_pb2.DDLPreview) -> str:
    if not each.statement:
        return "–"
    return f"when all have come: {each.statement}" if each.outcome == "waits" else each.statement


def _details(number: int, each: worker_pb2.DDLPreview) -> Iterator[RenderableType]:
    has_error = each.HasField("error")
    reason = "" if has_error else each.reason
    if not (reason or has_error or each.missing or each.risks):
        return
    yield look.heading(f"{number}  {each.source} {look.flat(each.schema)}.{look.flat(each.table)}")
    if reason:
        yield look.cell(f"{'waits' if each.outcome == 'waits' else 'because'}: {reason}")
    if each.missing:
        names = [f"{one.source} {one.schema}.{one.table}" for one in each.missing[:_MISSING]]
        more = f" and {len(each.missing) - _MISSING} more" if len(each.missing) > _MISSING else ""
        yield look.cell(f"missing: {', '.join(names)}{more}")
    for risk in each.risks:
        yield Text.assemble(("! ", "bold yellow"), look.flat(risk))
    if has_error:
        yield look.problem(Report.of_detail(each.error))
