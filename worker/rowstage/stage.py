"""The row stage: what becomes of decoded rows whose rules the decoder alone cannot do.

Rows come with their literals as the source has them, before mapping; those that rules let pass leave with the literals
and the plan that the target's batch or loader takes. Tables whose rules the decoder does (see drops.py), or that have
none, do not come here, but for those that share their target with one that does: order counts per target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from proto.errors import ShardmergeError
from worker.binlog.values import ColumnCodec
from worker.ddl.tables import TableName
from worker.plan import TablePlan
from worker.position import SourcePosition
from worker.replicate.placement import Bucket, key_hash
from worker.rows import ChangeKind, Literals, RowChange
from worker.rowstage.drops import RowDrops, evaluated_here, row_drops
from worker.rowstage.literal import text_of_literal
from worker.rowstage.server import Judge, Unevaluated, failed
from worker.rowstage.transformed import TableView, as_read
from worker.table import Column
from worker.transform.client import Asking, asked_nobody

Place = Callable[[RowChange], object]
"""Where a change's event ends, for messages."""


def as_decoded(plan: TablePlan) -> TablePlan:
    """The plan by which rows for the stage are decoded: no column is mapped. Filters that need no server stay."""
    filters = plan.filters if evaluated_here(plan) else ()
    if plan.transform is not None:
        return replace(as_read(plan), filters=filters)
    columns = tuple(replace(column, mapping=None) for column in plan.columns)
    return replace(plan, columns=columns, staged=True, filters=filters)


def needs_stage(plan: TablePlan) -> bool:
    """Whether the rules of the plan are more than the decoder does alone."""
    return plan.transform is not None or not evaluated_here(plan)


def staged_targets(plans: Iterable[TablePlan]) -> frozenset[str]:
    """The targets whose rows go through the stage."""
    return frozenset(plan.target_name for plan in plans if needs_stage(plan))


