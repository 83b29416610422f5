"""The foreign keys of target tables as an SQL script for a cut-over. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shardmerge.ctl.render import style
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import worker_pb2


def script(answer: pb.ShowTargetsResponse) -> str:
    """For each key a query that must return 0, then the statement that adds it; equal keys of several sources once.

    What is no statement is a comment, so that the script can be executed as it is."""
    return "\n".join(style.flat(line) for line in _lines(answer))


def _lines(answer: pb.ShowTargetsResponse) -> Iterator[str]:
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
        yield f"-- {target}: {reference}, of {count} shard tables ({', '.join(_some(of_sources))})"
        yield from _statements([key for _, key in of_sources])
    if not keys:
        yield "-- No shard table has a foreign key."


def _statements(keys: list[worker_pb2.TargetForeignKey]) -> Iterator[str]:
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


def _some(of_sources: Iterable[tuple[str, worker_pb2.TargetForeignKey]]) -> Iterator[str]:
    for source, key in of_sources:
        more = key.count - len(key.tables)
        yield f"{source}: {', '.join(key.tables)}{f' and {more} more' if more > 0 else ''}"
