"""Answers about held rows as tables for a terminal; pure."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from shardmerge.ctl.render import format, style
from shardmerge.ctl.render.tables import problems
from shardmerge.proto import master_pb2 as pb


def held(answer: pb.QuarantineResponse) -> RenderableType:
    """Per source what was done; then the keys that are held."""
    done = style.table("source", "worker", "result", "message")
    for part in answer.sources:
        text = f"[{part.error.code} {part.error.name}]" if part.HasField("error") else part.msg
        done.add_row(
            style.cell(part.source, "bold"),
            style.cell(part.worker or "–"),
            style.outcome(result=part.result),
            style.cell(text),
        )
    parts: list[RenderableType] = [done]
    if answer.keys:
        parts.append(_keys(answer))
    more = answer.total_keys - len(answer.keys)
    if more:
        parts.append(Text(f"and {more} more keys, in held_change of the task's meta schema"))
    return Group(*parts, *problems(answer))


def _keys(answer: pb.QuarantineResponse) -> RenderableType:
    made = style.table(
        "source", "target table", "key", "changes", "first", "position", "why", "since", right=("changes",)
    )
    for key in answer.keys:
        made.add_row(
            style.cell(key.source, "bold"),
            style.cell(key.target_table),
            style.cell(key.key),
            style.cell(format.rows(key.changes)),
            style.cell(key.operation),
            style.cell(key.binlog_pos),
            style.cell(f"[{key.code}] {key.reason}"),
            style.cell(format.moment(key.since)),
        )
    return made
