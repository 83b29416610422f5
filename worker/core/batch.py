# cython: language_level=3
"""The changes of one target transaction of a lane, compacted by key. Pure.

Because every event arrives exactly once, a batch knows of each key whether it must exist at the
target before the batch (its first event is UPDATE or DELETE) or must not (INSERT). It deletes the
former, inserts the last images plainly, and the counts prove both: no row of one shard evicts a row of
another (I8), and a changed target is noticed.

If the target may lack rows of a table (TablePlan.may_lack_rows), not every event arrives, and the events alone do not
determine what the target holds. One by one they mean: an INSERT writes the row (it replaces a row with the same key
only if no other shard can own the key, TablePlan.own_keys), an UPDATE changes the row if it exists, a DELETE removes
it if it exists, and an UPDATE that changes the key is a DELETE and an INSERT. A batch keeps their combined effect as a
function of whether the target holds the row; worker/target/apply/upserts.py queries that within the transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cython

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.lane_hash import LaneHash, lane_hash
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import ChangeKind, JoinedLiterals, Literals, RowChange
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.core.uncomputed import StagedChange, UncomputedChange


@cython.final
@cython.cclass
class KeyState:
    """One key of the batch. Made once per key of the stream.

    ``existed``: the target held it before. ``image``: the row that must exist afterwards, None for no row. ``plan``:
    of the shard table whose event came last, the key's owner; (``file``, ``pos``): that event's end at the source.
    ``existence_unknown``: it is not known whether the target held the key. ``existed`` then means: ``image`` replaces
    an existing row and has no effect if there is none; not ``existed``: ``image`` is written in any case.
    """

    def __init__(
        self,
        existed: bool,
        plan: TablePlan,
        image: JoinedLiterals | None,
        file: str,
        pos: int,
        existence_unknown: bool = False,
    ) -> None:
        self.existed = existed
        self.existence_unknown = existence_unknown
        self.plan = plan
        self.image = image
        self.file = file
        self.pos = pos

    @property
    def position(self) -> SourcePosition:
        return SourcePosition(self.file, self.pos)


@dataclass(frozen=True, slots=True)
class RowOperation:
    """One change of a table without a key: applied singly and in order; either side may be ()."""

    plan: TablePlan
    before: Literals
    after: Literals
    position: SourcePosition


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Numbers of changes by their kind."""

    inserts: int
    updates: int
    deletes: int

    def plus(self, other: ChangeCounts) -> ChangeCounts:
        return ChangeCounts(self.inserts + other.inserts, self.updates + other.updates, self.deletes + other.deletes)


Keys = dict[JoinedLiterals, KeyState]


