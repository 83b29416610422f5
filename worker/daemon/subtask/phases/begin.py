"""Leaves phase NEW: determines where a subtask starts and records it with its tables and first checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardmerge.proto import config_pb2
from shardmerge.worker.core.mysql.connection import Session, current_position, server_info
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table import Table
from shardmerge.worker.daemon.subtask.run_resources import RunResources
from shardmerge.worker.relay.position_order import configured_start
from shardmerge.worker.replicate.bounds.start_point import StartResolver, check_keys
from shardmerge.worker.replicate.unit import first_checkpoints
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.records import bounds, subtask_record
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import ddl_progress as ddl_records
from shardmerge.worker.target.records.bounds import Bound
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.subtask_record import Phase
from shardmerge.worker.target.tables.make_targets import read_structures_and_creations

LOCATE_SECONDS = 600.0
"""How long a run waits until the relay log contains a position that it must locate."""


def checkpoints_at(
    resources: RunResources, epoch: int, start: SourcePosition, lanes: int, stop: StopSignal
) -> tuple[Checkpoint, ...]:
    """The first checkpoints of a stream that begins at ``start``, once the relay log contains it."""
    relay = resources.host.relay
    with relay.one_generation() as relay_id:
        offset = relay.locate(start, LOCATE_SECONDS, stop)
        # The relay log's position, including its GTID set: the source's GTID set was not read at the same time.
        position = relay.position_at(offset)
    return first_checkpoints(lanes, epoch, relay_id, position, offset)


def begin(
    resources: RunResources, source: Session, target: Session, rules: Rules, epoch: int, stop: StopSignal
) -> None:
    """Leave phase NEW. First the relay log must reach back to the start, so that no change after it can be missed."""
    found = _SourceStart.read(resources, source, rules, stop)
    if resources.config.mode == config_pb2.TASK_MODE_INCREMENTAL:
        first = checkpoints_at(resources, epoch, found.start, resources.lanes, stop)
        phase, start = Phase.REPLICATE, first[0].position
    else:
        first = ()
        phase, start = Phase.SNAPSHOT, found.start

    def also(session: Session) -> None:
        checkpoints.insert(session, resources.who, first)
        ddl_records.write_creations(session, resources.who, found.creations)
        if found.safe_mode_until is not None:
            time = resources.config.start_at.time
            bounds.write(
                session, resources.who, Bound(bounds.BoundKind.SAFE_MODE_UNTIL, time, found.safe_mode_until, 0.0)
            )

    with resources.coded_target_errors():
        subtask_record.begin(target, resources.who, epoch, phase, start, found.tables, also)


@dataclass(frozen=True, slots=True)
class _SourceStart:
    """The source's state where the subtask starts. ``safe_mode_until``: changes before it may already be at the target,
    None: none are. ``creations``: by shard number."""

    start: SourcePosition
    safe_mode_until: SourcePosition | None
    tables: tuple[Table, ...]
    creations: Mapping[int, CreateStatement]

    @staticmethod
    def read(resources: RunResources, source: Session, rules: Rules, stop: StopSignal) -> _SourceStart:
        config, host = resources.config, resources.host
        incremental = config.mode == config_pb2.TASK_MODE_INCREMENTAL
        with resources.coded_source_errors():
            info = server_info(source)
            start = current_position(source, info)
            alone = not host.needed_by_others(config.task)
            safe_mode_until: SourcePosition | None = None
            if incremental and (config.start.file or config.start.gtid_set):
                start = configured_start(config.start, info.identity, by_gtid=host.source.enable_gtid)
            elif incremental and config.HasField("start_at"):
                from_time = StartResolver(
                    resources.source_id, resources.source_endpoint, source, info, host.relay, alone, stop
                )
                start, safe_mode_until = from_time.resolve(config.start_at) or (start, None)
            host.relay.ensure_from(start, fresh=alone)

            def begin_here() -> None:
                nonlocal start
                if not incremental:  # the chunks are read with the structures that the tables have at the start
                    start = current_position(source, info)

            # After the position: a table that is altered in between gets the DDL in the stream.
            tables, creations = read_structures_and_creations(source, rules, resources.source_id, begin_here)
            if safe_mode_until is not None:
                check_keys(resources.source_id, config.start_at.time, tables)
        return _SourceStart(start, safe_mode_until, tables, dict(enumerate(creations)))
