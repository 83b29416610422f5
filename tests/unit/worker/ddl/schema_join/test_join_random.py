"""Shard tables that change in any order: what holds at every moment, with rows.

Each shard is a table with rows. A statement is run on its rows as a server would; what the join says is run on the
target's, strictly. The target then has every value that the shards have.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from shardmerge.worker.core.sql.table_text import Index
from shardmerge.worker.ddl.schema_join.join import SchemaJoin, join
from shardmerge.worker.ddl.schema_join.model import NotJoinable, ShardSchema
from shardmerge.worker.ddl.sql.common_type import common_type
from shardmerge.worker.ddl.sql.table_definition import TableDefinition
from tests.support.examples import examples
from tests.unit.worker.ddl.schema_join.join_model import named, shape_of
from tests.unit.worker.ddl.schema_join.join_rows import Model, Row, default_of, drawn_value, fits, squeezed

ID, KEY = "`id` bigint NOT NULL", "PRIMARY KEY (`id`)"

INTS = [f"`a` {base} {rest}" for base in ("tinyint", "smallint", "int unsigned", "bigint", "int")
        for rest in ("DEFAULT NULL", "NOT NULL", "NOT NULL DEFAULT 0", "DEFAULT 7", "NOT NULL DEFAULT 7")]  # fmt: skip
STRINGS = [f"`b` {base} {rest}" for base in ("varchar(2)", "varchar(70)", "tinytext", "text", "char(4)")
           for rest in ("DEFAULT NULL", "NOT NULL", "DEFAULT NULL COMMENT 'x'")]  # fmt: skip
DECIMALS = [
    f"`c` {each}" for each in (
        "decimal(3,1) NOT NULL DEFAULT 1.5", "decimal(5,1) NOT NULL DEFAULT 1.5", "decimal(4,2) NOT NULL DEFAULT 1.50",
        "decimal(4,2) DEFAULT NULL", "decimal(4,2) DEFAULT 1.50", "decimal(3,2) DEFAULT 1.50")
]  # fmt: skip
COLUMNS = {"a": INTS, "b": STRINGS, "c": DECIMALS}
INDEXES = ["KEY `k` (`a`)", "KEY `k2` (`a`,`c`)", "KEY `k` (`c`)", "UNIQUE KEY `u` (`c`)", "KEY `s` (`b`(1))"]


@dataclass(slots=True)
class World:
    target: Model
    shards: list[Model]
    numbers: int = 0

    def write(self, at: int, dice: random.Random) -> None:
        shard = self.shards[at]
        columns = [each for each in shard.shape.columns if each.key != "id"]
        self.numbers += 1
        row = {each.key: drawn_value(dice, each) for each in columns}
        shard.rows[self.numbers] = row
        arrived: Row = {}
        for each in self.target.shape.columns:
            if each.key in row:
                assert fits(row[each.key], each), (row, each)
                arrived[each.key] = squeezed(row[each.key], each)
            elif each.key != "id":
                assert each.unfillable == ""
                arrived[each.key] = default_of(each)
        self.target.rows[self.numbers] = arrived

    def asked(self, at: int, after: TableDefinition, *, strict: bool, turned: bool = False) -> SchemaJoin | NotJoinable:
        others = [ShardSchema(f"s{n}", each.shape, each.dropped) for n, each in enumerate(self.shards) if n != at]
        if turned:
            others.reverse()
        before = ShardSchema(f"s{at}", self.shards[at].shape, self.shards[at].dropped)
        return join(self.target.shape, others, before, after, strict=strict)

    def step(self, at: int, clauses: tuple[str, ...], *, strict: bool) -> bool:
        """A statement of a shard; whether it was run and joined."""
        shard = self.shards[at]
        source = Model(shard.items, shard.rows)
        if not source.alter(clauses, strict=strict):
            return False  # refused at the source
        after = source.shape
        found = self.asked(at, after, strict=strict)
        assert self.asked(at, after, strict=strict, turned=True) == found
        if isinstance(found, NotJoinable):
            assert found.reason
            return False
        assert self.target.alter(found.clauses, strict=True), found
        again = self.asked(at, after, strict=strict)
        assert isinstance(again, SchemaJoin)
        assert (again.clauses, again.dropped, again.gone) == ((), found.dropped, found.gone)
        shard.items, shard.rows, shard.dropped = source.items, source.rows, found.dropped
        for each in self.shards:
            each.dropped -= found.gone
        self.check()
        return True

    def check(self) -> None:
        target = self.target.shape
        shapes = [each.shape for each in self.shards]
        for shard, shape in zip(self.shards, shapes, strict=True):
            for column in shape.columns:
                there = target.column(column.key)
                assert there is not None
                assert common_type((column.type, there.type)) == there.type
                assert there.nullable or not column.nullable
            for column in target.columns:
                assert shape.column(column.key) or column.unfillable == ""
            for number, row in shard.rows.items():
                arrived = self.target.rows[number]
                assert {key: arrived[key] for key in row} == row
        wanted = {each.key for shape in shapes for each in shape.columns}
        assert {each.key for each in target.columns} == wanted
        plain = [{each.key for each in shape.indexes if not each.unique} for shape in shapes]
        assert {each.key for each in target.indexes if not each.unique} == set[str]().union(*plain)
        unique = [{each.key for each in shape.indexes if each.unique} for shape in shapes]
        assert {each.key for each in target.indexes if each.unique} == set[str].intersection(*unique)
        if all(told(shape) == told(shapes[0]) for shape in shapes):
            assert told(target) == told(shapes[0])


def told(shape: TableDefinition) -> tuple[object, ...]:
    def index(each: Index) -> str:
        return each.same

    columns = sorted((each.key, str(each.same)) for each in shape.columns)
    return columns, sorted(map(index, shape.indexes))


def drawn_step(dice: random.Random, items: tuple[str, ...], goal: tuple[str, ...] | None) -> tuple[str, ...]:
    """A statement; towards ``goal``, or any."""
    kind = dice.choice(["column", "column", "column", "index"])
    if goal is not None:
        missing = [each for each in goal if each not in items]
        surplus = [each for each in items if each not in goal]
        if not missing and not surplus:
            return ()
        item = dice.choice([*missing, *surplus])
    elif kind == "column":
        item = dice.choice(COLUMNS[dice.choice("abc")])
        item = dice.choice([item, *(each for each in items if named(each) not in ("", "id"))])
    else:
        item = dice.choice([*INDEXES, *(each for each in items if "KEY `" in each)])
    if column := named(item):
        present = next((each for each in items if named(each) == column), None)
        if present is None:
            return (f"ADD COLUMN {item}",)
        wanted = next((each for each in goal or () if named(each) == column), "")
        if present != item and (goal is None or wanted):
            return (f"MODIFY COLUMN {wanted or item}",)
        return () if goal and wanted else (f"DROP COLUMN `{column}`",)
    name = item.split("`")[1]
    if any(f"KEY `{name}`" in each for each in items):
        return (f"DROP INDEX `{name}`",)
    columns = item.split("(", 1)[1]
    there = {named(each) for each in items}
    return (f"ADD {item}",) if all(key in there for key in "abc" if f"`{key}`" in columns) else ()


def drawn_items(dice: random.Random) -> tuple[str, ...]:
    columns = [dice.choice(COLUMNS[key]) for key in "abc" if dice.random() < 0.7]
    there = {named(each) for each in columns}
    indexes = {each.split("`")[1]: each for each in INDEXES if dice.random() < 0.3 and
               all(key in there for key in "abc" if f"`{key}`" in each.split("(", 1)[1])}  # fmt: skip
    return (ID, *columns, KEY, *indexes.values())


@settings(max_examples=examples(150), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 3), st.booleans())
def test_the_target_has_every_value(dice: random.Random, count: int, towards: bool) -> None:
    start = drawn_items(dice)
    world = World(Model(start), [Model(start) for _ in range(count)])
    goal = drawn_items(dice) if towards else None
    for _ in range(18):
        at = dice.randrange(count)
        world.write(dice.randrange(count), dice)
        clauses = drawn_step(dice, world.shards[at].items, goal)
        if clauses:
            world.step(at, clauses, strict=dice.random() < 0.7)


def test_all_orders_reach_the_same_target() -> None:
    """The random steps above do succeed: how often all shard tables reach the goal through joins."""
    met = changed = refused = 0
    for seed in range(100):
        dice = random.Random(seed)
        start, goal = drawn_items(dice), drawn_items(dice)
        world = World(Model(start), [Model(start), Model(start)])
        for _ in range(30):
            at = dice.randrange(2)
            clauses = drawn_step(dice, world.shards[at].items, goal)
            if clauses:
                done = world.step(at, clauses, strict=True)
                changed, refused = changed + done, refused + (not done)
        met += (
            told(world.shards[0].shape)
            == told(world.shards[1].shape)
            == told(world.target.shape)
            != told(shape_of(*start))
        )
    assert met > 30
    assert changed > 200
    assert refused > 60
