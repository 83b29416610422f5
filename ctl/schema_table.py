"""Recorded structures for a terminal; pure."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ctl import look
from ctl.report import Report
from proto import master_pb2 as pb


def schemas(answer: pb.OperateSchemaResponse) -> RenderableType:
    """Per source: the shard table's CREATE TABLE as it is recorded, and that of its target table."""
    parts: list[RenderableType] = []
    for one in answer.sources:
        if one.HasField("error"):
            parts.append(look.problem(Report.of_detail(one.error), one.source))
            continue
        parts.append(look.heading(f"{one.source}: as recorded{f' ({look.flat(one.note)})' if one.note else ''}"))
        parts.append(_statement(one.msg or "only the columns are recorded, by an earlier version"))
        parts.append(look.heading(f"{look.flat(one.target)} at the target"))
        parts.append(_statement(one.target_schema or "it is not there"))
    return Group(*parts)


def _statement(text: str) -> Text:
    """A server's text keeps its lines; nothing in it may steer the terminal."""
    return Text("\n".join("".join(mark if mark.isprintable() else " " for mark in line) for line in text.split("\n")))
