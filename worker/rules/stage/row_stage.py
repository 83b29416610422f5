"""The row stage: applies the rules of decoded rows that the decoder alone cannot apply.

Rows enter with their literals at the source, before mapping; rows that the rules keep leave with the literals
and the plan for the target's batch or loader. Tables whose rules the decoder applies (see
worker/binlog/rows/row_filter.py), or that have none, do not use the stage, unless another table of the same target
does: order matters per target.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.rows.column_codec import ColumnCodec
from shardmerge.worker.binlog.rows.literal_text import text_of_literal
from shardmerge.worker.binlog.rows.row_filter import RowFilters, compile_filters, is_local
from shardmerge.worker.binlog.rows.row_literals import RowWriter
from shardmerge.worker.binlog.rows.uncomputed.open_columns import changes_form
from shardmerge.worker.binlog.rows.uncomputed.text_rows import RawRow, UncomputedTexts
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.lane_hash import Bucket, lane_hash
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import ChangeKind, JoinedLiterals, Literals, RowChange
from shardmerge.worker.core.table import Column
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.core.uncomputed import StagedChange, UncomputedChange, UncomputedRow, by_plan
from shardmerge.worker.rules.stage.server_filter import EvaluationFailed, ServerFilter, check_evaluable, failed
from shardmerge.worker.rules.stage.transformed_rows import TableView, as_read
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.rules.transform.client import Evaluate, no_transforms

_EVALUATED_ROWS = 8192
_EVALUATED_BYTES = 4 << 20
"""History is evaluated in pieces of about this size: each evaluation takes a millisecond, however few rows it has."""

Place = Callable[[RowChange], object]
"""Returns the end of a change's event, for messages."""


def as_decoded(plan: TablePlan) -> TablePlan:
    """The plan by which rows for the stage are decoded: no column is mapped, and texts are in the source's character
    sets. It keeps filters that need no server."""
    filters = plan.filters if is_local(plan) else ()
    if plan.transform is not None:
        return replace(as_read(plan), filters=filters)
    # A column from names has no place in the row that is read.
    columns = tuple(column if column.is_constant else replace(column, mapping=None) for column in plan.columns)
    return replace(plan, columns=columns, staged=True, filters=filters, text_as_utf8=False)


def needs_stage(plan: TablePlan) -> bool:
    """Whether the plan has rules that the decoder alone cannot apply."""
    return plan.transform is not None or not is_local(plan)


def staged_targets(plans: Iterable[TablePlan]) -> frozenset[str]:
    """The targets whose rows go through the stage."""
    return frozenset(plan.target_name for plan in plans if needs_stage(plan))


def is_completed(plan: TablePlan) -> bool:
    """Whether rows of the table can be written for the target before its transform computes the columns that it adds:
    no other rule needs the row as it was read."""
    return plan.transform is not None and bool(plan.key) and not plan.filters