@cython.final
@cython.cclass
class Batch:
    """Changes of one lane since its last commit.

    ``file``: the source's binlog file that contains the positions; ``changes``: number of changes added, of them
    ``inserts`` and ``deletes``; ``rows``: number of target rows that they affect; ``size``: bytes of their keys and
    images. ``by_shard``: the keys of each shard table are kept apart, so that the target refuses a collision, not the
    batch. ``staged``: changes that the decoder leaves to the row stage, in order.
    """

    def __init__(self, lane: int, lanes: int, file: str = "", by_shard: bool = False) -> None:
        self.lane = lane
        self.lanes = lanes
        self.by_shard = by_shard
        self.file = file
        self.changes = 0
        self.inserts = 0
        self.deletes = 0
        self.rows = 0
        self.size = 0
        self.keyed: dict[tuple[str, int], Keys] = {}
        self.unkeyed: list[RowOperation] = []
        self.staged: list[Any] = []  # of StagedChange
        self._of_shard: dict[object, Keys] = {}
        self._hashes: dict[int, tuple[TablePlan, LaneHash]] = {}
        # Changes are attributed to a target when the next event is of another table, not one by one.
        self._counts: dict[TargetTable, ChangeCounts] = {}
        self._counted: TablePlan | None = None
        self._counted_changes = 0
        self._counted_inserts = 0
        self._counted_deletes = 0

    @property
    def is_empty(self) -> bool:
        return not self.changes

    def take_staged(self) -> list[StagedChange]:
        """The staged changes since the last call."""
        found, self.staged = self.staged, []
        return found

    def add(self, change: RowChange, pos: int) -> None:
        """Add the part of ``change`` that belongs to this lane; ``pos`` is its event's end at the source.

        Raises COLLISION when two shards own the key within the batch, DIVERGED.
        """
        plan = change.plan
        if not plan.key:
            if self._is_own(plan, ()):
                self.add_unkeyed(plan, change.before, change.after, pos)
            return
        if plan.may_lack_rows:
            self._add_upsert(change, pos)
            return
        kind = change.kind
        before = tuple([change.before[index] for index in plan.key]) if change.before else ()
        after = tuple([change.after[index] for index in plan.key]) if change.after else ()
        if kind is ChangeKind.UPDATE and before == after:
            if self._is_own(plan, after):
                self.replace(plan, b",".join(after), b",".join(change.after), pos)
            return
        # A key change is a DELETE of one key and an INSERT of another, which may belong to other lanes.
        if before and self._is_own(plan, before):
            self.remove(plan, b",".join(before), pos)
        if after and self._is_own(plan, after):
            self.put(plan, b",".join(after), b",".join(change.after), pos)

    def _add_upsert(self, change: RowChange, pos: int) -> None:
        """:meth:`add` for a table with a key whose rows the target may lack."""
        plan = change.plan
        keys = self.keys_of(plan, plan.shard)
        before = tuple([change.before[index] for index in plan.key]) if change.before else ()
        after = tuple([change.after[index] for index in plan.key]) if change.after else ()
        if before == after:
            if self._is_own(plan, after):
                self.upsert_in(keys, plan, b",".join(after), b",".join(change.after), True, pos)
            return
        if before and self._is_own(plan, before):
            self.upsert_in(keys, plan, b",".join(before), None, True, pos)
        if after and self._is_own(plan, after):
            self.upsert_in(keys, plan, b",".join(after), b",".join(change.after), False, pos)

    def add_computed(self, changes: list[UncomputedChange]) -> None:
        """Add the lane's part of changes whose columns are computed now, in order. Raises what :meth:`add` raises.

        A transform's filter makes a view: an update that brings a row into it becomes an INSERT, one that takes a row
        out of it a DELETE.
        """
        change: UncomputedChange
        last: object = None
        keys: dict[bytes, KeyState] = {}
        lacks: cython.bint = False
        image: bytes | None
        for change in changes:
            self.file = change.file
            image = change.image
            if not change.has_before and image is None:
                continue
            plan = change.plan
            if plan is not last:
                last = plan
                lacks = plan.may_lack_rows
                keys = self.keys_of(plan, plan.shard)
            if change.has_before and image is not None and change.before_key == change.after_key:
                if change.owns_after and lacks:
                    self.upsert_in(keys, plan, change.after_key, image, True, change.pos)
                elif change.owns_after:
                    self.replace_in(keys, plan, change.after_key, image, change.pos)
                continue
            if change.has_before and change.owns_before:
                if lacks:
                    self.upsert_in(keys, plan, change.before_key, None, True, change.pos)
                else:
                    self.remove_in(keys, plan, change.before_key, change.pos)
            if image is not None and change.owns_after:
                if lacks:
                    self.upsert_in(keys, plan, change.after_key, image, False, change.pos)
                else:
                    self.put_in(keys, plan, change.after_key, image, change.pos)

    def _is_own(self, plan: TablePlan, key: Literals) -> bool:
        if self.lanes == 1:
            return True
        held = self._hashes.get(plan.shard)
        if held is None or held[0] is not plan:
            held = self._hashes[plan.shard] = (plan, lane_hash(plan))
        return held[1].lane(key, self.lanes) == self.lane

    @cython.cfunc
    def keys_of(self, plan: TablePlan, shard: object) -> dict[bytes, KeyState]:
        """The keys of ``plan``'s target, to which the next changes belong; ``shard``: ``plan.shard``."""
        self._count_for(plan)
        keys: dict[bytes, KeyState] | None = self._of_shard.get(shard)
        if keys is None:
            place = (plan.target_name, plan.shard if self.by_shard else 0)
            keys = self.keyed.setdefault(place, {})
            self._of_shard[shard] = keys
        return keys

    def put(self, plan: TablePlan, key: JoinedLiterals, image: JoinedLiterals, pos: int) -> None:
        """A row was inserted (or its key became this one). Raises COLLISION."""
        self.put_in(self.keys_of(plan, plan.shard), plan, key, image, pos)

    def replace(self, plan: TablePlan, key: JoinedLiterals, image: JoinedLiterals, pos: int) -> None:
        """A row was updated and kept its key. Raises COLLISION, DIVERGED."""
        self.replace_in(self.keys_of(plan, plan.shard), plan, key, image, pos)

    def remove(self, plan: TablePlan, key: JoinedLiterals, pos: int) -> None:
        """A row was deleted (or its key became another). Raises COLLISION, DIVERGED."""
        self.remove_in(self.keys_of(plan, plan.shard), plan, key, pos)

    @cython.cfunc
    def put_in(
        self, keys: dict[bytes, KeyState], plan: TablePlan, key: bytes, image: bytes, pos: cython.longlong
    ) -> cython.int:
        """:meth:`put` to keys found before."""
        state: KeyState | None = keys.get(key)
        self.changes += 1
        self.inserts += 1
        if state is None:
            keys[key] = self._state(False, plan, key, image, pos)
            return 0
        if state.image is not None:
            raise collision(plan, key, SourcePosition(self.file, pos), state.plan)
        self.size += len(image)
        if state.existence_unknown:
            state.existed = False  # the row was removed, if there was one
        state.plan = plan
        state.image = image
        state.file = self.file
        state.pos = pos
        return 0

    @cython.cfunc
    def replace_in(
        self, keys: dict[bytes, KeyState], plan: TablePlan, key: bytes, image: bytes, pos: cython.longlong
    ) -> cython.int:
        """:meth:`replace` of keys found before."""
        state: KeyState | None = keys.get(key)
        self.changes += 1
        if state is None:
            keys[key] = self._state(True, plan, key, image, pos)
            return 0
        held: bytes = self._owned(state, plan, key, pos)
        self.size += len(image) - len(held)
        state.image = image
        state.file = self.file
        state.pos = pos
        return 0

    @cython.cfunc
    def remove_in(self, keys: dict[bytes, KeyState], plan: TablePlan, key: bytes, pos: cython.longlong) -> cython.int:
        """:meth:`remove` from keys found before."""
        state: KeyState | None = keys.get(key)
        self.changes += 1
        self.deletes += 1
        if state is None:
            keys[key] = self._state(True, plan, key, None, pos)
            return 0
        held: bytes = self._owned(state, plan, key, pos)
        self.size -= len(held)
        state.image = None
        state.file = self.file
        state.pos = pos
        return 0

    @cython.cfunc
    def upsert_in(
        self,
        keys: dict[bytes, KeyState],
        plan: TablePlan,
        key: bytes,
        image: bytes | None,
        existing: cython.bint,
        pos: cython.longlong,
    ) -> cython.int:
        """A change of a table whose rows the target may lack, of keys found before. ``image``: None for a deleted row.
        ``existing``: only an existing row is changed; else ``image`` is written. Raises COLLISION."""
        state: KeyState | None = keys.get(key)
        held: bytes | None
        self.changes += 1
        if image is None:
            self.deletes += 1
        elif not existing:
            self.inserts += 1
        if state is None:
            state = keys[key] = self._state(existing, plan, key, image, pos)
            # A key that another shard may own is written by a plain INSERT: an existing row with the key stops it.
            state.existence_unknown = existing or bool(plan.own_keys)
            return 0
        held = state.image
        if held is not None and state.plan is not plan and state.plan.shard != plan.shard:
            raise collision(plan, key, SourcePosition(self.file, pos), state.plan)
        if existing:
            if held is None:
                return 0  # the row was deleted before
        elif held is not None:
            if plan.own_keys:
                state.existence_unknown = True
                state.existed = False
            elif state.existence_unknown and state.existed:
                # An update of a row that may exist: if it does, the new row collides with it.
                state.existence_unknown = False
                state.existed = False
            else:
                raise collision(plan, key, SourcePosition(self.file, pos), state.plan)
        elif state.existence_unknown:
            state.existed = False
        elif plan.own_keys and not state.existed:
            state.existence_unknown = True
        self.size += (0 if image is None else len(image)) - (0 if held is None else len(held))
        if image is None and state.existence_unknown:
            state.existed = True
        state.plan = plan
        state.image = image
        state.file = self.file
        state.pos = pos
        return 0

    @cython.cfunc
    def _state(
        self, existed: cython.bint, plan: TablePlan, key: bytes, image: bytes | None, pos: cython.longlong
    ) -> KeyState:
        """The state of a key that is new to the batch."""
        self.rows += 1
        self.size += len(key)
        if image is not None:
            self.size += len(image)
        # Without the constructor, whose arguments would become Python objects.
        state: KeyState = KeyState.__new__(KeyState)
        state.existed = existed
        state.existence_unknown = False
        state.plan = plan
        state.image = image
        state.file = self.file
        state.pos = pos
        return state

    def add_unkeyed(self, plan: TablePlan, before: Literals, after: Literals, pos: int) -> None:
        """A change of a table without a key."""
        self._count_for(plan)
        self.changes += 1
        if not before:
            self.inserts += 1
        elif not after:
            self.deletes += 1
        self.rows += 1
        self.size += sum(map(len, before)) + sum(map(len, after))
        self.unkeyed.append(RowOperation(plan, before, after, SourcePosition(self.file, pos)))

    @cython.cfunc
    def _owned(self, state: KeyState, plan: TablePlan, key: bytes, pos: cython.longlong) -> bytes:
        """The row that ``plan``'s shard has under the key. Raises COLLISION, DIVERGED."""
        if state.plan is not plan and state.plan.shard != plan.shard:
            raise collision(plan, key, SourcePosition(self.file, pos), state.plan)
        if state.image is None:
            raise diverged(plan, 1, key, SourcePosition(self.file, pos))
        return state.image

    @cython.cfunc
    def _count_for(self, plan: TablePlan | None) -> cython.int:
        """The next changes are of ``plan``'s target: those since the last call were of the one before."""
        if plan is self._counted:
            return 0
        if self._counted is not None and self.changes != self._counted_changes:
            inserts = self.inserts - self._counted_inserts
            deletes = self.deletes - self._counted_deletes
            found = ChangeCounts(inserts, self.changes - self._counted_changes - inserts - deletes, deletes)
            target = self._counted.target
            before = self._counts.get(target)
            self._counts[target] = found if before is None else before.plus(found)
            self._counted_changes = self.changes
            self._counted_inserts = self.inserts
            self._counted_deletes = self.deletes
        self._counted = plan
        return 0

    def counts(self) -> dict[TargetTable, ChangeCounts]:
        """The number of changes by target table."""
        self._count_for(None)
        return self._counts

    def has_rows_of(self, shard: int) -> bool:
        """Whether it may have changes of the shard table, which has a key."""
        return shard in self._of_shard

    def shards(self) -> set[int]:
        """The numbers of the shard tables of which it may have changes."""
        found = {int(shard) for shard in self._of_shard}  # pyright: ignore[reportArgumentType] - a shard's number
        found.update([operation.plan.shard for operation in self.unkeyed])
        return found

    def targets(self) -> Iterator[tuple[str, Keys]]:
        """Target name and its keys, for targets with any; those of one target follow one another."""
        places = sorted(self.keyed) if self.by_shard else self.keyed
        return ((place[0], self.keyed[place]) for place in places if self.keyed[place])


