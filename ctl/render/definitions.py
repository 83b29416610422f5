"""The definitions of target tables and shard tables for a terminal, and their foreign keys as a script. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from shardmerge.ctl.error_report import ErrorReport
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
            parts.append(style.problem(ErrorReport.of_detail(source.error), source.source))
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
                parts.append(style.problem(ErrorReport.of_detail(target.error), source))
    parts.append(Text(f"{len(by_target)} target tables; nothing has run.", style="dim"))
    return Group(*parts)


def _groups(source: str, target: worker_pb2.TargetSchema) -> Iterator[str]:
    for number, group in enumerate(target.groups):
        names = ", ".join(style.flat(name) for name in group.examples)
        more = group.count - len(group.examples)
        tables = f"{group.count} shard tables ({names}{f' and {more} more' if more > 0 else ''})"
        if not number:
            state = ": equal definitions"
        elif group.only_here or group.lacking or group.left_out:
            state = " differ:"
        else:  # the same parts
            state = " differ in the order of columns or keys, or get all parts at a created target"
        yield f"  {source}: {tables}{state}"
        yield from (f"    only here: {style.flat(part)}" for part in group.only_here)
        yield from (f"    lacking: {style.flat(part)}" for part in group.lacking)
        yield from (f"    a created target does not get: {style.flat(part)}" for part in group.left_out)


def schemas(answer: pb.OperateSchemaResponse) -> RenderableType:
    """For each source: the shard table's recorded CREATE TABLE, and that of its target table."""
    parts: list[RenderableType] = []
    for one in answer.sources:
        if one.HasField("error"):
            parts.append(style.problem(ErrorReport.of_detail(one.error), one.source))
            continue
        parts.append(style.heading(f"{one.source}: as recorded{f' ({style.flat(one.note)})' if one.note else ''}"))
        parts.append(_statement(one.msg or "only the columns are recorded, by an earlier version"))
        parts.append(style.heading(f"{style.flat(one.target)} at the target"))
        parts.append(_statement(one.target_schema or "it is not there"))
    return Group(*parts)


def _statement(text: str) -> Text:
    """A server's text with its line breaks, without characters that could control the terminal."""
    return Text("\n".join("".join(mark if mark.isprintable() else " " for mark in line) for line in text.split("\n")))


def foreign_keys_script(answer: pb.ShowTargetsResponse) -> str:
    """An SQL script for a cut-over: for each key a query that must return 0, then the statement that adds it; once for
    equal keys of several sources.

    What is no statement is a comment, so that the script can be executed as it is."""
    return "\n".join(style.flat(line) for line in _script_lines(answer))


def _script_lines(answer: pb.ShowTargetsResponse) -> Iterator[str]:
    keys: dict[tuple[str, str], list[tuple[str, worker_pb2.TargetForeignKey]]] = {}
    for source in answer.sources:
        if source.HasField("error"):
            yield f"-- {source.source}: {source.error.message}"
        for target in source.targets:
            for key in target.foreign_keys:
                keys.setdefault((target.target, key.reference), []).append((source.source, key))
    yield "-- For a cut-over, after stop-task: no task may write to these tables. Each count must be 0."
    yield "SET SESSION foreign_key_checks = 1;"
    for (target, reference), of_sources in sorted(keys.items()):
        count = sum(key.count for _, key in of_sources)
        yield ""
        yield f"-- {target}: {reference}, of {count} shard tables ({', '.join(_some_tables(of_sources))})"
        yield from _key_statements([key for _, key in of_sources])
    if not keys:
        yield "-- No shard table has a foreign key."


def _key_statements(keys: list[worker_pb2.TargetForeignKey]) -> Iterator[str]:
    why = dict.fromkeys(key.left_out for key in keys if key.left_out)
    if not why and len({key.add for key in keys}) > 1:
        why = dict.fromkeys(["the sources' keys differ", *(key.add for key in keys)])
    if why:
        yield from (f"-- left out: {reason}" for reason in why)
    elif keys[0].exists:
        yield f"-- the target has it already: {keys[0].name}"
    else:
        yield f"{keys[0].orphans};"
        yield f"{keys[0].add};"
        yield f"-- the way back: {keys[0].drop};"


def _some_tables(of_sources: Iterable[tuple[str, worker_pb2.TargetForeignKey]]) -> Iterator[str]:
    for source, key in of_sources:
        more = key.count - len(key.tables)
        yield f"{source}: {', '.join(key.tables)}{f' and {more} more' if more > 0 else ''}"
