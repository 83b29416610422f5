"""What is recorded of a stream's tracks, and whether tracks and records agree. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.track import (
    JOINING_STEPS,
    MAIN_STEPS,
    NO_TRACK,
    Dropped,
    Elsewhere,
    Entering,
    LaterStructure,
    Leaving,
    Own,
    Track,
    name_at,
)
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.partitioning import AwayName, Growing, LeavingTable, Partitioning


def later_structures(
    recorded: Iterable[Growing],
    plans: Mapping[int, TablePlan],
    found: Collection[Checkpoint],
    locate: Callable[[SourcePosition], RelayOffset],
) -> dict[int, LaterStructure]:
    """The structures of those of ``plans``, which have the recorded ones, that lanes with the checkpoints ``found`` may
    still meet without their new columns. ``locate``: the offset in the current relay log, of ascending positions."""
    return {
        item.number: LaterStructure(plans[item.number], locate(item.at), item)
        for item in sorted(recorded, key=lambda item: item.at.file_order())
        if item.number in plans and not item.is_passed(found)
    }


def plans_before(
    rules: Rules, plans: Iterable[TablePlan], later: Mapping[int, LaterStructure]
) -> tuple[TablePlan, ...]:
    """``plans`` as they are before the statements of ``later`` add columns."""

    def before(plan: TablePlan) -> TablePlan:
        if plan.shard not in later:
            return plan
        made = rules.plan(plan.shard, plan.source, plan.table.without_columns(later[plan.shard].record.columns))
        return replace(made, one_lane=plan.one_lane, may_lack_rows=plan.may_lack_rows)

    return tuple(map(before, plans))


def recorded(partitioning: Partitioning, tracks: Mapping[int, Track]) -> Partitioning:
    """``partitioning``, with the tables as ``tracks`` have them."""
    shards: set[int] = set()
    leaving: list[LeavingTable] = []
    growing: list[Growing] = []
    away: list[AwayName] = []
    for number, track in tracks.items():  # of thousands of tables, at each statement
        if isinstance(track, Own):
            shards.add(number)
            if track.later is not None:
                growing.append(track.later.record)
        elif isinstance(track, Leaving):
            leaving.append(LeavingTable(number, track.place, track.plan.one_lane))
        elif isinstance(track, Elsewhere) and track.record is not None:
            away.append(track.record)
    return replace(
        partitioning,
        shards=frozenset(shards),
        leaving=_in_order(leaving),
        growing=_in_order(growing),
        away=_in_order(away),
    )


T = TypeVar("T", LeavingTable, Growing, AwayName)


def _in_order(records: Iterable[T]) -> tuple[T, ...]:
    return tuple(sorted(records, key=lambda record: record.number))


def violations(
    tables: tuple[Table, ...],
    tracks: Mapping[int, Track],
    partitioning: Partitioning,
    scope: TableScope,
    before: Mapping[int, Track] | None = None,
) -> Iterator[str]:
    """Sentences about what must not be: a state that the stream cannot have, a step that is none, two tables of one
    name, or a record that lacks what the tracks are. ``tables``: the recorded structures, by number. ``before``: the
    tracks before the last step, which were checked; those that are the same objects are not checked again, which
    matters with thousands of tables."""
    steps = MAIN_STEPS if scope.only is None else JOINING_STEPS
    states = {state for step in steps for state in step}
    names: dict[TableName, int] = {}
    for number, track in tracks.items():
        former = None if before is None else before.get(number)
        if former is track:
            continue
        name, state = name_at(track), type(track).__name__
        # A released table may have a name that another one has up to a statement before it enters.
        if name is not None and not isinstance(track, Entering) and names.setdefault(name, number) != number:
            yield f"tables {names[name]} and {number} have the name {name}"
        if state not in states:
            yield f"table {number} is {state} in a stream that cannot have such tables"
        elif before is not None and (_state_of(former), state) not in steps:
            yield f"table {number} was {_state_of(former)} and is {state}"
        yield from _of_track(tables, scope, number, track, name)
    if before is not None:
        for number, former in before.items():
            if number not in tracks and (_state_of(former), NO_TRACK) not in steps:
                yield f"table {number} was {_state_of(former)} and has no track"
    now = recorded(partitioning, tracks)
    if now.shards != partitioning.shards:
        yield f"recorded as tables of the lanes: {sorted(partitioning.shards)}; they are {sorted(now.shards)}"
    # The record may also have places that all lanes have passed.
    yield from (f"not recorded: {each}" for each in now.leaving if each not in partitioning.leaving)
    yield from (f"not recorded: {each}" for each in now.growing if each not in partitioning.growing)
    if now.away != partitioning.away:
        yield f"recorded as names of other streams: {partitioning.away}; they are {now.away}"


def _state_of(track: Track | None) -> str:
    return NO_TRACK if track is None else type(track).__name__


def _of_track(
    tables: tuple[Table, ...], scope: TableScope, number: int, track: Track, name: TableName | None
) -> Iterator[str]:
    match track:
        case Own(plan=plan, later=later):
            recorded = plan if later is None else later.plan
            if number >= len(tables) or tables[number] != recorded.table:
                yield f"table {number} is not recorded with the structure that its rows get"
            if (name in scope.others) if scope.only is None else (name not in scope.only):
                yield f"the stream looks for no rows of its table {number}, {name}"
        case Elsewhere(record=record):
            if name is not None and name not in scope.others:
                yield f"the stream looks for rows of table {number}, {name}, which is elsewhere"
            if record is not None and (record.number, record.name) != (number, name):
                yield f"table {number}, {name} is recorded as {record.number}, {record.name}"
        case Dropped() if scope.only is not None and name not in scope.only:
            yield f"the name {name} of the dropped table {number} is not the stream's"
        case _:
            pass
