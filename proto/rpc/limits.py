"""Limits on the time and memory that callers may take of each server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class MethodLimit:
    """Limits of one method: ``calls`` at once, ``per_connection`` of them from one connection, ``message_bytes`` of a
    request.

    Each running call holds a thread.
    """

    calls: int
    per_connection: int
    message_bytes: int


_OF_EVERY_SERVER = {
    "/shardmerge.v1.Identity/Prove": MethodLimit(64, 16, 4096),
    "/grpc.health.v1.Health/Check": MethodLimit(32, 16, 4096),
    "/grpc.health.v1.Health/Watch": MethodLimit(64, 4, 4096),
    "/grpc.health.v1.Health/List": MethodLimit(16, 8, 4096),
    # Its caller decides how long each call lasts.
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": MethodLimit(8, 2, 64 << 10),
}


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of one server. ``every``: for a method that ``methods`` (by "/package.Service/Method") does not name.

    ``connection_calls``: calls at once on one connection, whatever their methods. ``readings``: calls at once whose
    message is being received; unfinished requests can take at most this number of messages of the largest size.
    ``patience``: seconds after which a missing message loses its place to a waiting call.
    """

    every: MethodLimit
    methods: Mapping[str, MethodLimit] = field(default_factory=dict[str, MethodLimit])
    connection_calls: int = 256
    readings: int = 32
    patience: float = 2.0

    @property
    def message_bytes(self) -> int:
        """The largest message that any method takes."""
        return max(limit.message_bytes for limit in (self.every, *self.methods.values()))

    def of(self, method: str) -> MethodLimit:
        return self.methods.get(method) or _OF_EVERY_SERVER.get(method) or self.every


def of_each_method(calls: int) -> ServerLimits:
    """The same for every method: ``calls`` at once, and messages of 64 MiB."""
    return ServerLimits(MethodLimit(calls, calls, 64 * _MIB))


_MASTER_COMMAND = MethodLimit(32, 16, _MIB)
_DIAGNOSTICS = MethodLimit(4, 4, 4096)
"""Each answer reads the whole process and may have some MiB."""
_WITH_TEXT = MethodLimit(32, 16, 8 * _MIB)

MASTER = ServerLimits(
    every=_MASTER_COMMAND,
    methods={
        # A task file of a thousand tables has a few hundred KiB.
        **dict.fromkeys(
            (
                "/shardmerge.v1.Master/OperateSource",
                "/shardmerge.v1.Master/StartTask",
                "/shardmerge.v1.Master/OperateTask",  # with the file of a task that is stopped already
                "/shardmerge.v1.Master/UpdateTask",
                "/shardmerge.v1.Master/CheckTask",
                "/shardmerge.v1.Master/GetConfig",  # with files to compare
                "/shardmerge.v1.Master/ExplainRules",
                "/shardmerge.v1.Master/ShowTargets",
                "/shardmerge.v1.Master/HandleBinlog",
                "/shardmerge.v1.Master/PreviewDDL",
                "/shardmerge.v1.Master/OperateSchema",
            ),
            _WITH_TEXT,
        ),
        "/shardmerge.v1.Compare/Compare": MethodLimit(16, 8, _MIB),
        "/shardmerge.v1.Master/Diagnostics": _DIAGNOSTICS,
        "/shardmerge.v1.Master/CollectDiagnostics": MethodLimit(2, 1, 4096),
        "/shardmerge.v1.Master/Diagnose": MethodLimit(8, 4, _MIB),  # each takes seconds
        # Each reads up to 10,000 entries of a task, for more than a second.
        "/shardmerge.v1.Master/History": MethodLimit(4, 2, 64 << 10),
    },
    connection_calls=128,
    readings=16,
    patience=1.0,
)
"""Limits of a master: dmctl and programs have one or two calls at a time on their connection."""

_LANES = 512
"""The most lanes and chunk readers of a worker at once: each holds a stream, and one call of each kind. Before there
were limits, 128 threads were enough for all of them together."""
_STREAM = MethodLimit(_LANES, _LANES, _MIB)
_SMALL = MethodLimit(_LANES, _LANES, 64 << 10)
_REPORT = MethodLimit(_LANES, _LANES, 8 * _MIB)
"""For a report with an error's text, which may contain statements and keys."""
_WIDE = MethodLimit(64, 64, 16 * _MIB)

WORKER = ServerLimits(
    every=MethodLimit(64, 64, 8 * _MIB),
    methods={
        "/shardmerge.v1.Relay/Subscribe": _STREAM,
        "/shardmerge.v1.Relay/Credentials": _SMALL,
        "/shardmerge.v1.Relay/Locate": _REPORT,  # with a GTID set
        "/shardmerge.v1.Relay/ReportLane": _REPORT,
        "/shardmerge.v1.Relay/TakeChunk": _SMALL,
        "/shardmerge.v1.Relay/ReportChunk": _REPORT,
        "/shardmerge.v1.Relay/Evaluate": MethodLimit(_LANES, _LANES, 8 * _MIB),
        "/shardmerge.v1.Relay/EvaluateLarge": MethodLimit(_LANES, _LANES, 4 * _MIB),
        "/shardmerge.v1.CompareDesk/TakeWork": _SMALL,
        "/shardmerge.v1.CompareDesk/AskLanes": _SMALL,
        "/shardmerge.v1.CompareDesk/ReportWork": MethodLimit(_LANES, _LANES, 16 * _MIB),  # with rows that differ
        "/shardmerge.v1.Worker/CheckKeys": _WIDE,  # with samples of all shard tables
        "/shardmerge.v1.Worker/CheckShards": _WIDE,  # with structures of all sources
        "/shardmerge.v1.Worker/CheckSubTask": _WIDE,  # with the configurations of all sources
        "/shardmerge.v1.Worker/CheckSwitch": _WIDE,
        "/shardmerge.v1.Worker/ExplainRules": _WIDE,
        "/shardmerge.v1.Worker/ShowTargets": _WIDE,
        "/shardmerge.v1.Worker/Diagnostics": _DIAGNOSTICS,
        "/shardmerge.v1.WorkerCompare/CompareSubTask": MethodLimit(64, 64, _MIB),
        "/shardmerge.v1.Worker/Diagnose": MethodLimit(16, 16, _MIB),  # each takes seconds
    },
)
"""Limits of a worker. Its callers are the masters and its own Spark tasks, several of which may share a connection."""
