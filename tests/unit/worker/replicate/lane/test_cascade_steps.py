"""Tests the derivation of cascades against a model of a storage engine with foreign keys."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.cascades import CascadeKey, CascadeKeys
from shardmerge.worker.core.lane_hash import ONLY_LANE
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.row_change import ChangeKind, Literals, RowChange
from shardmerge.worker.core.sql.foreign_keys import ForeignKeyAction
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, PartitionId, RowFilter, TablePlan
from shardmerge.worker.replicate.lane.cascade_steps import CascadeStep, CascadeSteps
from shardmerge.worker.rules.stage.row_stage import as_decoded
from shardmerge.worker.target.apply.cascades import Cascades, ChildRows, ParentChange

CASCADE, SET_NULL, NONE = ForeignKeyAction.CASCADE, ForeignKeyAction.SET_NULL, ForeignKeyAction.NONE
P, C, G, N, S = range(5)
_COLUMNS = {P: ("id",), C: ("id", "p"), G: ("id", "c"), N: ("id", "p", "s"), S: ("id", "up")}
KEYS = (
    CascadeKey(P, C, "c", ("p",), ("id",), CASCADE, CASCADE),
    CascadeKey(C, G, "g", ("c",), ("id",), CASCADE, CASCADE),
    CascadeKey(P, N, "n", ("p",), ("id",), SET_NULL, CASCADE),
    CascadeKey(S, N, "m", ("s",), ("id",), CASCADE, NONE),
    CascadeKey(S, S, "s", ("up",), ("id",), CASCADE, NONE),
)
Row = tuple[int | None, ...]


def _plan(number: int) -> TablePlan:
    columns = tuple(Column(name, ValueKind.INTEGER, "bigint", nullable=name != "id") for name in _COLUMNS[number])
    table = Table("s", f"t{number}", columns, (0,), "PRIMARY", (("id",),), False, "InnoDB")
    written = tuple(
        ColumnPlan(at, column, column.name, PartitionId(0, 44) if at == 0 else None)
        for at, column in enumerate(columns)
    )
    return TablePlan(number, "source", table, "all", f"t{number}", written, (0,), own_keys=True)


PLANS = tuple(map(_plan, _COLUMNS))


def _event(flags: int = 0, code: int = 31) -> bytes:
    """Return the begin of a rows event: header, table id, flags."""
    return struct.pack("<IBIIIH", 0, code, 1, 0, 0, 0) + bytes(6) + struct.pack("<H", flags)


class Engine:
    """The source: it follows foreign keys row by row, and logs only the rows that statements name."""

    def __init__(self) -> None:
        self.tables: dict[int, dict[int, Row]] = {number: {} for number in _COLUMNS}
        self.logged: list[tuple[int, Row | None, Row | None, int]] = []

    def insert(self, table: int, row: Row) -> None:
        assert row[0] is not None
        if row[0] not in self.tables[table]:
            self.tables[table][row[0]] = row
            self.logged.append((table, None, row, 0))

    def delete(self, table: int, key: int, flags: int) -> None:
        row = self.tables[table].pop(key, None)
        if row is None:
            return
        self.logged.append((table, row, None, flags))
        if not flags:
            self._deleted(table, row)

    def move(self, table: int, key: int, to: int, flags: int) -> None:
        """Change a row's key, unless the engine refuses it."""
        row = self.tables[table].get(key)
        if row is None or to in self.tables[table] or table == S:
            return
        if table == C and not flags and any(each[1] == key for each in self.tables[G].values()) and to == key:
            return
        del self.tables[table][key]
        self.tables[table][to] = (to, *row[1:])
        self.logged.append((table, row, (to, *row[1:]), flags))
        if not flags:
            self._moved(table, key, to)

    def point(self, table: int, key: int, column: int, to: int | None) -> None:
        row = self.tables[table].get(key)
        if row is None or column >= len(row):
            return
        changed = (*row[:column], to, *row[column + 1 :])
        self.tables[table][key] = changed
        self.logged.append((table, row, changed, 0))

    def _referring(self, table: int, key: int | None) -> list[tuple[CascadeKey, int, Row]]:
        return [
            (each, at, row)
            for each in KEYS
            if each.parent == table
            for at in (_COLUMNS[each.child].index(each.columns[0]),)
            for row in list(self.tables[each.child].values())
            if row[at] == key
        ]

    def _deleted(self, table: int, row: Row) -> None:
        for key, at, child in self._referring(table, row[0]):
            assert child[0] is not None
            if key.on_delete is SET_NULL:
                current = self.tables[key.child].get(child[0])
                if current is not None:
                    self.tables[key.child][child[0]] = (*current[:at], None, *current[at + 1 :])
            elif self.tables[key.child].pop(child[0], None) is not None:
                self._deleted(key.child, child)

    def _moved(self, table: int, before: int, after: int) -> None:
        for key, at, child in self._referring(table, before):
            assert child[0] is not None
            if key.on_update:
                self.tables[key.child][child[0]] = (*child[:at], after, *child[at + 1 :])