class TableStage:
    """The rules of one table. Raises the mapping's errors, EXPRESSION_FAILED and TRANSFORM_FAILED; one thread at a
    time."""

    def __init__(self, plan: TablePlan, server_filter: ServerFilter, evaluator: Evaluate = no_transforms) -> None:
        self.plan = plan
        self._view = TableView(plan, evaluator) if plan.transform is not None else None
        self._server_filter = server_filter
        self._mapped = {
            slot: ColumnCodec(
                plan.table, column.column, slot, -1, column.mapping, plan.source, plan.text_as_utf8, slot in plan.key
            )
            for slot, column in enumerate(plan.columns)
            if not column.is_computed and changes_form(plan, column)
        }
        self._hash = lane_hash(plan)
        places = range(len(plan.columns)) if self._view is None else self._view.sources
        self._key = tuple((places[slot], self._mapped.get(slot)) for slot in plan.key)
        self._local_filters: RowFilters | None = compile_filters(plan)
        self._slots = tuple(sorted({slot for rule in plan.filters for slot in rule.columns}))
        self._columns: tuple[Column, ...] = tuple(plan.read_columns[slot].column for slot in self._slots)

    def mapped(self, row: Literals) -> Literals:
        """A decoded row's literals for the target; NULL for computed columns."""
        return self._mapping(row if self._view is None or not row else self._view.pass_through(row))

    def images(self, rows: Sequence[Literals], place: Callable[[int], object]) -> list[Literals | None]:
        """Decoded rows for the target; None: a transform's filter removes the row. ``place``: of a row."""
        seen = rows if self._view is None else self._view.transformed(rows, place)
        return [None if row is None else self._mapping(row) for row in seen]

    def _mapping(self, row: Literals) -> Literals:
        if not self._mapped or not row:
            return row
        values = list(row)
        for slot, codec in self._mapped.items():
            values[slot] = codec.of_text(text_of_literal(values[slot]), True)
        return tuple(values)

    def key(self, row: Literals) -> Literals:
        """A decoded row's key at the target. (No key is computed; the value of a constant is in its codec.)"""
        return tuple(
            [
                row[at] if codec is None else codec.of_text(text_of_literal(row[at]) if at >= 0 else None, True)
                for at, codec in self._key
            ]
        )

    def is_of(self, bucket: Bucket, change: RowChange) -> bool:
        """Whether a key of the decoded change belongs to the bucket."""
        if bucket.lanes == 1:
            return True
        before, after = change.before, change.after
        if before and self._hash.lane(self.key(before), bucket.lanes) == bucket.lane:
            return True
        return bool(after) and self._hash.lane(self.key(after), bucket.lanes) == bucket.lane

    def history(self, found: Sequence[Literals]) -> list[Literals]:
        """The rows of a chunk that the rules keep, mapped. The rules for INSERT apply: a chunk's rows are inserted."""
        rules = [rule.insert for rule in self.plan.filters if rule.insert]
        if rules and self._local_filters is not None:
            test = self._local_filters.inserts
            found = [row for row in found if not test(self._values(row))]
        elif rules:
            answers = self._evaluate(rules, found, lambda _: "a chunk of its history")
            found = [row for row, matches in zip(found, answers, strict=True) if not any(matches)]
        seen = self.images(found, lambda _: "a chunk of its history")
        return [row for row in seen if row is not None]

    def joined_history(self, batches: Iterable[Sequence[RawRow]]) -> Iterator[list[JoinedLiterals]]:
        """The rows of a chunk that the rules keep, mapped, as written in VALUES. ``batches``: of rows, with the values
        of the columns that are read as the server sends them."""
        read = as_decoded(self.plan)
        if self._view is None or not is_completed(self.plan):
            literals = RowWriter(read, self.plan.source).literals
            for batch in batches:
                yield [b",".join(row) for row in self.history([literals(values) for values in batch])]
            return
        texts = UncomputedTexts(read, self.plan)
        rows: list[UncomputedRow] = []
        size = 0
        for batch in batches:
            more = texts.rows(batch)
            rows += more
            size += sum([row.size for row in more])
            if len(rows) >= _EVALUATED_ROWS or size >= _EVALUATED_BYTES:
                yield self._view.completed(rows, "a chunk of its history")
                rows, size = [], 0
        if rows:
            yield self._view.completed(rows, "a chunk of its history")

    def complete(self, changes: list[UncomputedChange]) -> None:
        """Set the results of the changes."""
        assert self._view is not None  # noqa: S101 - for the type checker: only tables with a transform have them
        self._view.complete(changes)

    def results(self, changes: Sequence[RowChange], place: Place) -> list[RowChange | None]:
        """Changes for the target; None: the change is removed.

        A transform's filter makes a view: an update that brings a row into it becomes an INSERT, one that moves a row
        out of it a DELETE.
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
        """For each change, whether the server's evaluation filters it out. (The decoder has removed the others.)"""
        result = [False] * len(changes)
        if self._local_filters is not None or not self.plan.filters:
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
                    tested = left
                    answers = self._evaluate(
                        [text],
                        [side(changes[index]) for index in tested],
                        lambda row, tested=tested: place(changes[tested[row]]),
                    )
                    left = [index for index, (true,) in zip(tested, answers, strict=True) if true]
                for index in left:
                    result[index] = True
        return result

    def _values(self, row: Literals) -> Literals:
        return tuple([row[slot] for slot in self._slots])

    def _evaluate(
        self, expressions: Sequence[str], found: Sequence[Literals], place: Callable[[int], object]
    ) -> list[tuple[bool, ...]]:
        try:
            if found:
                check_evaluable(self.plan, self._columns)
            return self._server_filter.true_of(
                self.plan.table.name, self._columns, expressions, [self._values(row) for row in found]
            )
        except EvaluationFailed as why:
            raise failed(self.plan, expressions, place(why.row), why) from why


