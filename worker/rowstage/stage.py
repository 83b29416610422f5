"""The row stage: what becomes of decoded rows whose rules the decoder alone cannot do.

Rows come with their literals as the source has them, before mapping; those that rules let pass leave with the literals
and the plan that the target's batch or loader takes. Tables whose rules the decoder does (see drops.py), or that have
none, do not come here, but for those that share their target with one that does: order counts per target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from proto.errors import ShardmergeError
from worker.binlog.values import ColumnCodec
from worker.ddl.tables import TableName
from worker.plan import TablePlan
from worker.replicate.placement import Bucket, crc_seed, lane_of
from worker.rows import ChangeKind, Literals, RowChange
from worker.rowstage.drops import RowDrops, evaluated_here, row_drops
from worker.rowstage.literal import text_of_literal
from worker.rowstage.server import Judge, Unevaluated, failed
from worker.table import Column

Place = Callable[[RowChange], object]
"""Where a change's event ends, for messages."""


def as_decoded(plan: TablePlan) -> TablePlan:
    """The plan by which rows for the stage are decoded: no column is mapped. Filters that need no server stay."""
    columns = tuple(replace(column, mapping=None) for column in plan.columns)
    return replace(plan, columns=columns, staged=True, filters=plan.filters if evaluated_here(plan) else ())


def staged_targets(plans: Iterable[TablePlan]) -> frozenset[str]:
    """The targets whose rows go through the stage."""
    return frozenset(plan.target_name for plan in plans if not evaluated_here(plan))


class TableStage:
    """The rules of one table. Raises the mapping's errors and EXPRESSION_FAILED; one thread at a time."""

    def __init__(self, plan: TablePlan, judge: Judge) -> None:
        self.plan = plan
        self._judge = judge
        self._mapped = [
            (slot, ColumnCodec(plan.table, column.column, slot, -1, column.mapping, plan.source))
            for slot, column in enumerate(plan.columns)
            if column.mapping is not None
        ]
        self._drops: RowDrops | None = row_drops(plan)
        self._slots = tuple(sorted({slot for rule in plan.filters for slot in rule.columns}))
        self._columns: tuple[Column, ...] = tuple(plan.columns[slot].column for slot in self._slots)

    def mapped(self, row: Literals) -> Literals:
        """A row's literals as the target gets them."""
        if not self._mapped or not row:
            return row
        values = list(row)
        for slot, codec in self._mapped:
            values[slot] = codec.of_text(text_of_literal(values[slot]), True)
        return tuple(values)

    def key(self, row: Literals) -> Literals:
        """A row's key as the target gets it."""
        codecs = dict(self._mapped)
        return tuple(
            codecs[slot].of_text(text_of_literal(row[slot]), True) if slot in codecs else row[slot]
            for slot in self.plan.key
        )

    def history(self, found: Sequence[Literals]) -> list[Literals]:
        """The rows of a chunk that pass, mapped: history is inserted."""
        rules = [rule.insert for rule in self.plan.filters if rule.insert]
        if rules and self._drops is not None:
            test = self._drops.inserts
            found = [row for row in found if not test(self._values(row))]
        elif rules:
            answers = self._asked(rules, found, lambda _: "a chunk of its history")
            found = [row for row, said in zip(found, answers, strict=True) if not any(said)]
        return [self.mapped(row) for row in found]

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

    def __init__(self, judge: Judge, bucket: Bucket) -> None:
        self._judge = judge
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
        self._tables[plan.table.schema, plan.table.name] = TableStage(plan, self._judge)
        return as_decoded(plan)

    def settle(
        self, changes: Sequence[RowChange], place: Place, passed_over: Callable[[RowChange], bool] = lambda _: False
    ) -> tuple[list[RowChange], list[tuple[RowChange, TablePlan, ShardmergeError]]]:
        """What is left of ``changes``, in order; those of tables that do not go through the stage stay as they are.

        Only those of the bucket are looked at; others are left out. ``passed_over``: by an operator's word, whatever
        the rules say of them; those of them that cannot be mapped come second, with the reason.
        """
        own: list[RowChange] = []
        unread: list[tuple[RowChange, TablePlan, ShardmergeError]] = []
        asked: dict[TableName, list[RowChange]] = {}
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
            elif self._is_own(table, change):
                own.append(change)
                asked.setdefault(name, []).append(change)
        gone: set[int] = set()
        for name, of_table in asked.items():
            said = self._tables[name].dropped(of_table, place)
            gone.update(id(change) for change, dropped in zip(of_table, said, strict=True) if dropped)
        kept: list[RowChange] = []
        for change in own:
            if not change.plan.staged:
                kept.append(change)
            elif id(change) not in gone:
                kept.append(_mapped(self._tables[change.plan.table.schema, change.plan.table.name], change))
        return kept, unread

    def _is_own(self, table: TableStage, change: RowChange) -> bool:
        plan, bucket = table.plan, self._bucket
        if not plan.key:
            return crc_seed(plan) % bucket.lanes == bucket.lane
        if bucket.lanes == 1:
            return True
        return any(
            lane_of(plan, table.key(image), bucket.lanes) == bucket.lane
            for image in (change.before, change.after)
            if image
        )


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
