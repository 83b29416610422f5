"""The life of one shard table in one stream. Pure.

A shard table has one track in a stream, which is the whole of what the stream knows of it. ``Own`` is the only state
with rows at the stream's present place; ``Entering`` and ``Leaving`` have a place at which the lanes change the state
by themselves, without a barrier. A table without a track is none of the stream's. :func:`step` is the only function
that gives a track its next state. :data:`MAIN_STEPS` and :data:`JOINING_STEPS` are all the steps that there are;
docs/architecture.md draws them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import assert_never

from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import AwayName, Growing

# --- states


@dataclass(frozen=True, slots=True)
class LaterStructure:
    """The structure that a table gets at a later place, where a statement adds columns. ``plan``: from group end
    ``offset`` on; ``record``: what is recorded of it."""

    plan: TablePlan
    offset: RelayOffset
    record: Growing


@dataclass(frozen=True, slots=True)
class PartialCopy:
    """A table's history is copied in part: it leaves the stream at the statement whose group begins at ``offset``.
    ``number``: of the interruption, see worker/target/records/history/interrupted_copies.py."""

    number: int
    offset: RelayOffset


@dataclass(frozen=True, slots=True)
class Own:
    """The stream applies the table's rows, with ``plan`` up to the place of ``later``."""

    plan: TablePlan
    later: LaterStructure | None = None
    copy: PartialCopy | None = None


@dataclass(frozen=True, slots=True)
class Entering:
    """A released table, whose rows the stream applies from group end ``offset`` on: there ends the statement at
    ``place``, at which it was parked. ``copy``: a later statement has interrupted its copy."""

    plan: TablePlan
    offset: RelayOffset
    place: StatementPlace
    copy: PartialCopy | None = None


@dataclass(frozen=True, slots=True)
class Leaving:
    """A table that is recorded as parked at the statement at ``place``, which the lanes may not have reached: the
    stream applies its rows up to group end ``offset``, where the statement ends."""

    plan: TablePlan
    offset: RelayOffset
    place: StatementPlace


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A table that is parked, or that another stream has, or had when it dropped it. ``name``: at the main stream's
    place; None: no name any more. ``record``: how a statement has changed the name; None: none has."""

    name: TableName | None
    record: AwayName | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A table that was dropped in this stream: a table that is created there with its ``name`` is the stream's."""

    name: TableName


Track = Own | Entering | Leaving | Elsewhere | Dropped


def own_tracks(
    plans: Iterable[TablePlan],
    later: Mapping[int, LaterStructure] = MappingProxyType({}),
    copies: Mapping[int, PartialCopy] = MappingProxyType({}),
) -> dict[int, Track]:
    """The tracks of a stream's own tables. ``later``, ``copies``: by number."""
    return {plan.shard: Own(plan, later.get(plan.shard), copies.get(plan.shard)) for plan in plans}


def name_of(plan: TablePlan) -> TableName:
    return plan.table.schema, plan.table.name


def name_at(track: Track) -> TableName | None:
    """The table's name at the stream's place; None: it has none."""
    return name_of(track.plan) if isinstance(track, Own | Entering | Leaving) else track.name


# --- events


@dataclass(frozen=True, slots=True)
class LanesAt:
    """Every lane has reached group end ``offset``, and none has passed it."""

    offset: RelayOffset


@dataclass(frozen=True, slots=True)
class Changed:
    """The statement creates, alters or renames the table: it has ``plan`` and ``creation`` after it."""

    plan: TablePlan
    creation: CreateStatement


@dataclass(frozen=True, slots=True)
class ChangedLater:
    """A later statement, which the lanes have not reached, adds columns to the table."""

    later: LaterStructure
    creation: CreateStatement


@dataclass(frozen=True, slots=True)
class Removed:
    """The table is dropped, or an operator or a filter has taken it out of the subtask. ``changed``: what the statement
    has made of it before; ``keeps_name``: a table that is created with its name is the stream's."""

    changed: Changed | None = None
    keeps_name: TableName | None = None


