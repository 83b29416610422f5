"""A comparison's answer as a table for a terminal; pure."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ctl import figures, look
from ctl.comparison import left
from proto import compare_pb2 as pb

_NUMBERS = ("rows", "missing", "extra", "different", "unjudged", "repaired")


def compared(answer: pb.CompareAnswer) -> RenderableType:
    """A row per shard table, then what was not looked at, and the verdict."""
    made = look.table("source", "table", "target", *_NUMBERS, "remark", right=_NUMBERS)
    for table in answer.tables:
        counts = (table.missing, table.extra, table.different, table.unjudged, table.repaired)
        remark = f"not compared: {table.not_compared}" if table.not_compared else ""
        if table.held_keys:
            remark = f"{table.held_keys} key(s) held in the quarantine differ until `quarantine retry`"
        elif table.extra_unsought:
            remark = f"extra rows not looked for: {table.extra_unsought}"
        made.add_row(
            look.cell(table.source, "bold"),
            look.cell(table.source_table),
            look.cell(table.target_table),
            "–" if table.not_compared else figures.rows(table.rows),
            *(Text(figures.rows(count), style="bold red" if count and left(table) else "") for count in counts),
            look.cell(remark or "–", "yellow" if remark else ""),
        )
    cut = sum(table.unnamed for table in answer.tables)
    parts: list[RenderableType] = [made, look.heading(f"{answer.msg}, {figures.duration(answer.seconds)}")]
    if answer.report:
        more = f"; {figures.rows(cut)} more are not named there" if cut else ""
        parts.append(look.cell(f"rows: {answer.report}{more}"))
    return Group(*parts)
