"""Starts the replay of released shard tables: a short stream of their own that begins at the statement at which they
were parked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shardmerge.proto import failpoints
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.replicate.unit import first_checkpoints
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import ddl_progress, parked_tables, subtask_record
from shardmerge.worker.target.records.joining_tables import Joining, PendingEntry
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import Partitioning, partitioning_for
from shardmerge.worker.unit.run_context import RunContext


def replay_of(
    released: Mapping[int, tuple[Parked, RelayOffset]], partitioning: Partitioning
) -> tuple[Joining, RelayOffset]:
    """The tables' stream, and where it begins. ``partitioning``: of its lanes, without tables. Pure."""
    first, *others = sorted(released, key=lambda number: released[number][1])
    begin, offset = released[first]
    joining = Joining(
        replace(partitioning, shards=frozenset({first})),
        begin.resume_at,
        replays=True,
        entries=tuple(PendingEntry(number, released[number][0].place) for number in others),
        skips=begin.skips,
    )
    return joining, offset


def replayed_together(
    released: Mapping[int, tuple[Parked, RelayOffset]],
) -> Mapping[int, tuple[Parked, RelayOffset]]:
    """Those of the released tables that get the next stream: a table that skips statements has one alone, because the
    stream skips all statements up to a place. Pure."""
    together = {number: each for number, each in released.items() if each[0].skips is None}
    if together or not released:
        return together
    first = min(released, key=lambda number: released[number][1])
    return {first: released[first]}


def begin_replay(
    context: RunContext,
    released: Mapping[int, tuple[Parked, RelayOffset]],
    one_lane: frozenset[str],
    may_lack_rows: frozenset[int],
) -> Joining:
    """Record that the tables have a stream of their own. It begins where the first of them was parked, and each other
    table enters it after its own statement.

    ``released``: by number, with the offset in the current relay log at which their rows continue; ``one_lane``: names
    of the targets whose keys all belong to one lane; ``may_lack_rows``: numbers of the tables that may lack rows.
    Raises FENCED and coded errors of the target.
    """
    lanes = context.lanes_for_joins()
    partitioning = replace(partitioning_for(context.config, lanes, ()), one_lane=one_lane, may_lack_rows=may_lack_rows)
    joining, offset = replay_of(released, partitioning)
    found = first_checkpoints(lanes, context.epoch, context.relay.relay_id, joining.start, offset)

    def also(session: Session) -> None:
        checkpoints.insert(session, context.who, found, Stream.JOIN)
        if joining.entries:
            place = min(released.values(), key=lambda each: each[1])[0].place
            ddl_progress.write_passed(session, context.who, Stream.JOIN, place)
        if joining.skips is not None:
            # The own lanes take the table over after this statement only.
            ddl_progress.write_passed(session, context.who, Stream.JOIN, joining.skips)
        parked_tables.delete(session, context.who, released)
        failpoints.hit("replay.beginning")

    context.at_target(
        lambda session: subtask_record.record_joining(session, context.who, context.epoch, joining.to_json(), also)
    )
    failpoints.hit("replay.begun")
    return joining
