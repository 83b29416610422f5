"""What of a batch is held, and what a key's held changes come to. Pure.

A key is held from the moment the target refuses a change of it: that change and every later one of the same key and
shard table wait, in order, until they are applied together (`quarantine retry`) or given up (`quarantine drop`). All
other keys flow. What is held of a batch is each key's net change, as the batch would have applied it: whether the
target had a row before, and the row to be there afterwards. An update that changes the key is, as in every batch, a
removal of one key and a coming of another: each waits behind its own key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from proto import errors
from worker.plan import ColumnPlan, TablePlan, TargetTable
from worker.position import SourcePosition
from worker.replicate.batch import Keys, KeyState
from worker.replicate.culprits import Group
from worker.replicate.skips import SkippedRow
from worker.rows import Joined
from worker.table import Column, Table, ValueKind

DROPPED = "dropped"
"""In the place of changes that were given up though the source has the row: no later change of the row may touch a row
that another has put there under its key."""


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key of a target table, of the rows of one shard table (by its number). ``key``: its literals, joined."""

    target: TargetTable
    shard: int
    key: Joined

    @property
    def digest(self) -> str:
        """Tells it from all other keys of the subtask, in 64 characters."""
        parts = (self.target.schema.encode(), self.target.table.encode(), b"%d" % self.shard, self.key)
        return hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in parts)).hexdigest()


@dataclass(frozen=True, slots=True)
class HeldChange:
    """One key's net change in one batch. ``columns``, ``key_columns``: the target's names, of ``image`` and of the key.

    ``existed``: the target was to hold the row before; ``image``: the row to be there afterwards, as literals, None for
    no row. ``position``: of the last event in it.
    """

    at: HeldKey
    source_schema: str
    source_table: str
    key_columns: tuple[str, ...]
    columns: tuple[str, ...]
    existed: bool
    image: Joined | None
    position: SourcePosition

    @property
    def operation(self) -> str:
        """insert, update, delete; DROPPED for no change: the row that the source has was given up."""
        if self.image is None:
            return "delete" if self.existed else DROPPED
        return "update" if self.existed else "insert"

    @property
    def key_text(self) -> str:
        """For people, as errors show keys: "(`id` = 5)"."""
        names = ", ".join(f"`{name}`" for name in self.key_columns)
        value = self.at.key.decode("utf-8", "backslashreplace")
        return f"({names} = {value})" if len(self.key_columns) == 1 else f"(({names}) = ({value}))"


def held_key(key: Joined, state: KeyState) -> HeldKey:
    """Whose key it is that a batch has in ``state``."""
    return held_key_of(state.plan, key)


def held_key_of(plan: TablePlan, key: Joined) -> HeldKey:
    """``key``: its literals at the target, joined."""
    return HeldKey(plan.target, plan.shard, key)


def held_change(key: Joined, state: KeyState) -> HeldChange:
    """A key's state in a batch, as a change that can be applied without its plan."""
    plan: TablePlan = state.plan
    names = tuple(item.target_name for item in plan.columns)
    return HeldChange(
        held_key(key, state),
        plan.table.schema,
        plan.table.name,
        tuple(names[index] for index in plan.key),
        names,
        state.existed,
        state.image,
        state.position,
    )


def together_where_apart(groups: Iterable[Group]) -> tuple[Group, ...]:
    """``groups``, those of one target side by side, with the groups of a target in one where no key is in two of them:
    that takes fewer statements."""
    found: list[Group] = []
    for name, same in groupby(groups, key=lambda group: group[0]):
        parts = [keys for _, keys in same]
        if len(parts) == 1:
            found.append((name, parts[0]))
            continue
        union = {key: state for keys in parts for key, state in keys.items()}
        if len(union) == sum(map(len, parts)):
            found.append((name, union))
        else:
            found += ((name, keys) for keys in parts)
    return tuple(found)


def touches(groups: Iterable[Group], held: Container[HeldKey]) -> bool:
    """Whether a change of ``groups`` is of a held key."""
    return any(held_key(key, state) in held for _, keys in groups for key, state in keys.items())


