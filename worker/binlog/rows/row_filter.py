"""Compiles the expression filters that the decoder and the chunk reader evaluate row by row. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardmerge.proto.config.rules.expression import parse
from shardmerge.worker.binlog.rows.filter_expression import Value, compile_expression
from shardmerge.worker.core.row_change import ChangeKind
from shardmerge.worker.core.table_plan import TablePlan

Test = Callable[[Sequence[bytes]], object]
"""Takes a row's literals; returns a true value when the row is filtered out."""

PairTest = Callable[[Sequence[bytes], Sequence[bytes]], object]
"""Takes the literals of a row before and after its change, likewise."""


class RowFilters:
    """The filters of one table's changes, on the literals (before mapping) of its written columns ``slots``."""

    def __init__(
        self,
        slots: tuple[int, ...],
        inserts: Sequence[Value],
        updates: Sequence[tuple[Value | None, Value | None]],
        deletes: Sequence[Value],
    ) -> None:
        self.slots = slots
        self.inserts = _any_of(inserts)
        self.deletes = _any_of(deletes)
        self.updates = _any_pair_of(updates)
        """Whether an update is filtered out: both of a rule's expressions are true."""
        self.reads_before = any(old is not None for old, _ in updates)
        """Whether it needs the rows before an update."""
        self._concerned = frozenset(
            kind
            for kind, tests in (
                (ChangeKind.INSERT, inserts),
                (ChangeKind.UPDATE, updates),
                (ChangeKind.DELETE, deletes),
            )
            if tests
        )

    def applies_to(self, kind: int) -> bool:
        """Whether a change of this kind (ChangeKind) may be filtered out."""
        return kind in self._concerned


def compile_filters(plan: TablePlan) -> RowFilters | None:
    """The plan's filters; None if it has none, or one that the server must evaluate (:func:`is_local`)."""
    if not plan.filters:
        return None
    slots = tuple(sorted({slot for rule in plan.filters for slot in rule.columns}))
    read = plan.read_columns
    columns = {read[slot].column.name.lower(): (at, read[slot].column) for at, slot in enumerate(slots)}
    inserts: list[Value] = []
    updates: list[tuple[Value | None, Value | None]] = []
    deletes: list[Value] = []
    for rule in plan.filters:
        found: dict[str, Value] = {}
        for text in (rule.insert, rule.update_old, rule.update_new, rule.delete):
            if not text:
                continue
            value = compile_expression(parse(text), columns)
            if value is None:
                return None
            found[text] = value
        if rule.insert:
            inserts.append(found[rule.insert])
        if rule.delete:
            deletes.append(found[rule.delete])
        if rule.update_old or rule.update_new:
            updates.append((found.get(rule.update_old), found.get(rule.update_new)))
    return RowFilters(slots, inserts, updates, deletes)


def is_local(plan: TablePlan) -> bool:
    """Whether the worker itself can evaluate every filter of the plan, if it has any."""
    return not plan.filters or compile_filters(plan) is not None


def _any_of(tests: Sequence[Value]) -> Test:
    if len(tests) == 1:
        return tests[0]
    return lambda row: any(test(row) for test in tests)


def _any_pair_of(tests: Sequence[tuple[Value | None, Value | None]]) -> PairTest:
    pairs = [_both(old, new) for old, new in tests]
    if len(pairs) == 1:
        return pairs[0]
    return lambda before, after: any(pair(before, after) for pair in pairs)


def _both(old: Value | None, new: Value | None) -> PairTest:
    # Called for each change of the stream: without any unneeded step.
    if old is None:
        return (lambda before, after: True) if new is None else (lambda before, after: new(after))
    if new is None:
        return lambda before, after: old(before)
    return lambda before, after: old(before) and new(after)
