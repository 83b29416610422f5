"""Measures how fast a backlog is applied: pause, write changes, resume, wait for the checkpoints."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from shardmerge.worker.core.mysql.connection import Session, Side, connect
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records.checkpoint import Checkpoint
from tests.benchmarks import sysbench
from tests.benchmarks.processes import LANE, TARGET, WORKER, Usage, Watch
from tests.benchmarks.profiling import Profile
from tests.benchmarks.servers import endpoint
from tests.benchmarks.settings import SOURCES
from tests.benchmarks.task import META_SCHEMA, TASK
from tests.benchmarks.world import World, all_past, say

_IDS = ("special", "uniform")
_PROFILED = (LANE, TARGET, WORKER)
_LOOK_EVERY_SECONDS = 0.05
_ASK_MASTER_EVERY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Drain:
    """One drain. ``seconds``: from the resume-task request to the moment when the target's checkpoints were past the
    end; ``first_commit_seconds``: until any lane had committed. ``counted``: row changes as counted by the lanes.
    ``busy_seconds``: of all processors, for any process."""

    changes: int
    seconds: float
    first_commit_seconds: float
    counted: int
    usage: dict[str, Usage]
    busy_seconds: float
    profile: str

    @property
    def changes_per_second(self) -> float:
        return self.changes / self.seconds

    @property
    def changes_per_second_from_first_commit(self) -> float:
        return self.changes / max(self.seconds - self.first_commit_seconds, 1e-3)

    def where_time_went(self) -> str:
        """Return processor seconds by group, as text for people."""
        cores = os.cpu_count() or 1
        ours = sum(usage.cpu_seconds for usage in self.usage.values())
        lines = [
            f"drained {self.changes:,} changes in {self.seconds:.2f} s (first commit after "
            f"{self.first_commit_seconds:.2f} s); {cores} cores had {cores * self.seconds:.1f} s, "
            f"{self.busy_seconds:.1f} s were used, of which {self.busy_seconds - ours:.1f} s by others and this client"
        ]
        for group, usage in sorted(self.usage.items(), key=lambda item: -item[1].cpu_seconds):
            lines.append(f"  {usage.cpu_seconds:7.2f} s  {group} (largest {usage.largest_mib:,.0f} MiB)")
        return "\n".join(lines)


def run(world: World, ids: str) -> Drain:
    """Measure one drain. ``ids``: special (skewed) or uniform."""
    settings, master = world.settings, world.replicating
    world.wait_applied()
    say(f"drain: {settings.changes:,} row changes with {ids} ids while the task is paused")
    master.pause()
    before = world.checkpoints()
    transactions = settings.changes // sysbench.CHANGES_PER_TRANSACTION // SOURCES
    committed = sysbench.write(world.sources, settings.shards, transactions, ids, 1 + _IDS.index(ids))
    ends = world.ends()
    master.wait_relayed(ends)
    say("drain: resumed")
    profile = _profile(world, ids)
    session = connect(endpoint(world.target), Side.TARGET, name="target")
    try:
        with Watch(world.roots) as watch:
            if profile is not None:
                profile.attach_perf(pid for pids in watch.processes(_PROFILED).values() for pid in pids)
                profile.attach({worker.pid: "worker" for worker in world.cluster.workers})
            started = time.monotonic()
            master.resume()
            first, last = _follow(world, session, before, ends, watch, profile, started)
            found_profile = profile.finish(watch.processes(_PROFILED)) if profile is not None else ""
    finally:
        session.close()
    states = master.wait(lambda state: state.sync.synced, "is in sync")
    return Drain(
        changes=committed * sysbench.CHANGES_PER_TRANSACTION,
        seconds=last,
        first_commit_seconds=first,
        counted=sum(state.sync.total_rows for state in states),
        usage=watch.usage(),
        busy_seconds=watch.busy_seconds,
        profile=found_profile,
    )


def _profile(world: World, ids: str) -> Profile | None:
    directory = world.settings.profile
    return None if directory is None else Profile(directory, ids, native=world.settings.native)


def _follow(
    world: World,
    session: Session,
    before: dict[str, tuple[Checkpoint, ...]],
    ends: dict[str, SourcePosition],
    watch: Watch,
    profile: Profile | None,
    started: float,
) -> tuple[float, float]:
    """Return the seconds from ``started`` to the first commit and until all is applied, read by small SELECTs of the
    checkpoints."""
    marks = {source: [item.seq for item in found] for source, found in before.items()}
    first: float | None = None
    ask_at = started + _ASK_MASTER_EVERY_SECONDS
    while True:
        found = {source: checkpoints.read_all(session, SubtaskKey(META_SCHEMA, TASK, source)) for source in ends}
        now = time.monotonic()
        if first is None and any([item.seq for item in found[source]] != marks[source] for source in ends):
            first = now - started
        if all_past(found, ends):
            return first or 0.0, now - started
        if profile is not None:
            profile.attach(dict.fromkeys(watch.processes((LANE,))[LANE], "lane"))
        if now > ask_at:
            ask_at = now + _ASK_MASTER_EVERY_SECONDS
            world.master.check()
        time.sleep(_LOOK_EVERY_SECONDS)
