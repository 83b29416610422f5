"""Expression filters that are evaluated here, in the decoder and the chunk reader, row by row. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proto.config.expression import parse
from worker.plan import TablePlan
from worker.rows import ChangeKind
from worker.rowstage.condition import Value, compiled

Test = Callable[[Sequence[bytes]], object]
"""Of a row's literals: a true value when the row is passed over."""

PairTest = Callable[[Sequence[bytes], Sequence[bytes]], object]
"""Of the literals of a row before and behind its change, likewise."""


class RowDrops:
    """Which changes of one table are passed over, by the literals before mapping of its written columns ``slots``."""

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
        """Whether a row's change is passed over: both of a rule's expressions are true."""
        self.looks_before = any(old is not None for old, _ in updates)
        """Whether it asks about the rows before an update."""
        self._concerned = frozenset(
            kind
            for kind, tests in (
                (ChangeKind.INSERT, inserts),
                (ChangeKind.UPDATE, updates),
                (ChangeKind.DELETE, deletes),
            )
            if tests
        )

    def concerns(self, kind: int) -> bool:
        """Whether any change of this kind (ChangeKind) is passed over."""
        return kind in self._concerned


def row_drops(plan: TablePlan) -> RowDrops | None:
    """None where the plan has no filters, or one that is the server's to evaluate (:func:`evaluated_here`)."""
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
            value = compiled(parse(text), columns)
            if value is None:
                return None
            found[text] = value
        if rule.insert:
            inserts.append(found[rule.insert])
        if rule.delete:
            deletes.append(found[rule.delete])
        if rule.update_old or rule.update_new:
            updates.append((found.get(rule.update_old), found.get(rule.update_new)))
    return RowDrops(slots, inserts, updates, deletes)


def evaluated_here(plan: TablePlan) -> bool:
    """Whether every filter of the plan, if it has any, needs no server."""
    return not plan.filters or row_drops(plan) is not None


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
    # Asked for each change of the stream: no step that is not needed.
    if old is None:
        return (lambda before, after: True) if new is None else (lambda before, after: new(after))
    if new is None:
        return lambda before, after: old(before)
    return lambda before, after: old(before) and new(after)
