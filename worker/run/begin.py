"""How a subtask leaves phase NEW: where it starts, recorded with its tables and its first checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proto import config_pb2
from worker import bounds, meta
from worker.bounds import Bound
from worker.connection import Session, current_position, server_info
from worker.ddl import records as ddl_records
from worker.ddl.creation import Creation
from worker.meta import Phase
from worker.plans import read_described
from worker.position import SourcePosition
from worker.relay.order import configured_start
from worker.replicate import checkpoint as checkpoints
from worker.replicate.checkpoint import Checkpoint
from worker.replicate.unit import first_checkpoints
from worker.rules import Rules
from worker.run.means import Means
from worker.start_at import Begin, check_keys
from worker.table import Table
from worker.unit import StopSignal

LOCATE_SECONDS = 600.0
"""For the relay to pass a place that a run must know."""


def checkpoints_at(
    means: Means, epoch: int, start: SourcePosition, lanes: int, stop: StopSignal
) -> tuple[Checkpoint, ...]:
    """The first checkpoints of a stream that begins at ``start``, once the relay has passed it."""
    relay = means.host.relay
    with relay.one_generation() as relay_id:
        offset = relay.locate(start, LOCATE_SECONDS, stop)
        # As the relay knows it, its GTID set included: what the source told of that was read a moment apart.
        position = relay.position_at(offset)
    return first_checkpoints(lanes, epoch, relay_id, position, offset)


def begin(means: Means, source: Session, target: Session, rules: Rules, epoch: int, stop: StopSignal) -> None:
    """Leave phase NEW. The relay reaches back to the start before anything else happens, so no change after it can be
    missed."""
    found = _Found.at(means, source, rules, stop)
    if means.config.mode == config_pb2.TASK_MODE_INCREMENTAL:
        first = checkpoints_at(means, epoch, found.start, means.lanes, stop)
        phase, start = Phase.REPLICATE, first[0].position
    else:
        first = ()
        phase, start = Phase.SNAPSHOT, found.start

    def also(session: Session) -> None:
        checkpoints.insert(session, *means.who, first)
        ddl_records.write_creations(session, *means.who, found.creations)
        if found.settled is not None:
            time = means.config.start_at.time
            bounds.write(session, *means.who, Bound(bounds.Kind.SETTLED, time, found.settled, 0.0))

    with means.coding_target():
        meta.begin(target, *means.who, epoch, phase, start, found.tables, also)


@dataclass(frozen=True, slots=True)
class _Found:
    """What the source has where the subtask starts. ``settled``: before which place the target may hold changes
    already, None: it holds none. ``creations``: by shard number."""

    start: SourcePosition
    settled: SourcePosition | None
    tables: tuple[Table, ...]
    creations: Mapping[int, Creation]

    @staticmethod
    def at(means: Means, source: Session, rules: Rules, stop: StopSignal) -> _Found:
        config, host = means.config, means.host
        incremental = config.mode == config_pb2.TASK_MODE_INCREMENTAL
        with means.coding_source():
            info = server_info(source)
            start = current_position(source, info)
            alone = not host.needed_by_others(config.task)
            settled: SourcePosition | None = None
            if incremental and (config.start.file or config.start.gtid_set):
                start = configured_start(config.start, info.identity, by_gtid=host.source.enable_gtid)
            elif incremental and config.HasField("start_at"):
                from_time = Begin(means.source_id, means.source_endpoint, source, info, host.relay, alone, stop)
                start, settled = from_time.at(config.start_at) or (start, None)
            host.relay.ensure_from(start, fresh=alone)
            # After the position: a table altered in between meets its DDL in the stream.
            tables, creations = read_described(source, rules, means.source_id)
            if settled is not None:
                check_keys(means.source_id, config.start_at.time, tables)
        return _Found(start, settled, tables, dict(enumerate(creations)))
