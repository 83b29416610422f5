"""A comparison's answer as a table for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from shardmerge.ctl.render import format, style
from shardmerge.ctl.render.compare_result import unrepaired
from shardmerge.proto import compare_pb2 as pb

_NUMBERS = ("rows", "missing", "extra", "different", "unjudged", "repaired")


def compared(answer: pb.CompareAnswer) -> RenderableType:
    """A row per shard table (and reference, if these were compared), then the verdict and the report file."""
    if any(table.reference for table in answer.tables):
        return Group(_references(answer.tables), *_verdict(answer))
    made = style.table("source", "table", "target", *_NUMBERS, "remark", right=_NUMBERS)
    for table in answer.tables:
        counts = (table.missing, table.extra, table.different, table.unjudged, table.repaired)
        remark = f"not compared: {table.not_compared}" if table.not_compared else table.remark
        if table.left_out:
            remark = "left out"
        first, *others = table.source_table.split(", ")
        if table.held_keys:
            remark = f"{table.held_keys} key(s) held in the quarantine differ until `quarantine retry`"
        elif table.extra_unsought:
            remark = f"extra rows not searched for: {table.extra_unsought}"
        made.add(
            table.source,
            f"{first} and {len(others)} more" if others else first,
            table.target_table,
            "–" if table.not_compared or table.left_out else format.rows(table.rows),
            *(Text(format.rows(count), style="bold red" if count and unrepaired(table) else "") for count in counts),
            style.cell(remark or "–", "yellow" if remark else ""),
        )
    return Group(made, *_verdict(answer))


def _references(tables: Iterable[pb.ComparedTable]) -> RenderableType:
    """A row per shard table and reference."""
    made = style.table("source", "table", "reference", "orphans", "unjudged", "remark", right=("orphans", "unjudged"))
    for table in tables:
        made.add(
            table.source,
            table.source_table,
            table.reference,
            Text(format.rows(table.orphans), style="bold red" if table.orphans else ""),
            Text(format.rows(table.unjudged)),
            f"not compared: {table.not_compared}" if table.not_compared else "–",
        )
    return made


def _verdict(answer: pb.CompareAnswer) -> Iterator[RenderableType]:
    cut = sum(table.unnamed for table in answer.tables)
    yield style.heading(f"{answer.msg}, {format.duration(answer.seconds)}")
    if answer.report:
        more = f"; {format.rows(cut)} more are not listed there" if cut else ""
        yield style.cell(f"rows: {answer.report}{more}")
