"""Recorded structures for a terminal. Pure."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from shardmerge.ctl.error_report import Report
from shardmerge.ctl.render import style
from shardmerge.proto import master_pb2 as pb


def schemas(answer: pb.OperateSchemaResponse) -> RenderableType:
    """For each source: the shard table's recorded CREATE TABLE, and that of its target table."""
    parts: list[RenderableType] = []
    for one in answer.sources:
        if one.HasField("error"):
            parts.append(style.problem(Report.of_detail(one.error), one.source))
            continue
        parts.append(style.heading(f"{one.source}: as recorded{f' ({style.flat(one.note)})' if one.note else ''}"))
        parts.append(_statement(one.msg or "only the columns are recorded, by an earlier version"))
        parts.append(style.heading(f"{style.flat(one.target)} at the target"))
        parts.append(_statement(one.target_schema or "it is not there"))
    return Group(*parts)


def _statement(text: str) -> Text:
    """A server's text with its line breaks, without characters that could control the terminal."""
    return Text("\n".join("".join(mark if mark.isprintable() else " " for mark in line) for line in text.split("\n")))
