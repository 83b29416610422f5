"""Histories of shard tables that the random histories of sharding DDLs have found, each with the order that matters."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from tests.unit.shard_ddl.history_events import ID, KEY, AlterEvent, Event, Histories, RowEvent, TableHistory
from tests.unit.shard_ddl.history_worker import run_at_target
from tests.unit.shard_ddl.history_world import TASKS, HistoryWorld
from tests.unit.worker.ddl.schema_join.join_rows import Model, Value

B_INT, C_INT, UNIQUE = "`b` int NOT NULL DEFAULT 0", "`c` bigint DEFAULT NULL", "UNIQUE KEY `u` (`c`)"

Written = str | Mapping[str, Value]
"""A clause of an ALTER TABLE, or a row."""

Table = Sequence[Written]
"""The events of a shard table."""


def world_of(start: Sequence[str], *sources: Sequence[Table], optimistic: bool = True) -> HistoryWorld:
    """A world before all events. ``start``: the columns and indexes of each shard table, without its id. ``sources``:
    for each source, the events of its shard tables."""
    items = (ID, *start, KEY)
    number = 0
    tables: list[tuple[TableHistory, ...]] = []
    for source in sources:
        found: list[TableHistory] = []
        for at, written in enumerate(source):
            model, events = Model(items), list[Event]()
            for each in written:
                if isinstance(each, str):
                    assert model.alter((each,), strict=True)
                    events.append(AlterEvent((each,), strict=True))
                else:
                    number += 1
                    model.rows[number] = dict(each)
                    events.append(RowEvent(number, tuple(each.items())))
            found.append(TableHistory(f"t{at}", tuple(events), model))
        tables.append(tuple(found))
    alters = [tuple(each for each in events if isinstance(each, str)) for source in sources for events in source]
    histories = Histories(items, tuple(tables), same=len(set(alters)) == 1, collides=False, adds_again=False)
    return HistoryWorld(random.Random(0), histories, optimistic=optimistic)


def apply_all(world: HistoryWorld, source: str, number: int = 0) -> None:
    """Apply the events of a shard table, up to its end or to where it waits."""
    for name in TASKS:
        while world.advance(name, source, number):
            pass


def end(world: HistoryWorld) -> None:
    """Everything is applied without an operator, and the target is right."""
    world.converge()
    assert [task.is_done() for task in world.tasks.values()] == [True, True], world.trace
    world.check_target()


def test_a_default_may_change_after_another_table_has_dropped_the_column() -> None:
    """Values of a column that a shard table has dropped do not matter: it gets them back by an operator's decision
    only. (Seed 3449059)"""
    statements = ("MODIFY COLUMN `b` bigint NOT NULL", "MODIFY COLUMN `b` int NOT NULL DEFAULT 0", "DROP COLUMN `b`")
    first, second, last = statements
    table: Table = ({"b": 1}, first, {"b": 2}, second, {"b": 3}, last, {})
    world = world_of((B_INT,), (table, table), (table,))
    apply_all(world, "s1")
    end(world)


def test_a_table_waits_at_a_unique_index_that_another_one_has_added_and_dropped_again() -> None:
    """The first table continues at once, because the other one has the index. The other one waits for the first, which
    does not reach the statement again, and its rows have other columns in between. It cannot continue with an index
    that the target lacks: a lock of other tables at that statement would add it, although the table is about to drop it
    and several lanes apply its rows. (Seed 3343385571)"""
    table: Table = (
        "DROP INDEX `u`",
        {"c": 1},
        f"ADD {UNIQUE}",
        {"c": 2},
        f"ADD COLUMN {B_INT}",
        {"c": 3, "b": 1},
        "DROP COLUMN `b`",
        {"c": 4},
        "DROP INDEX `u`",
        {"c": 5},
    )
    world = world_of((C_INT, UNIQUE), (table,), (table,))
    apply_all(world, "s1")
    world.converge()
    assert world.lacks_unique_index()
    world.check_waits()
    world.let_operator_end_it()
    world.check_target()


def test_a_column_is_dropped_when_the_last_table_that_was_to_add_it_has_led_back() -> None:
    """The target keeps the column for the table that is parked at the statement which adds it. (Seed 250022213)"""
    table: Table = ("DROP COLUMN `c`", f"ADD COLUMN {C_INT}", "DROP COLUMN `c`")
    world = world_of((C_INT,), (table,), (table,))
    apply_all(world, "s0")
    apply_all(world, "s1")
    end(world)


def test_a_long_history_ends() -> None:
    """Each lock takes several rounds. (Seed 1347117237)"""
    table: Table = ("ADD KEY `k` (`c`)", "DROP INDEX `k`") * 10
    end(world_of((C_INT,), (table,), (table,), optimistic=False))


def test_the_operator_ends_a_lock_whose_owner_has_no_table_at_its_statement() -> None:
    """The operator overrides the owner's statement, and lets the lock run before the master sees that its table has
    continued. The target refuses the statement, which no override concerns any more. (Seeds 3743585872, 2743649801)"""
    world = world_of((C_INT, UNIQUE), (("DROP INDEX `u`", {"c": 1}),), (({"c": 2},),), optimistic=False)
    world.converge()
    task = world.tasks[TASKS[0]]
    owner = task.subtasks["s0"]
    world.override(task, owner, owner.shards[0], skip=True)
    assert world.act(task.name, "s0")
    assert owner.shards[0].parked is None
    assert world.unlock(task, force=False)
    assert run_at_target(task.target, ("DROP INDEX `u`",))
    world.converge()
    assert owner.error == "ddl-refused-by-target"
    world.let_operator_end_it()
    world.check_target()


def test_a_lock_waits_for_a_table_whose_report_is_older_than_its_records() -> None:
    """The second table has dropped the index, which is not published yet: the master regards it as past the statement
    that adds it. (Seed 624109436)"""
    table: Table = ("DROP INDEX `u`", {"c": 1}, f"ADD {UNIQUE}", {"c": 2})
    other: Table = ("DROP INDEX `u`", {"c": 3}, f"ADD {UNIQUE}", {"c": 4})
    world = world_of((C_INT, UNIQUE), (table,), (other,))
    task = world.tasks[TASKS[0]]
    for source in ("s0", "s1"):
        assert world.act(task.name, source)
    assert world.advance(task.name, "s0", 0)
    assert world.advance(task.name, "s1", 0)
    apply_all(world, "s0")
    owner = task.subtasks["s0"]
    assert owner.shards[0].parked is not None
    assert world.act(task.name, "s0")
    world.lead()
    assert task.lock is not None
    assert task.lock.stage == task.lock.STAGE_EXECUTING
    assert world.act(task.name, "s0")
    assert owner.declined == task.lock.generation
    assert world.act(task.name, "s0")
    world.lead()
    assert task.lock.stage == task.lock.STAGE_GATHERING
    end(world)
