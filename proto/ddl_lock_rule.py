"""The state of a shard table with respect to a sharding DDL, for the master's locks and a worker's dry run. Pure."""

from __future__ import annotations

import enum
from typing import Protocol


class ShardState(enum.Enum):
    """The state of a shard table with respect to a lock's statement."""

    READY = "ready"
    """It is parked at the statement."""
    PASSED = "passed"
    """It has executed the statement."""
    MISSING = "missing"
    """Its rows are being applied, and it has not reached the statement."""
    CONFLICTING = "conflicting"
    """It is parked at another statement and has not executed this one."""


class ParkedTableStatement(Protocol):
    """The statement at which a shard table is parked. ``form`` is equal for equal statements, ``after``: the digest of
    the structure after it. ``after_run``: generation of the last lock whose statement had run at the target when the
    table was parked; "" for none."""

    @property
    def form(self) -> str: ...
    @property
    def after(self) -> str: ...
    @property
    def after_run(self) -> str: ...


class LockedStatement(Protocol):
    """A lock's statement; ``before``: digest of the structure of the table that arrived first. ``generation``: of the
    lock. ``reuses_names``: columns get names that it takes from other columns."""

    @property
    def form(self) -> str: ...
    @property
    def after(self) -> str: ...
    @property
    def before(self) -> str: ...
    @property
    def generation(self) -> str: ...
    @property
    def reuses_names(self) -> bool: ...


def moves_values(locked: LockedStatement) -> bool:
    """Whether the statement may change values in a way that no structure shows: it leaves the structure as it is, or
    columns get the names of others. A table with the structure after it may never have executed it."""
    return locked.before == locked.after or locked.reuses_names


def is_parked_at(structure: str, parked: ParkedTableStatement | None, locked: LockedStatement) -> bool:
    """Whether a table of ``structure`` (a digest) is parked at the lock's statement, so that RELEASED lets it continue.

    The same text once more after it (``ADD INDEX (c)`` twice) is another statement, and so is one that the table has
    reached after the lock's statement has run: it was released, and other statements have led it there again.
    """
    if parked is None or parked.form != locked.form or (parked.after_run and parked.after_run == locked.generation):
        return False
    return structure != locked.after or parked.after == locked.after


def shard_state(structure: str, parked: ParkedTableStatement | None, locked: LockedStatement) -> ShardState:
    """The table's state. All tables must reach a statement whose execution leaves no trace: rows of a table that was
    created with the structure after it are at the target as they are after it, and would get it once more."""
    if is_parked_at(structure, parked, locked):
        return ShardState.READY
    if structure == locked.after and not moves_values(locked):
        return ShardState.PASSED
    return ShardState.MISSING if parked is None else ShardState.CONFLICTING
