"""Histories of shard tables that the random histories of sharding DDLs have found, each with the order that matters."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from tests.unit.shard_ddl.history_events import ID, KEY, AlterEvent, Event, Histories, RowEvent, TableHistory
from tests.unit.shard_ddl.history_world import TASKS, HistoryWorld
from tests.unit.worker.ddl.schema_join.join_rows import Model, Value

A_INT, B_INT = "`a` int DEFAULT NULL", "`b` int NOT NULL DEFAULT 0"

Written = str | Mapping[str, Value]
"""A clause of an ALTER TABLE, or a row."""


def world_of(start: Sequence[str], *sources: Sequence[Sequence[Written]], optimistic: bool = True) -> HistoryWorld:
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
    histories = Histories(items, tuple(tables), same=True, collides=False, adds_again=False)
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
    table = ({"b": 1}, first, {"b": 2}, second, {"b": 3}, last, {})
    world = world_of((B_INT,), (table, table), (table,))
    apply_all(world, "s1")
    end(world)
