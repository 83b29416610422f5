"""Decides which changes of a batch are held, and computes the net change of a key's held changes. Pure.

A key is held from the moment when the target refuses a change of it: that change and every later one of the same key
and shard table wait, in order, until they are applied together (`quarantine retry`) or dropped (`quarantine drop`).
Changes of all other keys are applied. From each batch, the net change of a key is held, as the batch would have applied
it: whether the target had a row before, and the row afterwards. An UPDATE that changes the key removes one key and adds
another, as in every batch: each waits for its own key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from shardmerge.proto import errors
from shardmerge.worker.core.batch import Keys, KeyState
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import JoinedLiterals
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, TablePlan, TargetTable
from shardmerge.worker.target.apply.row_bisect import Group
from shardmerge.worker.target.quarantine.skipped_events import SkippedRow

DROPPED = "dropped"
"""Marks a row that the source has but that was dropped here: no later change of this row may touch a row that another
shard table has put under its key."""


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key of a target table, for the rows of one shard table (by its number). ``key``: its literals, joined."""

    target: TargetTable
    shard: int
    key: JoinedLiterals

    @property
    def digest(self) -> str:
        """Identifies the key among all keys of the subtask, in 64 characters."""
        parts = (self.target.schema.encode(), self.target.table.encode(), b"%d" % self.shard, self.key)
        return hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in parts)).hexdigest()


@dataclass(frozen=True, slots=True)
class HeldChange:
    """One key's net change in one batch. ``columns``, ``key_columns``: the target's names, of ``image`` and of the key.

    ``existed``: the target should have had the row before. ``image``: the row afterwards, as literals, None for no row.
    ``position``: of the last event in it.
    """

    at: HeldKey
    source_schema: str
    source_table: str
    key_columns: tuple[str, ...]
    columns: tuple[str, ...]
    existed: bool
    image: JoinedLiterals | None
    position: SourcePosition

    @property
    def operation(self) -> str:
        """insert, update, delete; DROPPED for no change: the source has the row, but it was dropped here."""
        if self.image is None:
            return "delete" if self.existed else DROPPED
        return "update" if self.existed else "insert"

    @property
    def key_text(self) -> str:
        """For people, as errors show keys: "(`id` = 5)"."""
        names = ", ".join(f"`{name}`" for name in self.key_columns)
        value = self.at.key.decode("utf-8", "backslashreplace")
        return f"({names} = {value})" if len(self.key_columns) == 1 else f"(({names}) = ({value}))"


def held_key(key: JoinedLiterals, state: KeyState) -> HeldKey:
    """The held key for a key that a batch has in ``state``."""
    return held_key_of(state.plan, key)


def held_key_of(plan: TablePlan, key: JoinedLiterals) -> HeldKey:
    """``key``: its literals at the target, joined."""
    return HeldKey(plan.target, plan.shard, key)


def held_change(key: JoinedLiterals, state: KeyState) -> HeldChange:
    """A key's state in a batch, as a change that can be applied later without its plan."""
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


def combine_disjoint_groups(groups: Iterable[Group]) -> tuple[Group, ...]:
    """``groups`` (those of one target are adjacent), with a target's groups merged where no key is in two of them: this
    needs fewer statements."""
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


def touches_held(groups: Iterable[Group], held: Container[HeldKey]) -> bool:
    """Whether ``groups`` have a change of a held key."""
    return any(held_key(key, state) in held for _, keys in groups for key, state in keys.items())


def split_held(groups: Iterable[Group], held: Container[HeldKey]) -> tuple[tuple[Group, ...], tuple[HeldChange, ...]]:
    """Split ``groups`` into the changes to apply and the changes to hold."""
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


def net_change(chain: Sequence[HeldChange]) -> HeldChange:
    """The net change of one key's held changes, in their order. After dropped changes the last image counts, and the
    row is new at the target. Raises QUARANTINE_BROKEN when a change does not fit the one before it: then a change
    between them is missing."""
    for before, after in pairwise(chain):
        fits = before.operation == DROPPED or after.existed == (before.image is not None)
        if after.at != before.at or not fits:
            raise errors.replicate.QUARANTINE_BROKEN(
                schema=after.source_schema, table=after.source_table, position=after.position, key=after.key_text
            )
    return replace(chain[-1], existed=chain[0].existed)


def drop_marker(chain: Sequence[HeldChange]) -> HeldChange | None:
    """The marker that replaces a key's held changes when they are dropped; None: no marker is needed, because the
    target has the row or the source has none."""
    if chain[0].existed or chain[-1].image is None:
        return None
    return replace(chain[-1], existed=False, image=None)


@dataclass(frozen=True, slots=True)
class AbsentRows:
    """Rows that the source has and the target lacks, because they were dropped or skipped."""

    keys: frozenset[HeldKey] = frozenset()

    def after_skips(self, skipped: Iterable[SkippedRow]) -> AbsentRows:
        """The absent rows after ``skipped`` were skipped, in their order."""
        keys = set(self.keys)
        for row in skipped:
            if row.removed_key:
                keys.discard(HeldKey(row.plan.target, row.plan.shard, row.removed_key))
            if row.added_key and not row.plan.may_lack_rows:
                keys.add(HeldKey(row.plan.target, row.plan.shard, row.added_key))
        return AbsentRows(frozenset(keys))

    def touched(self, groups: Iterable[Group], skipped: Sequence[SkippedRow]) -> dict[HeldKey, KeyState]:
        """The keys of a batch that are absent rows, by the positions of its events relative to the skipped ones."""
        found: dict[HeldKey, KeyState] = {}
        concerned = self.keys | self.after_skips(skipped).keys | _removed_keys(skipped)
        if not concerned:
            return found
        for _, keys in groups:
            for key, state in keys.items():
                at = held_key(key, state)
                if at in concerned and not state.existence_unknown:
                    place = state.position.file_order()
                    before = [row for row in skipped if row.position.file_order() < place]
                    if at in self.after_skips(before).keys:
                        found[at] = state
        return found


def _removed_keys(skipped: Iterable[SkippedRow]) -> frozenset[HeldKey]:
    return frozenset(HeldKey(row.plan.target, row.plan.shard, row.removed_key) for row in skipped if row.removed_key)


def skip_marker(row: SkippedRow) -> HeldChange:
    """The marker for a skipped row that the source has and the target lacks."""
    return held_change(row.added_key, KeyState(False, row.plan, None, row.position.file, row.position.pos))


def group_by_target(changes: Iterable[HeldChange]) -> tuple[Group, ...]:
    """``changes``, at most one per key, as groups to apply: one per shard table, a target's groups adjacent."""
    plans: dict[tuple[TargetTable, int, tuple[str, ...]], TablePlan] = {}
    groups: dict[tuple[TargetTable, int, tuple[str, ...]], Keys] = {}
    for change in changes:
        place = (change.at.target, change.at.shard, change.columns)
        plan = plans.setdefault(place, minimal_plan(change))
        state = KeyState(change.existed, plan, change.image, change.position.file, change.position.pos)
        groups.setdefault(place, {})[change.at.key] = state
    return tuple((plans[place].target_name, groups[place]) for place in sorted(groups))


def minimal_plan(change: HeldChange, source: str = "") -> TablePlan:
    """A plan with just enough to build the statements of a change and to name its row in messages."""
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