class TableStage:
    """The rules of one table. Raises the mapping's errors, EXPRESSION_FAILED and TRANSFORM_FAILED; one thread at a
    time."""

    def __init__(self, plan: TablePlan, judge: Judge, asking: Asking = asked_nobody) -> None:
        self.plan = plan
        self._view = TableView(plan, asking) if plan.transform is not None else None
        self._judge = judge
        self._mapped = {
            slot: ColumnCodec(plan.table, column.column, slot, -1, column.mapping, plan.source)
            for slot, column in enumerate(plan.columns)
            if column.mapping is not None and not column.is_computed
        }
        self._hash = key_hash(plan)
        places = range(len(plan.columns)) if self._view is None else self._view.sources
        self._key = tuple((places[slot], self._mapped.get(slot)) for slot in plan.key)
        self._drops: RowDrops | None = row_drops(plan)
        self._slots = tuple(sorted({slot for rule in plan.filters for slot in rule.columns}))
        self._columns: tuple[Column, ...] = tuple(plan.read_columns[slot].column for slot in self._slots)

    def mapped(self, row: Literals) -> Literals:
        """A decoded row's literals as the target gets them; NULL for what a transform computes."""
        return self._mapping(row if self._view is None or not row else self._view.passed(row))

    def images(self, rows: Sequence[Literals], place: Callable[[int], object]) -> list[Literals | None]:
        """Decoded rows as the target gets them; None: a transform's filter leaves the row out. ``place``: of a row."""
        seen = rows if self._view is None else self._view.seen(rows, place)
        return [None if row is None else self._mapping(row) for row in seen]

    def _mapping(self, row: Literals) -> Literals:
        if not self._mapped or not row:
            return row
        values = list(row)
        for slot, codec in self._mapped.items():
            values[slot] = codec.of_text(text_of_literal(values[slot]), True)
        return tuple(values)

    def key(self, row: Literals) -> Literals:
        """A decoded row's key as the target gets it. (No key is computed; a constant's value is its codec's.)"""
        return tuple(
            [
                row[at] if codec is None else codec.of_text(text_of_literal(row[at]) if at >= 0 else None, True)
                for at, codec in self._key
            ]
        )

    def is_of(self, bucket: Bucket, change: RowChange) -> bool:
        """Whether a key of the decoded change is of the bucket."""
        if bucket.lanes == 1:
            return True
        before, after = change.before, change.after
        if before and self._hash.lane(self.key(before), bucket.lanes) == bucket.lane:
            return True
        return bool(after) and self._hash.lane(self.key(after), bucket.lanes) == bucket.lane

    def history(self, found: Sequence[Literals]) -> list[Literals]:
        """The rows of a chunk that pass, mapped: history is inserted."""
        rules = [rule.insert for rule in self.plan.filters if rule.insert]
        if rules and self._drops is not None:
            test = self._drops.inserts
            found = [row for row in found if not test(self._values(row))]
        elif rules:
            answers = self._asked(rules, found, lambda _: "a chunk of its history")
            found = [row for row, said in zip(found, answers, strict=True) if not any(said)]
        seen = self.images(found, lambda _: "a chunk of its history")
        return [row for row in seen if row is not None]

    def results(self, changes: Sequence[RowChange], place: Place) -> list[RowChange | None]:
        """Changes as the target gets them; None: it gets nothing of it.

        A transform's filter makes a view: an update that brings a row into it is an INSERT, one that takes a row out
        of it a DELETE.
        """
        rows: list[Literals] = []
        owners: list[RowChange] = []
        for change in changes:
            sides = [image for image in (change.before, change.after) if image]
            rows += sides
            owners += [change] * len(sides)
        seen = iter(self.images(rows, lambda at: place(owners[at])))
        result: list[RowChange | None] = []
        for change in changes:
            before = next(seen) if change.before else ()
            after = next(seen) if change.after else ()
            result.append(self._result(change, before or (), after or ()))
        return result

    def _result(self, change: RowChange, before: Literals, after: Literals) -> RowChange | None:
        if not before and not after:
            return None
        kind = ChangeKind.INSERT if not before else ChangeKind.DELETE if not after else ChangeKind.UPDATE
        return RowChange(
            change.byte,
            change.event,
            kind,
            self.plan,
            before,
            after,
            change.source_key_before if before else (),
            change.source_key_after if after else (),
        )

    def dropped(self, changes: Sequence[RowChange], place: Place) -> list[bool]:
        """Which changes the server says are passed over. (Others the decoder has left out already.)"""
        result = [False] * len(changes)
        if self._drops is not None or not self.plan.filters:
            return result
        for kind in ChangeKind:
            at = [index for index, change in enumerate(changes) if change.kind is kind]
            for rule in self.plan.filters:
                sides: list[tuple[str, Callable[[RowChange], Literals]]] = []
                if kind is ChangeKind.INSERT:
                    sides = [(rule.insert, _after)]
                elif kind is ChangeKind.DELETE:
                    sides = [(rule.delete, _before)]
                else:
                    sides = [(rule.update_old, _before), (rule.update_new, _after)]
                sides = [side for side in sides if side[0]]
                if not sides or not at:
                    continue
                left = at
                for text, side in sides:
                    asked = left
                    said = self._asked(
                        [text],
                        [side(changes[index]) for index in asked],
                        lambda row, asked=asked: place(changes[asked[row]]),
                    )
                    left = [index for index, (true,) in zip(asked, said, strict=True) if true]
                for index in left:
                    result[index] = True
        return result

    def _values(self, row: Literals) -> Literals:
        return tuple([row[slot] for slot in self._slots])

    def _asked(
        self, expressions: Sequence[str], found: Sequence[Literals], place: Callable[[int], object]
    ) -> list[tuple[bool, ...]]:
        try:
            return self._judge.true_of(
                self.plan.table.name, self._columns, expressions, [self._values(row) for row in found]
            )
        except Unevaluated as why:
            raise failed(self.plan, expressions, place(why.row), why) from why


