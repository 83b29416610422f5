"""What one target transaction of a lane will do: changes compacted by key. Pure.

Because every event arrives exactly once, a batch knows of each key whether it must exist at the
target before the batch (its first event is UPDATE or DELETE) or must not (INSERT). It deletes the
former, inserts the last images plainly, and the counts prove both: no row of one shard evicts a row of
another (I8), and a changed target is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from proto import errors
from proto.errors import ShardmergeError
from worker.plan import TablePlan
from worker.position import SourcePosition
from worker.replicate.placement import hash_indexes, lane_of
from worker.rows import ChangeKind, Literals, RowChange


@dataclass(slots=True)
class KeyState:
    """One key of the batch. ``image``: the row to be there afterwards, None for no row.

    ``plan`` is of the shard table whose event came last: the key's owner.
    """

    existed: bool
    plan: TablePlan
    image: Literals | None
    file: str
    pos: int

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


@dataclass(slots=True)
class _Target:
    """A plan's constants, looked up once per row change."""

    name: bytes
    indexes: tuple[int, ...]
    keys: dict[Literals, KeyState]


@dataclass(slots=True)
class Batch:
    """Changes of one lane since its last commit."""

    lane: int
    lanes: int
    changes: int = 0
    bytes: int = 0
    keyed: dict[str, dict[Literals, KeyState]] = field(default_factory=dict[str, dict[Literals, KeyState]])
    unkeyed: list[RowOperation] = field(default_factory=list[RowOperation])
    _targets: dict[int, _Target] = field(default_factory=dict[int, _Target])

    @property
    def is_empty(self) -> bool:
        return not self.changes

    def add(self, change: RowChange, file: str, pos: int) -> None:
        """Take the part of ``change`` that is this lane's; (file, pos) is its event's end at the source.

        Raises COLLISION when two shards own the key within the batch.
        """
        plan = change.plan
        target = self._targets.get(plan.shard)
        if target is None:
            target = self._target(plan)
        if not plan.key:
            if lane_of(target.name, (), (), self.lanes) == self.lane:
                self.unkeyed.append(RowOperation(plan, change.before, change.after, SourcePosition(file, pos)))
                self._count(change)
            return
        kind = change.kind
        key = plan.key
        if kind is ChangeKind.INSERT:
            after = tuple([change.after[index] for index in key])
            if self._mine(target, after):
                self._put(target, after, change, file, pos)
                self._count(change)
        elif kind is ChangeKind.DELETE:
            before = tuple([change.before[index] for index in key])
            if self._mine(target, before):
                self._remove(target, before, change, file, pos)
                self._count(change)
        else:
            before = tuple([change.before[index] for index in key])
            after = tuple([change.after[index] for index in key])
            if before == after:
                if self._mine(target, before):
                    self._replace(target, before, change, file, pos)
                    self._count(change)
            else:
                # A key change is a DELETE of one key and an INSERT of another, maybe of other lanes.
                mine_before, mine_after = self._mine(target, before), self._mine(target, after)
                if mine_before:
                    self._remove(target, before, change, file, pos)
                if mine_after:
                    self._put(target, after, change, file, pos)
                if mine_before or mine_after:
                    self._count(change)

    def _target(self, plan: TablePlan) -> _Target:
        made = _Target(plan.target_name.encode(), hash_indexes(plan), self.keyed.setdefault(plan.target_name, {}))
        self._targets[plan.shard] = made
        return made

    def _mine(self, target: _Target, key: Literals) -> bool:
        return self.lanes == 1 or lane_of(target.name, key, target.indexes, self.lanes) == self.lane

    def _count(self, change: RowChange) -> None:
        self.changes += 1
        self.bytes += sum(map(len, change.after or change.before))

    def _put(self, target: _Target, key: Literals, change: RowChange, file: str, pos: int) -> None:
        state = target.keys.get(key)
        if state is None:
            target.keys[key] = KeyState(False, change.plan, change.after, file, pos)
            return
        if state.image is not None:
            raise collision(change.plan, key, SourcePosition(file, pos), state.plan)
        state.plan, state.image, state.file, state.pos = change.plan, change.after, file, pos

    def _replace(self, target: _Target, key: Literals, change: RowChange, file: str, pos: int) -> None:
        state = target.keys.get(key)
        if state is None:
            target.keys[key] = KeyState(True, change.plan, change.after, file, pos)
            return
        self._must_own(state, key, change, file, pos)
        state.image, state.file, state.pos = change.after, file, pos

    def _remove(self, target: _Target, key: Literals, change: RowChange, file: str, pos: int) -> None:
        state = target.keys.get(key)
        if state is None:
            target.keys[key] = KeyState(True, change.plan, None, file, pos)
            return
        self._must_own(state, key, change, file, pos)
        state.image, state.file, state.pos = None, file, pos

    def _must_own(self, state: KeyState, key: Literals, change: RowChange, file: str, pos: int) -> None:
        if state.plan.shard != change.plan.shard:
            raise collision(change.plan, key, SourcePosition(file, pos), state.plan)
        if state.image is None:
            raise diverged(change.plan, 1, key, SourcePosition(file, pos))

    def targets(self) -> Iterator[tuple[str, dict[Literals, KeyState]]]:
        """Target name and its keys, for targets with any."""
        return ((name, keys) for name, keys in self.keyed.items() if keys)


def key_text(plan: TablePlan, key: Literals) -> str:
    """A key for a message: "(`id` = 5, `b` = 'x')"."""
    names = [plan.columns[index].target_name for index in plan.key]
    return "(" + ", ".join(f"`{n}` = {v.decode('utf-8', 'replace')}" for n, v in zip(names, key, strict=True)) + ")"


def collision(plan: TablePlan, key: Literals, position: SourcePosition, owner: TablePlan | None) -> ShardmergeError:
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


def diverged(plan: TablePlan, missing: int, key: Literals, position: SourcePosition) -> ShardmergeError:
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
