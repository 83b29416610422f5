"""Draws the histories of shard tables for the random histories of sharding DDLs: rows, statements and new names."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.unit.worker.ddl.schema_join.join_model import altered, named, shape_of
from tests.unit.worker.ddl.schema_join.join_rows import Model, Value, drawn_value

ID, KEY = "`id` bigint NOT NULL", "PRIMARY KEY (`id`)"
COLUMNS: dict[str, tuple[str, ...]] = {
    "a": ("`a` int DEFAULT NULL", "`a` bigint DEFAULT NULL", "`a` int NOT NULL DEFAULT 7"),
    "b": ("`b` int NOT NULL DEFAULT 0", "`b` bigint NOT NULL", "`b` bigint DEFAULT NULL"),
    "c": ("`c` bigint DEFAULT NULL",),
}
INDEXES = ("KEY `k` (`a`)", "KEY `k` (`b`)", "UNIQUE KEY `u` (`c`)", "UNIQUE KEY `u` (`c`,`a`)")
STARTS = (
    (ID, COLUMNS["a"][0], COLUMNS["c"][0], KEY),
    (ID, COLUMNS["a"][0], COLUMNS["c"][0], KEY, INDEXES[2]),
    (ID, COLUMNS["a"][1], COLUMNS["b"][0], COLUMNS["c"][0], KEY, INDEXES[0], INDEXES[3]),
)
MOST_STATEMENTS = 4


@dataclass(frozen=True, slots=True)
class RowEvent:
    """A row of the binlog: its number and its values."""

    number: int
    values: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class AlterEvent:
    """An ALTER TABLE. ``strict``: the source ran it under a strict sql_mode."""

    clauses: tuple[str, ...]
    strict: bool


@dataclass(frozen=True, slots=True)
class RenameEvent:
    """The table has another name from here on."""

    name: str


Event = RowEvent | AlterEvent | RenameEvent


@dataclass(frozen=True, slots=True)
class TableHistory:
    """All events of a shard table, and the table at the end."""

    name: str
    events: tuple[Event, ...]
    final: Model


@dataclass(frozen=True, slots=True)
class Histories:
    """``tables``: by source. ``same``: all shard tables have the same statements, in the same order. ``collides``:
    unique values are equal in different shard tables. ``adds_again``: a table adds a column that it has dropped."""

    start: tuple[str, ...]
    tables: tuple[tuple[TableHistory, ...], ...]
    same: bool
    collides: bool
    adds_again: bool


def has_duplicates(model: Model) -> bool:
    """Whether rows violate a unique index."""
    for index in model.shape.indexes:
        if not index.unique:
            continue
        keys = [tuple(row.get(column) for column in index.columns) for row in model.rows.values()]
        whole = [key for key in keys if None not in key]
        if len(set(whole)) < len(whole):
            return True
    return False


def draw_histories(dice: random.Random, counts: tuple[int, ...], *, same: bool) -> Histories:
    """Histories of ``counts[s]`` shard tables at each source ``s``."""
    start, collides = dice.choice(STARTS), dice.random() < 0.2
    common = _draw_statements(dice, start) if same else None
    number = 0
    tables: list[tuple[TableHistory, ...]] = []
    for count in counts:
        of_source: list[TableHistory] = []
        for at in range(count):
            statements = common if common is not None else _draw_statements(dice, start)
            name = f"t{at}"
            made, number = _draw_table(dice, name, start, statements, number, collides=collides)
            of_source.append(made)
        tables.append(tuple(of_source))
    statements = [
        [event for event in table.events if isinstance(event, AlterEvent)] for each in tables for table in each
    ]
    is_same = all(each == statements[0] for each in statements)
    return Histories(start, tuple(tables), is_same, collides, any(map(_adds_again, statements)))


def _adds_again(statements: list[AlterEvent]) -> bool:
    clauses = [clause for statement in statements for clause in statement.clauses]
    dropped = {clause.split("`")[1]: at for at, clause in enumerate(clauses) if clause.startswith("DROP COLUMN")}
    return any(
        clause.startswith("ADD COLUMN") and dropped.get(clause.split("`")[1], at) < at
        for at, clause in enumerate(clauses)
    ) or len([each for each in clauses if each.startswith("DROP COLUMN")]) > len(dropped)


def _draw_table(
    dice: random.Random,
    name: str,
    start: tuple[str, ...],
    statements: list[AlterEvent],
    number: int,
    *,
    collides: bool,
) -> tuple[TableHistory, int]:
    model = Model(start)
    events: list[Event] = []
    for statement in (*statements, None):
        for _ in range(dice.randrange(3)):
            number += 1
            row = {each.key: drawn_value(dice, each) for each in model.shape.columns if each.key != "id"}
            row = {key: min(max(value, -9), 9) if isinstance(value, int) else value for key, value in row.items()}
            if "c" in row:
                row["c"] = number % 5 if collides else number
            model.rows[number] = row
            if has_duplicates(model):
                del model.rows[number]
            else:
                events.append(RowEvent(number, tuple(row.items())))
        if dice.random() < 0.1:
            events.append(RenameEvent(f"{name}_{len(events)}"))
        if statement is not None:
            before = Model(model.items, dict(model.rows))
            if not model.alter(statement.clauses, strict=statement.strict) or has_duplicates(model):
                model = before  # the source refuses it
                return TableHistory(name, tuple(events), model), number
            events.append(statement)
    return TableHistory(name, tuple(events), model), number


def _draw_statements(dice: random.Random, start: tuple[str, ...]) -> list[AlterEvent]:
    items, found = start, list[AlterEvent]()
    for _ in range(dice.randrange(1, MOST_STATEMENTS + 1)):
        clauses = _draw_clauses(dice, items)
        if not clauses:
            continue
        after = altered(items, clauses)
        found.append(AlterEvent(clauses, dice.random() < 0.8))
        if dice.random() < 0.4:  # there and back
            back = _clauses_between(after, items)
            if back and set(altered(after, back)) == set(items):
                found.append(AlterEvent(back, strict=True))
                after = altered(after, back)
        items = after
    return found


def _draw_clauses(dice: random.Random, items: tuple[str, ...]) -> tuple[str, ...]:
    if dice.random() < 0.5:
        item = dice.choice(INDEXES)
        present = _index(items, item.split("`")[1])
        if present:
            drop = f"DROP INDEX `{item.split('`')[1]}`"
            return (drop, f"ADD {item}") if present != item and _fits(items, item) and dice.random() < 0.3 else (drop,)
        return (f"ADD {item}",) if _fits(items, item) else ()
    key = dice.choice("abc")
    item = dice.choice(COLUMNS[key])
    present = next((each for each in items if named(each) == key), None)
    if present is None:
        return (f"ADD COLUMN {item}",)
    if present != item and dice.random() < 0.5:
        return (f"MODIFY COLUMN {item}",)
    return () if any(f"`{key}`" in each for each in items if "KEY" in each) else (f"DROP COLUMN `{key}`",)


def _clauses_between(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[str, ...]:
    """Clauses that make ``after`` of ``before``."""
    gone = [each for each in before if each not in after]
    new = [each for each in after if each not in before]
    columns = {named(each) for each in gone} & {named(each) for each in new} - {""}
    drops = [f"DROP INDEX `{each.split('`')[1]}`" for each in gone if not named(each)]
    drops += [f"DROP COLUMN `{named(each)}`" for each in gone if named(each) and named(each) not in columns]
    adds = [f"{'MODIFY' if named(each) in columns else 'ADD'} COLUMN {each}" for each in new if named(each)]
    return (*drops, *adds, *(f"ADD {each}" for each in new if not named(each)))


def _index(items: tuple[str, ...], name: str) -> str:
    return next((each for each in items if not named(each) and f"KEY `{name}`" in each), "")


def _fits(items: tuple[str, ...], index: str) -> bool:
    there = {named(each) for each in items}
    return all(column.key in there for column in shape_of(ID, *COLUMNS_OF_ALL, KEY).columns if
               f"`{column.key}`" in index.split("(", 1)[1])  # fmt: skip


COLUMNS_OF_ALL = tuple(kinds[0] for kinds in COLUMNS.values())