@dataclass(frozen=True, slots=True)
class ParkedAt:
    """The table is parked at a statement, or until the rest of its history is copied. ``name``: after the statement.
    ``leaving``: the lanes have not reached the statement. ``changed``: what the statement has made of it before."""

    parked: Parked
    name: TableName
    leaving: Leaving | None = None
    changed: Changed | None = None


@dataclass(frozen=True, slots=True)
class NamedElsewhere:
    """A statement of the main stream creates a table of another stream, gives it another ``name``, or drops it.
    ``record``: what is recorded of the name."""

    name: TableName | None
    record: AwayName | None


@dataclass(frozen=True, slots=True)
class NameUsed:
    """The stream has no use for the name of a dropped table any more: another table has it."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The stream takes the table over from another one, where it is ``track``; None: it was dropped there."""

    track: Own | Entering | None


TableChange = Changed | ChangedLater | Removed | ParkedAt
"""What a statement makes of one table of the stream."""

Event = LanesAt | TableChange | NamedElsewhere | NameUsed | TakenOver


# --- steps


def step(track: Track | None, event: Event, *, is_main: bool) -> Track | None:
    """The track after ``event``, the same object if it stays as it is; None: the stream has none. ``is_main``: of the
    main stream. Whether the step is a legal one is checked before it is recorded: see
    :func:`shardmerge.worker.ddl.decide.recorded_tracks.violations`."""
    match event:
        case LanesAt(offset=offset):
            return None if track is None else _reached(track, offset)
        case Changed(plan=plan):
            return replace(track, plan=plan) if isinstance(track, Own) else Own(plan)
        case ChangedLater(later=later):
            return replace(track, later=later) if isinstance(track, Own) else Own(later.plan)
        case Removed(keeps_name=name):
            return None if name is None else Dropped(name)
        case ParkedAt(leaving=leaving, name=name):
            return (leaving or Elsewhere(name)) if is_main else None
        case NamedElsewhere(name=name, record=record):
            return Elsewhere(name, record)
        case NameUsed():
            return None
        case TakenOver(track=other):
            return _entered(other) if isinstance(other, Entering) else other
        case _:
            assert_never(event)


def _reached(track: Track, offset: RelayOffset) -> Track:
    match track:
        case Own(later=later, copy=copy) if later is not None and later.offset <= offset:
            return Own(later.plan, None, copy)
        case Entering(offset=at) if at <= offset:
            return _entered(track)
        case Leaving(plan=plan, offset=at) if at <= offset:
            return Elsewhere(name_of(plan))
        case _:
            return track


def _entered(track: Entering) -> Own:
    return Own(track.plan, copy=track.copy)


NO_TRACK = "[*]"
MAIN_STEPS: Mapping[tuple[str, str], str] = {
    (NO_TRACK, "Own"): "created",
    ("Own", "Own"): "altered, renamed",
    ("Own", NO_TRACK): "dropped",
    ("Own", "Elsewhere"): "parked at the statement, or copied in part",
    ("Own", "Leaving"): "parked at a later statement",
    ("Leaving", "Elsewhere"): "the lanes are there",
    (NO_TRACK, "Elsewhere"): "created in another stream",
    ("Elsewhere", "Elsewhere"): "renamed, dropped in its stream",
    ("Elsewhere", "Own"): "taken over",
    ("Elsewhere", NO_TRACK): "taken over after it was dropped",
}
"""The steps of a track in the main stream, each with its reason. :data:`NO_TRACK`: before the first and after the last
state."""
JOINING_STEPS: Mapping[tuple[str, str], str] = {
    ("Entering", "Own"): "the lanes are there",
    (NO_TRACK, "Own"): "created",
    ("Own", "Own"): "altered, renamed",
    ("Own", "Dropped"): "dropped",
    ("Own", NO_TRACK): "parked, or dropped and its name given away",
    ("Dropped", NO_TRACK): "its name given away, or used again",
}
"""The steps in a stream of joining tables, which begins with tables in each of its states."""
