"""Released shard tables begin to come back: a short stream of their own, from the statement on that they waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from proto import hooks
from proto.config import defaults
from worker import meta
from worker.connection import Session
from worker.context import SubTaskContext
from worker.ddl import parked as parked_tables
from worker.ddl.parked import Parked
from worker.join.record import Entry, Joining
from worker.position import RelayOffset
from worker.replicate import checkpoint as checkpoints
from worker.replicate.dealing import Dealing, dealing_of
from worker.replicate.stream import Stream
from worker.replicate.unit import first_checkpoints


def replay_of(released: Mapping[int, tuple[Parked, RelayOffset]], dealing: Dealing) -> tuple[Joining, RelayOffset]:
    """The tables' stream, and where it begins. ``dealing``: of its lanes, without tables. Pure."""
    first, *others = sorted(released, key=lambda number: released[number][1])
    begin, offset = released[first]
    joining = Joining(
        replace(dealing, shards=frozenset({first})),
        begin.behind,
        replays=True,
        entries=tuple(Entry(number, released[number][0].place) for number in others),
    )
    return joining, offset


def begin_replay(
    context: SubTaskContext,
    released: Mapping[int, tuple[Parked, RelayOffset]],
    one_lane: frozenset[str],
    loose: frozenset[int],
) -> Joining:
    """Record that the tables have a stream of their own; it begins where the first of them has waited, and each other
    comes in behind its own statement.

    ``released``: by number, with where their rows go on in the relay log at hand; ``one_lane``: names of the targets
    whose keys all belong to one lane; ``loose``: numbers of the tables that are or were loose. Raises FENCED and coded
    errors of the target.
    """
    lanes = context.config.replicate.lanes or defaults.LANES
    dealing = replace(dealing_of(context.config, lanes, ()), one_lane=one_lane, loose=loose)
    joining, offset = replay_of(released, dealing)
    found = first_checkpoints(lanes, context.epoch, context.relay.relay_id, joining.start, offset)

    def also(session: Session) -> None:
        checkpoints.insert(session, *context.who, found, Stream.JOIN)
        parked_tables.forget(session, *context.who, released)
        hooks.reach("replay.beginning")

    context.at_target(
        lambda session: meta.record_joining(session, *context.who, context.epoch, joining.to_json(), also)
    )
    hooks.reach("replay.begun")
    return joining