def key_text(plan: TablePlan, key: JoinedLiterals) -> str:
    """A key for a message: "(`id` = 5)", "((`a`, `b`) = (5,'x'))"."""
    names = ", ".join(f"`{plan.columns[index].target_name}`" for index in plan.key)
    value = key.decode("utf-8", "replace")
    return f"({names} = {value})" if len(plan.key) == 1 else f"(({names}) = ({value}))"


def collision(
    plan: TablePlan, key: JoinedLiterals, position: SourcePosition, owner: TablePlan | None
) -> ShardmergeError:
    """COLLISION: ``owner`` is the other shard when it is known."""
    other = ""
    if owner is not None and owner.shard != plan.shard:
        other = f" (it belongs to {owner.source}: {owner.table.schema}.{owner.table.name})"
    return errors.replicate.COLLISION(
        source=plan.source,
        schema=plan.table.schema,
        table=plan.table.name,
        position=position,
        target_schema=plan.target_schema,
        target_table=plan.target_table,
        key=key_text(plan, key),
        other=other,
    )


def diverged(plan: TablePlan, missing: int, key: JoinedLiterals, position: SourcePosition) -> ShardmergeError:
    """DIVERGED: rows that must exist at the target do not."""
    return errors.replicate.DIVERGED(
        source=plan.source,
        schema=plan.table.schema,
        table=plan.table.name,
        position=position,
        missing=missing,
        target_schema=plan.target_schema,
        target_table=plan.target_table,
        key=key_text(plan, key) if plan.key else "(no key)",
    )
