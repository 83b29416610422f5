"""What the tracks of a stream must not be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import (
    JOINING_STEPS,
    MAIN_STEPS,
    NO_TRACK,
    Changed,
    ChangedLater,
    Dropped,
    Elsewhere,
    Entering,
    Event,
    LanesAt,
    LaterStructure,
    Leaving,
    NamedElsewhere,
    NameUsed,
    Own,
    ParkedAt,
    PartialCopy,
    Removed,
    TakenOver,
    Track,
    step,
)
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import AwayName, Growing, LeavingTable, Partitioning
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION
from tests.support.plans import integer, table_plan

RULES = Rules.from_config(config_pb2.SubTaskConfig(task="t", source_id="mysql-01"))
END = RelayOffset(1, 70)
PLACE = StatementPlace(SourcePosition("bin.000001", 60), 0)
PLANS = {
    number: table_plan((integer(),), (0,), shard=number, schema="d", name=name) for number, name in enumerate("abcd")
}
GROWN = replace(PLANS[0], table=table_plan((integer(), integer("v")), (0,), schema="d", name="a").table)
GROWING = Growing(0, SourcePosition("bin.000001", 70), ("v",))
NAMED = AwayName(3, "d", "x")
MAIN: dict[int, Track] = {
    0: Own(PLANS[0], LaterStructure(GROWN, END, GROWING)),
    1: Own(PLANS[1], copy=PartialCopy(1, END)),
    2: Leaving(PLANS[2], END, PLACE),
    3: Elsewhere(("d", "x"), NAMED),
}
JOINING: dict[int, Track] = {0: Own(PLANS[0]), 1: Entering(PLANS[1], END, PLACE), 2: Dropped(("d", "c"))}


def main() -> StreamTables:
    partitioning = Partitioning(
        1, frozenset(), frozenset({0, 1}), "{}", leaving=(LeavingTable(2, PLACE, False),), growing=(GROWING,)
    )
    tables = (GROWN.table, *(PLANS[number].table for number in (1, 2, 3)))
    scope = TableScope(RULES, frozenset({("d", "c"), ("d", "x")}))
    return StreamTables(tables, MAIN, replace(partitioning, away=(NAMED,)), scope)


def joining() -> StreamTables:
    partitioning = Partitioning(1, frozenset(), frozenset({0}), "{}")
    scope = TableScope(RULES, only=frozenset({("d", "a"), ("d", "c")}))
    return StreamTables(tuple(plan.table for plan in PLANS.values()), JOINING, partitioning, scope)


HERE = LanesAt(END)
ALTERED = Changed(PLANS[0], CreateStatement("", ""))
PARKED = Parked(
    0, "", "d", 0, is_mariadb=True, session=UNKNOWN_SESSION, place=PLACE, resume_at=PLACE.position, since=1.0
)
OF_MAIN: tuple[tuple[Track | None, tuple[Event, ...]], ...] = (
    (None, (HERE, ALTERED, NamedElsewhere(("d", "x"), NAMED))),
    (
        MAIN[1],
        (
            HERE,
            ALTERED,
            ChangedLater(LaterStructure(GROWN, END, GROWING), ALTERED.creation),
            Removed(),
            ParkedAt(PARKED, ("d", "a")),
            ParkedAt(PARKED, ("d", "a"), Leaving(PLANS[0], END, PLACE)),
        ),
    ),
    (MAIN[2], (LanesAt(RelayOffset(1, 69)), HERE)),
    (
        MAIN[3],
        (HERE, NamedElsewhere(None, NAMED), *map(TakenOver, (Own(PLANS[3]), Entering(PLANS[3], END, PLACE), None))),
    ),
)
OF_JOINING: tuple[tuple[Track | None, tuple[Event, ...]], ...] = (
    (None, (HERE, ALTERED)),
    (JOINING[0], (HERE, ALTERED, Removed(), Removed(keeps_name=("d", "a")), ParkedAt(PARKED, ("d", "a")), NameUsed())),
    (JOINING[1], (LanesAt(RelayOffset(1, 69)), HERE)),
    (JOINING[2], (HERE, NameUsed())),
)


@pytest.mark.parametrize(("events", "steps"), [(OF_MAIN, MAIN_STEPS), (OF_JOINING, JOINING_STEPS)])
def test_the_steps_are_those_that_the_events_make(
    events: tuple[tuple[Track | None, tuple[Event, ...]], ...], steps: Mapping[tuple[str, str], str]
) -> None:
    def state(track: Track | None) -> str:
        return NO_TRACK if track is None else type(track).__name__

    made = {
        (state(before), state(after))
        for before, possible in events
        for event in possible
        if (after := step(before, event, is_main=steps is MAIN_STEPS)) is not before
    }
    assert made == steps.keys()


def test_a_place_that_the_lanes_have_not_reached_changes_nothing() -> None:
    for tracks, is_main in ((MAIN, True), (JOINING, False)):
        for track in tracks.values():
            assert step(track, LanesAt(RelayOffset(1, 69)), is_main=is_main) is track


def test_these_are_legal() -> None:
    for tables in (main(), joining()):
        assert tables.violations() == ()
        for offset in (RelayOffset(1, 69), END):
            assert tables.at_barrier(offset).violations() == ()


def test_a_joined_table_keeps_the_place_of_its_copy() -> None:
    partitioning = Partitioning(1, frozenset(), frozenset({1}), "{}")
    own = StreamTables(main().tables, {1: MAIN[1]}, partitioning, TableScope(RULES))
    other = replace(joining(), tracks={3: Own(PLANS[3], copy=PartialCopy(2, END))})
    assert own.with_joined(other).copies == {1: PartialCopy(1, END), 3: PartialCopy(2, END)}
    entering = replace(joining(), tracks={3: Entering(PLANS[3], END, PLACE, PartialCopy(2, END))})
    assert own.with_joined(entering).copies == {1: PartialCopy(1, END), 3: PartialCopy(2, END)}
    assert entering.at_barrier(END).copies == {3: PartialCopy(2, END)}


def test_the_manual_draws_the_steps() -> None:
    text = (Path(__file__).parents[5] / "docs/architecture.md").read_text()
    for name, steps in (("main", MAIN_STEPS), ("joining", JOINING_STEPS)):
        lines = [f"  {one} --> {other}: {reason}" for (one, other), reason in steps.items()]
        drawn = "\n".join(("```mermaid", "stateDiagram-v2", *lines, "```"))
        assert drawn in text, f"the steps of the {name} stream:\n{drawn}"


STEPS: dict[str, tuple[StreamTables, dict[int, Track], str]] = {
    "it left and is back": (main(), {**MAIN, 0: MAIN[2]}, "table 0 was Leaving and is Own"),
    "it leaves and is forgotten": (main(), {**MAIN, 4: MAIN[2]}, "table 4 was Leaving and has no track"),
    "it enters and is dropped": (joining(), {**JOINING, 2: JOINING[1]}, "table 2 was Entering and is Dropped"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_is_none(name: str) -> None:
    tables, before, text = STEPS[name]
    assert tables.violations(before) == (text,)


WRONG: dict[str, tuple[StreamTables, str]] = {
    "enters the main stream": (replace(main(), tracks={**MAIN, 4: JOINING[1]}), "cannot have such tables"),
    "is elsewhere, of joining tables": (replace(joining(), tracks={**JOINING, 3: MAIN[3]}), "cannot have such tables"),
    "two of one name": (replace(joining(), tracks={**JOINING, 2: Dropped(("d", "a"))}), "tables 0 and 2 have the name"),
    "two own tables of one name": (
        replace(main(), tracks={**MAIN, 1: Own(replace(PLANS[1], table=PLANS[0].table))}),
        "tables 0 and 1 have the name",
    ),
    "another structure": (replace(main(), tracks={**MAIN, 0: Own(PLANS[0])}), "table 0 is not recorded"),
    "no structure": (replace(main(), tables=()), "table 0 is not recorded"),
    "own rows are not looked for": (
        replace(main(), scope=TableScope(RULES, frozenset(("d", name) for name in "acx"))),
        "looks for no rows of its table 0",
    ),
    "rows of a table elsewhere": (replace(main(), scope=TableScope(RULES)), "looks for rows of table 3"),
    "a dropped table's name": (
        replace(joining(), scope=TableScope(RULES, only=frozenset({("d", "a")}))),
        "the name ('d', 'c') of the dropped table 2",
    ),
    "a table that is not recorded": (
        replace(main(), partitioning=replace(main().partitioning, shards=frozenset({0}))),
        "recorded as tables of the lanes: [0]; they are [0, 1]",
    ),
    "leaving is not recorded": (
        replace(main(), partitioning=replace(main().partitioning, leaving=())),
        "not recorded: LeavingTable(",
    ),
    "growing is not recorded": (
        replace(main(), partitioning=replace(main().partitioning, growing=())),
        "not recorded: Growing(",
    ),
    "a name is not recorded": (
        replace(main(), partitioning=replace(main().partitioning, away=())),
        "recorded as names of other streams: ()",
    ),
    "another name is recorded": (
        replace(main(), tracks={**MAIN, 3: Elsewhere(("d", "x"), AwayName(3, "d", "y"))}),
        "is recorded as 3, ('d', 'y')",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_is_seen(name: str) -> None:
    tables, text = WRONG[name]
    assert text in "; ".join(tables.violations())
    with pytest.raises(ShardmergeError) as caught:
        tables.checked(replace(tables, tracks={}), "a place")
    assert caught.value.spec is errors.worker.INTERNAL


def test_what_was_checked_is_not_checked_again() -> None:
    tables = replace(main(), tables=())
    assert tables.violations()
    assert tables.checked(tables, "a place") is tables
