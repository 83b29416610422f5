"""The options of ``spark.readStream.format("mysql-cdc")``: those of mysql-shards, and those of the stream. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.worker.datasource.plan.options import number, parse_options
from shardmerge.worker.datasource.plan.read_plan import ReadOptions, ReadSource
from shardmerge.worker.datasource.stream.model.start import Start, parse_starts

BATCH_BYTES = 64 << 20
MOST_BYTES = 1 << 40
MOST_TASKS = 64

_OF_BATCHES = {
    "where": "a stream has all changes: filter the DataFrame",
    "position": "a stream starts where option start and its checkpoint are",
}
"""Options of mysql-shards that have no meaning for changes, and why."""
_OF_STREAMS = ("max-bytes-per-batch", "tasks-per-source")


class OnDdl(enum.Enum):
    """What happens at a statement that changes the tables."""

    STOP = "stop"
    EVENT = "event"


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """``starts``: by source-id. ``most_bytes``: of each source's binlog in a batch. ``tasks``: of each source."""

    read: ReadOptions
    starts: Mapping[str, Start]
    on_ddl: OnDdl
    most_bytes: int
    tasks: int

    def source(self, name: str) -> ReadSource:
        return next(source for source in self.read.sources if source.source == name)


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Raises ``read.OPTION``, and what parse_options() raises."""
    found = {key.lower(): value for key, value in options.items()}
    for key, reason in _OF_BATCHES.items():
        if key in found:
            raise errors.read.OPTION(option=key, reason=reason)
    start = found.pop("start", "snapshot")
    on_ddl = found.pop("ddl", OnDdl.STOP.value).strip().lower()
    if on_ddl not in (OnDdl.STOP.value, OnDdl.EVENT.value):
        raise errors.read.OPTION(option="ddl", reason="it is stop or event")
    most_bytes = number(found, "max-bytes-per-batch", BATCH_BYTES, MOST_BYTES)
    tasks = number(found, "tasks-per-source", 1, MOST_TASKS)
    read = parse_options({key: value for key, value in found.items() if key not in _OF_STREAMS})
    starts = parse_starts(start, [source.source for source in read.sources])
    return StreamOptions(read, starts, OnDdl(on_ddl), most_bytes, tasks)