def split(groups: Iterable[Group], held: Container[HeldKey]) -> tuple[tuple[Group, ...], tuple[HeldChange, ...]]:
    """What of ``groups`` is applied, and what waits."""
    rest: list[Group] = []
    waiting: list[HeldChange] = []
    for name, keys in groups:
        left: Keys = {}
        for key, state in keys.items():
            if held_key(key, state) in held:
                waiting.append(held_change(key, state))
            else:
                left[key] = state
        if left:
            rest.append((name, left))
    return tuple(rest), tuple(waiting)


def fold(chain: Sequence[HeldChange]) -> HeldChange:
    """What one key's held changes, in their order, come to. Behind changes that were given up the last image counts,
    which comes new to the target. Raises QUARANTINE_BROKEN when one does not fit the one before it: then a change
    between them is missing."""
    for before, after in pairwise(chain):
        fits = before.operation == DROPPED or after.existed == (before.image is not None)
        if after.at != before.at or not fits:
            raise errors.replicate.QUARANTINE_BROKEN(
                schema=after.source_schema, table=after.source_table, position=after.position, key=after.key_text
            )
    return replace(chain[-1], existed=chain[0].existed)


def given_up(chain: Sequence[HeldChange]) -> HeldChange | None:
    """What has to stay in the place of a key's held changes that are given up; None: nothing, for the target has the
    row, or the source has none."""
    if chain[0].existed or chain[-1].image is None:
        return None
    return replace(chain[-1], existed=False, image=None)


@dataclass(frozen=True, slots=True)
class Absent:
    """Rows that the source has and the target does not, for they were given up or skipped."""

    keys: frozenset[HeldKey] = frozenset()

    def behind(self, skipped: Iterable[SkippedRow]) -> Absent:
        """With these rows passed over, in their order."""
        keys = set(self.keys)
        for row in skipped:
            if row.went:
                keys.discard(HeldKey(row.plan.target, row.plan.shard, row.went))
            if row.came and not row.plan.loose:
                keys.add(HeldKey(row.plan.target, row.plan.shard, row.came))
        return Absent(frozenset(keys))

    def touched(self, groups: Iterable[Group], skipped: Sequence[SkippedRow]) -> dict[HeldKey, KeyState]:
        """What of a batch is about them: by where its events lie among those that are passed over."""
        found: dict[HeldKey, KeyState] = {}
        concerned = self.keys | self.behind(skipped).keys | _left(skipped)
        if not concerned:
            return found
        for _, keys in groups:
            for key, state in keys.items():
                at = held_key(key, state)
                if at in concerned and not state.loose:
                    place = state.position.file_order()
                    before = [row for row in skipped if row.position.file_order() < place]
                    if at in self.behind(before).keys:
                        found[at] = state
        return found


def _left(skipped: Iterable[SkippedRow]) -> frozenset[HeldKey]:
    return frozenset(HeldKey(row.plan.target, row.plan.shard, row.went) for row in skipped if row.went)


def absence(row: SkippedRow) -> HeldChange:
    """What stands for a row that was passed over as it came."""
    return held_change(row.came, KeyState(False, row.plan, None, row.position.file, row.position.pos))


def groups_of(changes: Iterable[HeldChange]) -> tuple[Group, ...]:
    """``changes``, at most one per key, as they are applied: a group per shard table, a target's side by side."""
    plans: dict[tuple[TargetTable, int, tuple[str, ...]], TablePlan] = {}
    groups: dict[tuple[TargetTable, int, tuple[str, ...]], Keys] = {}
    for change in changes:
        place = (change.at.target, change.at.shard, change.columns)
        plan = plans.setdefault(place, plan_of(change))
        state = KeyState(change.existed, plan, change.image, change.position.file, change.position.pos)
        groups.setdefault(place, {})[change.at.key] = state
    return tuple((plans[place].target_name, groups[place]) for place in sorted(groups))


def plan_of(change: HeldChange, source: str = "") -> TablePlan:
    """Enough of a plan to make a change's statements and to name its row."""
    columns = tuple(Column(name, ValueKind.STRING, "", nullable=True) for name in change.columns)
    key = tuple(change.columns.index(name) for name in change.key_columns)
    table = Table(change.source_schema, change.source_table, columns, key, "", (), False, "")
    return TablePlan(
        change.at.shard,
        source,
        table,
        change.at.target.schema,
        change.at.target.table,
        tuple(ColumnPlan(at, column, column.name) for at, column in enumerate(columns)),
        key,
    )