class Memory:
    """The target; see :class:`shardmerge.worker.target.apply.cascades.TargetRows`."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, Literals]] = {plan.target_name: {} for plan in PLANS}

    def commit(self, steps: Sequence[CascadeStep], last: Batch) -> None:
        for step in steps:
            self.write(step.batch)
            step.cascades.apply(self, step.changes)
        self.write(last)

    def write(self, batch: Batch) -> None:
        for name, keys in batch.targets():
            for key, state in keys.items():
                assert (key in self.tables[name]) == state.existed
            for key in keys:
                self.tables[name].pop(key, None)
            for key, state in keys.items():
                if state.image is not None:
                    self.tables[name][key] = tuple(state.image.split(b","))

    def values(self, of: ChildRows, columns: tuple[str, ...]) -> list[Literals]:
        at = [_COLUMNS[of.plan.shard].index(name) for name in columns]
        return list(dict.fromkeys(tuple(row[place] for place in at) for row in self._found(of).values()))

    def delete(self, of: ChildRows) -> None:
        for key in self._found(of):
            del self.tables[of.plan.target_name][key]

    def update(self, of: ChildRows, values: Literals) -> None:
        at = [_COLUMNS[of.plan.shard].index(name) for name in of.columns]
        for key, row in self._found(of).items():
            given = dict(zip(at, values, strict=True))
            self.tables[of.plan.target_name][key] = tuple(given.get(place, value) for place, value in enumerate(row))

    def _found(self, of: ChildRows) -> dict[bytes, Literals]:
        at = [_COLUMNS[of.plan.shard].index(name) for name in of.columns]
        rows = self.tables[of.plan.target_name]
        return {key: row for key, row in rows.items() if tuple(row[place] for place in at) in of.values}


def _not_staged(plan: TablePlan) -> TablePlan:
    return plan


def _literals(row: Row | None) -> Literals:
    return () if row is None else tuple(b"NULL" if value is None else str(value).encode() for value in row)


def test_a_parent_that_moves_leaves_null_where_its_key_demands_that() -> None:
    key = CascadeKey(P, N, "n", ("p",), ("id",), NONE, SET_NULL)
    target = Memory()
    rows = target.tables[PLANS[N].target_name]
    rows |= {b"5": (b"5", b"1", b"8"), b"6": (b"6", b"3", b"8")}
    Cascades(CascadeKeys((key,)), {N: PLANS[N]}).apply(target, [ParentChange(key, ((b"1",),), (b"2",))])
    assert rows == {b"5": (b"5", b"NULL", b"8"), b"6": (b"6", b"3", b"8")}


_ID = st.integers(1, 3)
_TABLE = st.sampled_from(list(_COLUMNS))
_REFERS = st.one_of(st.none(), _ID)
_FLAGS = st.sampled_from([0, 0, 0, 0x2])
_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), _TABLE, _ID, _REFERS, _REFERS),
        st.tuples(st.just("insert"), _TABLE, _ID, _REFERS, _REFERS),
        st.tuples(st.just("delete"), _TABLE, _ID, _FLAGS),
        st.tuples(st.just("move"), _TABLE, _ID, _ID, _FLAGS),
        st.tuples(st.just("point"), _TABLE, _ID, st.integers(1, 2), _REFERS),
        st.just(("commit",)),
    ),
    max_size=60,
)


_ALL = tuple((table, key) for table in _COLUMNS for key in (1, 2, 3))


_EACH_TO_ITSELF = [(key, key) for _, key in _ALL]


@settings(max_examples=150, deadline=None)
@example([(2, 2)] * len(_ALL), [("delete", P, 1, 0), ("point", C, 2, 1, 1)])  # a row refers to it after its deletion
@example(_EACH_TO_ITSELF, [("delete", P, 1, 0)])  # three levels
@example(_EACH_TO_ITSELF, [("move", P, 1, 4, 0), ("move", P, 2, 1, 0), ("delete", P, 1, 0)])
@example([(None if key == 1 else key - 1,) * 2 for _, key in _ALL], [("delete", S, 1, 0), ("insert", S, 2, 3, 3)])
@example(_EACH_TO_ITSELF, [("delete", P, 1, 2), ("insert", P, 1, None, None), ("delete", P, 1, 0)])
@given(st.lists(st.tuples(_REFERS, _REFERS), min_size=len(_ALL), max_size=len(_ALL)), _CHANGES)
def test_the_target_follows_the_engine(
    refers: list[tuple[int | None, int | None]], changes: list[tuple[object, ...]]
) -> None:
    engine, target = Engine(), Memory()
    steps = CascadeSteps(KEYS, PLANS, ONLY_LANE, None)
    plans = [steps.prepared(plan, _not_staged) for plan in PLANS]
    batch = Batch(0, 1)

    def renew() -> Batch:
        return Batch(0, 1)

    begin = [("insert", *at, *refs) for at, refs in zip(_ALL, refers, strict=True)]
    for change in [*begin, ("commit",), *changes]:
        match change:
            case ("insert", int(table), int(key), first, other):
                engine.insert(table, (key, first, other)[: len(_COLUMNS[table])])  # pyright: ignore[reportArgumentType]
            case ("delete", int(table), int(key), int(flags)):
                engine.delete(table, key, flags)
            case ("move", int(table), int(key), int(to), int(flags)):
                engine.move(table, key, to, flags)
            case ("point", int(table), int(key), int(column), to):
                engine.point(table, key, column, to)  # pyright: ignore[reportArgumentType]
            case _:
                found, batch = steps.take(batch, renew)
                target.commit(found, batch)
                batch = renew()
        for table, before, after, flags in engine.logged:
            kind = ChangeKind.INSERT if before is None else ChangeKind.DELETE if after is None else ChangeKind.UPDATE
            row = RowChange(0, 0, kind, plans[table], _literals(before), _literals(after))
            batch = steps.add(row, _event(flags), RelayOffset(0, 0), batch, renew)
            batch.add(row, 0)
        engine.logged.clear()
    found, batch = steps.take(batch, renew)
    target.commit(found, batch)
    for plan in PLANS:
        wanted = sorted(_literals(row) for row in engine.tables[plan.shard].values())
        assert sorted(target.tables[plan.target_name].values()) == wanted


def test_a_change_of_a_parent_reaches_tables_without_an_event_in_the_stream() -> None:
    """A lane that starts after the children's last events has decoded none of them."""
    target = Memory()
    target.tables["`all`.`t1`"] = {b"7": (b"7", b"5"), b"8": (b"8", b"6")}
    target.tables["`all`.`t2`"] = {b"9": (b"9", b"7")}
    steps, batch = CascadeSteps(KEYS, PLANS, ONLY_LANE, None), Batch(0, 1)
    parent = steps.prepared(PLANS[P], _not_staged)
    target.tables[parent.target_name] = {b"5": (b"5",)}
    deletion = RowChange(0, 0, ChangeKind.DELETE, parent, (b"5",), ())
    steps.add(deletion, _event(), RelayOffset(0, 0), batch, lambda: Batch(0, 1)).add(deletion, 0)
    target.commit(*steps.take(batch, lambda: Batch(0, 1)))
    assert target.tables["`all`.`t1`"] == {b"8": (b"8", b"6")}
    assert target.tables["`all`.`t2`"] == {}


