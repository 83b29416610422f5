"""Answers about held rows as tables for a terminal; pure."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ctl import figures, look
from ctl.as_table import problems
from proto import master_pb2 as pb


def held(answer: pb.QuarantineResponse) -> RenderableType:
    """Per source what was done; then the keys that are held."""
    done = look.table("source", "worker", "result", "message")
    for part in answer.sources:
        said = f"[{part.error.code} {part.error.name}]" if part.HasField("error") else part.msg
        done.add_row(
            look.cell(part.source, "bold"),
            look.cell(part.worker or "–"),
            look.outcome(result=part.result),
            look.cell(said),
        )
    parts: list[RenderableType] = [done]
    if answer.keys:
        parts.append(_keys(answer))
    more = answer.total_keys - len(answer.keys)
    if more:
        parts.append(Text(f"and {more} more keys, in held_change of the task's meta schema"))
    return Group(*parts, *problems(answer))


def _keys(answer: pb.QuarantineResponse) -> RenderableType:
    made = look.table(
        "source", "target table", "key", "changes", "first", "position", "why", "since", right=("changes",)
    )
    for key in answer.keys:
        made.add_row(
            look.cell(key.source, "bold"),
            look.cell(key.target_table),
            look.cell(key.key),
            look.cell(figures.rows(key.changes)),
            look.cell(key.operation),
            look.cell(key.binlog_pos),
            look.cell(f"[{key.code}] {key.reason}"),
            look.cell(figures.moment(key.since)),
        )
    return made