class RowStage:
    """The stage of one lane, for all its tables that need it."""

    def __init__(self, server_filter: ServerFilter, bucket: Bucket, evaluator: Evaluate = no_transforms) -> None:
        self._server_filter = server_filter
        self._evaluator = evaluator
        self._bucket = bucket
        self._targets: frozenset[str] = frozenset()
        self._tables: dict[TableName, TableStage] = {}

    def set_plans(self, plans: Iterable[TablePlan]) -> None:
        """Use these plans from here on."""
        known = tuple(plans)
        self._targets = staged_targets(known)
        self._tables = {}

    def change_plans(self, plans: Iterable[TablePlan], names: Collection[TableName]) -> bool:
        """Use these plans from here on; those of tables other than ``names`` are as before. False: nothing was done,
        because :meth:`decoded_by` answers differently for other tables too."""
        if staged_targets(plans) != self._targets:
            return False
        for name in names:
            self._tables.pop(name, None)
        return True

    def close(self) -> None:
        self._server_filter.close()

    def decoded_by(self, plan: TablePlan) -> TablePlan:
        """The plan by which the table's rows are decoded."""
        if plan.target_name not in self._targets:
            return plan
        self._tables[plan.table.schema, plan.table.name] = TableStage(plan, self._server_filter, self._evaluator)
        read = as_decoded(plan)
        return replace(read, completed_by=plan) if is_completed(plan) else read

    @property
    def batches(self) -> bool:
        """Whether it is faster to evaluate several changes together: another process evaluates transforms."""
        return any(table.plan.transform is not None for table in self._tables.values())

    def for_lane(self, changes: Sequence[StagedChange]) -> list[StagedChange]:
        """The changes that belong to the bucket; all are of tables that use the stage."""
        return [
            change
            for change in changes
            if isinstance(change, UncomputedChange)
            or self._tables[change.plan.table.schema, change.plan.table.name].is_of(self._bucket, change)
        ]

    def evaluate(
        self, changes: Sequence[RowChange], place: Place, skipped: Callable[[RowChange], bool] = lambda _: False
    ) -> tuple[list[RowChange], list[tuple[RowChange, TablePlan, ShardmergeError]]]:
        """Apply the rules to ``changes``; returns the remaining ones in order. Changes of tables that do not use the
        stage are returned unchanged.

        Changes that do not belong to the bucket are removed. ``skipped``: an operator skips the change, so that the
        rules do not apply; skipped changes that cannot be mapped are returned second, with the reason.
        """
        own: list[RowChange] = []
        unread: list[tuple[RowChange, TablePlan, ShardmergeError]] = []
        for change in changes:
            if not change.plan.staged:
                own.append(change)
                continue
            name = (change.plan.table.schema, change.plan.table.name)
            table = self._tables[name]
            if skipped(change):
                try:
                    own.append(_mapped(table, change))
                except ShardmergeError as error:
                    unread.append((change, table.plan, error))
            elif table.is_of(self._bucket, change):
                own.append(change)
        results = self._results(own, place)
        return [change for change in results if change is not None], unread

    def add_pending(self, changes: Sequence[StagedChange], places: Mapping[int, SourcePosition], batch: Batch) -> None:
        """Evaluate the bucket's changes, and add the results to ``batch``, in order. ``places``: of row changes, by the
        ``id`` of each. Raises what the batch raises too."""
        uncomputed = [change for change in changes if isinstance(change, UncomputedChange)]
        for group in by_plan(uncomputed):
            table = group[0].plan.table
            self._tables[table.schema, table.name].complete(group)
        if len(uncomputed) == len(changes):
            batch.add_computed(uncomputed)
            return
        rows = [change for change in changes if isinstance(change, RowChange)]
        results = iter(self._results(rows, lambda change: places[id(change)]))
        for change in changes:
            if isinstance(change, UncomputedChange):
                batch.add_computed([change])
                continue
            result = next(results)
            if result is not None:
                place = places[id(change)]
                batch.file = place.file
                batch.add(result, place.pos)

    def _results(self, changes: Sequence[RowChange], place: Place) -> list[RowChange | None]:
        """The result of each of the bucket's changes; changes that do not use the stage stay unchanged."""
        by_table: dict[TableName, list[RowChange]] = {}
        for change in changes:
            if change.plan.staged:
                by_table.setdefault((change.plan.table.schema, change.plan.table.name), []).append(change)
        results: dict[int, RowChange | None] = {}
        for name, of_table in by_table.items():
            table = self._tables[name]
            dropped = table.dropped(of_table, place)
            left = [change for change, is_dropped in zip(of_table, dropped, strict=True) if not is_dropped]
            results.update((id(change), None) for change in of_table)
            results.update(
                (id(change), result) for change, result in zip(left, table.results(left, place), strict=True)
            )
        return [results.get(id(change), change) for change in changes]


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