def test_a_table_that_has_left_the_subtask_is_not_changed() -> None:
    steps, batch = CascadeSteps(KEYS, PLANS, ONLY_LANE, None), Batch(0, 1)
    steps.use([plan for plan in PLANS if plan.shard != C])
    target = Memory()
    target.tables["`all`.`t0`"], target.tables["`all`.`t1`"] = {b"5": (b"5",)}, {b"7": (b"7", b"5")}
    parent = steps.prepared(PLANS[P], _not_staged)
    deletion = RowChange(0, 0, ChangeKind.DELETE, parent, (b"5",), ())
    steps.add(deletion, _event(), RelayOffset(0, 0), batch, lambda: Batch(0, 1)).add(deletion, 0)
    target.commit(*steps.take(batch, lambda: Batch(0, 1)))
    assert target.tables["`all`.`t0`"] == {}
    assert target.tables["`all`.`t1`"] == {b"7": (b"7", b"5")}


def test_rows_of_a_table_with_keys_are_mapped_when_another_table_of_the_target_has_a_filter() -> None:
    """The row stage, which maps the rows that it gets, does not get the changes that are made in order."""
    rule = RowFilter("odd", (1,), insert="MD5(p) = 1")  # only the server can evaluate it
    filtered = replace(PLANS[C], shard=7, table=replace(PLANS[C].table, name="t7"), filters=(rule,))
    steps = CascadeSteps(KEYS, (*PLANS, filtered), ONLY_LANE, None)
    made = steps.prepared(PLANS[C], as_decoded)
    assert steps.orders(made)
    assert [column.mapping for column in made.columns] == [column.mapping for column in PLANS[C].columns]
    other = steps.prepared(filtered, as_decoded)
    assert not steps.orders(other)  # its filter would not apply
    assert other.lane_group == made.lane_group