class RowStage:
    """A lane's stage: of all its tables that go through it."""

    def __init__(self, judge: Judge, bucket: Bucket, asking: Asking = asked_nobody) -> None:
        self._judge = judge
        self._asking = asking
        self._bucket = bucket
        self._targets: frozenset[str] = frozenset()
        self._tables: dict[TableName, TableStage] = {}

    def set_plans(self, plans: Iterable[TablePlan]) -> None:
        """From here on."""
        known = tuple(plans)
        self._targets = staged_targets(known)
        self._tables = {}

    def close(self) -> None:
        self._judge.close()

    def decoded_by(self, plan: TablePlan) -> TablePlan:
        """The plan by which the table's rows are decoded."""
        if plan.target_name not in self._targets:
            return plan
        self._tables[plan.table.schema, plan.table.name] = TableStage(plan, self._judge, self._asking)
        return as_decoded(plan)

    @property
    def gathers(self) -> bool:
        """Whether what comes together is better settled together: transforms are evaluated by another process."""
        return any(table.plan.transform is not None for table in self._tables.values())

    def own(self, changes: Sequence[RowChange]) -> list[RowChange]:
        """Those that are of the bucket; all are of tables that go through the stage."""
        return [
            change
            for change in changes
            if self._tables[change.plan.table.schema, change.plan.table.name].is_of(self._bucket, change)
        ]

    def settle(
        self, changes: Sequence[RowChange], place: Place, passed_over: Callable[[RowChange], bool] = lambda _: False
    ) -> tuple[list[RowChange], list[tuple[RowChange, TablePlan, ShardmergeError]]]:
        """What is left of ``changes``, in order; those of tables that do not go through the stage stay as they are.

        Only those of the bucket are looked at; others are left out. ``passed_over``: by an operator's word, whatever
        the rules say of them; those of them that cannot be mapped come second, with the reason.
        """
        own: list[RowChange] = []
        unread: list[tuple[RowChange, TablePlan, ShardmergeError]] = []
        for change in changes:
            if not change.plan.staged:
                own.append(change)
                continue
            name = (change.plan.table.schema, change.plan.table.name)
            table = self._tables[name]
            if passed_over(change):
                try:
                    own.append(_mapped(table, change))
                except ShardmergeError as error:
                    unread.append((change, table.plan, error))
            elif table.is_of(self._bucket, change):
                own.append(change)
        results = self._results(own, place)
        return [change for change in results if change is not None], unread

    def settled(
        self, changes: Sequence[RowChange], places: Mapping[int, SourcePosition]
    ) -> list[tuple[RowChange, SourcePosition]]:
        """:meth:`settle` of the bucket's changes, each with its place; ``places``: by the identity of those given."""
        results = self._results(changes, lambda change: places[id(change)])
        return [
            (result, places[id(change)]) for change, result in zip(changes, results, strict=True) if result is not None
        ]

    def _results(self, changes: Sequence[RowChange], place: Place) -> list[RowChange | None]:
        """What becomes of each one of the bucket's changes; those that do not go through the stage stay."""
        asked: dict[TableName, list[RowChange]] = {}
        for change in changes:
            if change.plan.staged:
                asked.setdefault((change.plan.table.schema, change.plan.table.name), []).append(change)
        came: dict[int, RowChange | None] = {}
        for name, of_table in asked.items():
            table = self._tables[name]
            dropped = table.dropped(of_table, place)
            left = [change for change, is_dropped in zip(of_table, dropped, strict=True) if not is_dropped]
            came.update((id(change), None) for change in of_table)
            came.update((id(change), result) for change, result in zip(left, table.results(left, place), strict=True))
        return [came.get(id(change), change) for change in changes]


def _mapped(table: TableStage, change: RowChange) -> RowChange:
    return RowChange(
        change.byte,
        change.event,
        change.kind,
        table.plan,
        table.mapped(change.before),
        table.mapped(change.after),
        change.source_key_before,
        change.source_key_after,
    )


def _before(change: RowChange) -> Literals:
    return change.before


def _after(change: RowChange) -> Literals:
    return change.after
