"""The files of one daemon's answer, and of etcd's. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

from shardmerge.ctl import as_json
from shardmerge.ctl.as_json import Json
from shardmerge.ctl.bundle.contents import BundleFile, Item, NotCollected, json_file, safe_name
from shardmerge.ctl.bundle.open_metrics import newest, open_metrics
from shardmerge.proto import diagnostics_pb2 as pb
from shardmerge.proto.config.document.redacted import scrubbed
from shardmerge.proto.diagnostics.row_values import answer_without_values, log_line_without_values
from shardmerge.proto.rpc.coded_errors import error_from_proto

_LARGE = frozenset({"log", "metrics", "stacks"})
"""Fields with files of their own."""


def files_of(part: pb.DiagnosticsPart) -> Iterator[Item]:
    """The files of a part, or why there are none."""
    who = f"{part.kind} {part.name}"
    if part.HasField("etcd"):
        part = answer_without_values(part)
    if part.HasField("error"):
        yield NotCollected.of(f"the diagnostics of {who}", error_from_proto(part.error))
    elif part.HasField("etcd"):
        yield json_file(
            "etcd.json", as_json.to_value(part.etcd), "etcd: members, alarms, sizes; records by prefix without values"
        )
        for error in part.etcd.errors:
            yield NotCollected.of("a part of etcd's state", error_from_proto(error))
        for endpoint in part.etcd.endpoints:
            if endpoint.HasField("error"):
                yield NotCollected.of(f"the state of etcd {endpoint.endpoint}", error_from_proto(endpoint.error))
    elif part.HasField("daemon"):
        yield from _of_daemon(part, who)


def _of_daemon(part: pb.DiagnosticsPart, who: str) -> Iterator[BundleFile]:
    daemon = part.daemon
    folder = f"daemons/{safe_name(part.kind)}-{safe_name(part.name)}"
    yield json_file(
        f"{folder}/about.json", _about(part), f"{who}: versions, machine, loops, running calls, servers, its readiness"
    )
    yield BundleFile(f"{folder}/log.jsonl", scrubbed(_log(daemon.log)), f"{who}: warnings and errors of its log")
    yield BundleFile(f"{folder}/stacks.txt", scrubbed(daemon.stacks), f"{who}: stacks of its threads")
    texts = newest((each.at, each.packed) for each in daemon.metrics)
    yield BundleFile(
        f"{folder}/metrics.om", scrubbed(open_metrics(texts)), f"{who}: metrics of the last minutes (OpenMetrics)"
    )


def _about(part: pb.DiagnosticsPart) -> dict[str, Json]:
    daemon = part.daemon
    value = {name: each for name, each in as_json.to_value(daemon).items() if name not in _LARGE}
    value["address"] = part.address
    value["metricsWindow"] = cast(
        "Json",
        {
            "samples": len(daemon.metrics),
            "bytes": sum(len(each.packed) for each in daemon.metrics),
            "seconds": daemon.metrics[-1].at - daemon.metrics[0].at if daemon.metrics else 0.0,
        },
    )
    return value


def _log(lines: pb.KeptLines) -> str:
    between = [json.dumps({"event": "lines that were dropped here", "count": lines.dropped})] if lines.dropped else []
    first, last = (map(log_line_without_values, part) for part in (lines.first, lines.last))
    return "".join(f"{line}\n" for line in (*first, *between, *last))
