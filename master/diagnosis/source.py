"""Whether the source has anything new, and whether the relay fetches it fast enough. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.master.diagnosis.finding import BUSY, NOTE, Finding, percent, seconds
from shardmerge.master.diagnosis.lanes import keeps_up
from shardmerge.master.diagnosis.view import SourceView
from shardmerge.proto import common_pb2
from shardmerge.proto.warnings.readable import size

_WAITING = ("idle", "read")
_LEAST_WAITING = 0.5


def relay_behind(view: SourceView) -> Iterator[Finding]:
    """The relay log lacks what the source has written, and the lanes wait for it."""
    relay = view.use.relay
    if not (relay.HasField("unfetched_before") and relay.HasField("unfetched_after")):
        return
    if not relay.unfetched_before or not relay.unfetched_after or not view.is_replicating:
        return
    waits = view.share(*_WAITING)
    if waits < _LEAST_WAITING or keeps_up(view):  # of a busy source some bytes are always on their way
        return
    missing, fetched = relay.unfetched_after, relay.fetched_bytes
    speed = fetched / view.use.seconds if view.use.seconds else 0.0
    figures = {"unfetched_bytes": float(missing), "fetched_bytes_per_second": speed, "waiting_share": waits}
    growth = (missing - relay.unfetched_before) / view.use.seconds if view.use.seconds else 0.0
    if growth > 0:
        trend = "its lag grows"
        figures["growth_bytes_per_second"] = growth
    elif not speed:
        trend = "nothing has arrived in this time"
    else:
        trend = f"at this speed it has caught up in {seconds(missing / -growth)}" if growth < 0 else "its lag stays"
    trip = "how long a round trip to the source takes is not known"
    actions: list[str] = []
    if relay.HasField("round_trip"):
        figures["round_trip_ms"] = relay.round_trip * 1000
        trip = f"a round trip to the source takes {relay.round_trip * 1000:.1f} ms"
    actions.append(
        "Measure the network between the source and the worker: the binlog is sent over one connection. "
        f"A worker nearer to the source fetches faster: `dmctl transfer-source {view.source_word} WORKER`."
    )
    actions.append("At the worker, the disk of `relay-dir` may limit it, too.")
    yield Finding(
        "relay-behind",
        BUSY * waits + 1.0,
        f"The relay lacks {size(missing)} that the source has written: it fetches {size(speed)}/s, and {trend}; "
        f"{trip}. The lanes wait for it {percent(waits)} of their time.",
        tuple(actions),
        figures=figures,
    )


def idle(view: SourceView) -> Iterator[Finding]:
    """Everything of the source is applied, and nothing new has come."""
    status = view.status
    if status is None or not view.is_replicating or status.sync.unknown or view.changes or view.lag is None:
        return
    # While the source writes what does not concern the task, some of it is always not passed yet.
    is_done = keeps_up(view) and not status.sync.held_keys and view.share(*_WAITING) >= _LEAST_WAITING
    if not status.sync.synced and not is_done:
        return
    other = (
        "the source writes, but nothing that concerns the task" if view.use.relay.source_moved else "it writes nothing"
    )
    yield Finding(
        "source-idle",
        NOTE,
        f"Everything that the source has written is applied, and {other}: there is nothing to do.",
        figures={"lag_seconds": 0.0},
    )


def finished(view: SourceView) -> Iterator[Finding]:
    status = view.status
    if status is not None and status.stage == common_pb2.STAGE_FINISHED:
        yield Finding("finished", NOTE / 2, "The subtask has ended: everything up to its end is applied.")


def compared(view: SourceView) -> Iterator[Finding]:
    if view.use.compared:
        yield Finding(
            "compare-running",
            NOTE + 6,
            "`dmctl compare` compares the task's rows now: it reads every row at the source and at the target.",
            (
                "Ctrl-C ends it where it runs. With the least load it takes longer: "
                f"`dmctl compare {view.task_word} --threads 1`",
            ),
        )
