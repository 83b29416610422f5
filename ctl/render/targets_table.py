"""Target tables and the differences of their shard tables, for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from shardmerge.ctl.error_report import Report
from shardmerge.ctl.render import style
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import worker_pb2


def targets(answer: pb.ShowTargetsResponse) -> RenderableType:
    """Each target once, with its CREATE TABLE; below it the shard tables of each source. A CREATE TABLE is repeated
    only for a source from whose shard tables it would be another one."""
    by_target: dict[str, list[tuple[str, worker_pb2.TargetSchema]]] = {}
    parts: list[RenderableType] = []
    for source in answer.sources:
        for target in source.targets:
            by_target.setdefault(target.target, []).append((source.source, target))
        if source.HasField("error") and source.error not in [target.error for target in source.targets]:
            parts.append(style.problem(Report.of_detail(source.error), source.source))
    for name, of_sources in sorted(by_target.items()):
        shown = ""
        for source, target in of_sources:
            if target.statement != shown:
                state = (
                    "exists" if target.exists else f"does not exist: if source {source} is the first, it is created as"
                )
                parts.append(style.heading(f"{style.flat(name)} {state}"))
                parts.append(_statement(target.statement))
                shown = target.statement
            parts.extend(Text(line) for line in _groups(source, target))
            if target.HasField("error"):
                parts.append(style.problem(Report.of_detail(target.error), source))
    parts.append(Text(f"{len(by_target)} target tables; nothing has run.", style="dim"))
    return Group(*parts)


def _groups(source: str, target: worker_pb2.TargetSchema) -> Iterator[str]:
    for number, group in enumerate(target.groups):
        names = ", ".join(style.flat(name) for name in group.examples)
        more = group.count - len(group.examples)
        tables = f"{group.count} shard tables ({names}{f' and {more} more' if more > 0 else ''})"
        yield f"  {source}: {tables}{' differ:' if number else ': equal definitions'}"
        yield from (f"    only here: {style.flat(part)}" for part in group.only_here)
        yield from (f"    lacking: {style.flat(part)}" for part in group.lacking)
        yield from (f"    a created target does not get: {style.flat(part)}" for part in group.left_out)


def _statement(text: str) -> Text:
    """A server's text with its line breaks, without characters that could control the terminal."""
    return Text("\n".join("".join(mark if mark.isprintable() else " " for mark in line) for line in text.split("\n")))
