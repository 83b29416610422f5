"""Predicts for which shard tables a parked one waits, as the master's lock would decide. Pure.

The lock itself is the master's (master/ddl_lock/resolver.py). The dry run predicts its decision from the records at the
target, by the same rule (proto/ddl_lock_rule.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardmerge.proto.ddl_lock_rule import ShardState, shard_state
from shardmerge.worker.target.records.dropped_columns import Member


@dataclass(frozen=True, slots=True)
class PendingStatement:
    """The statement at which a shard table is parked. ``form``: equal for equal statements. ``after``: digest of the
    structure after it. ``since``: the order in which they were parked. ``contradicts``: only an operator can release
    it. ``after_run``: see :class:`shardmerge.proto.ddl_lock_rule.ParkedTableStatement`. ``reuses_names``: see
    :class:`shardmerge.proto.ddl_lock_rule.LockedStatement`."""

    form: str
    after: str
    since: float
    contradicts: bool = False
    after_run: str = ""
    reuses_names: bool = False


@dataclass(frozen=True, slots=True)
class ShardPosition:
    """A shard table: the digest of its ``structure``, and where it is parked (``waits``); None: it is not."""

    structure: str
    waits: PendingStatement | None = None


@dataclass(frozen=True, slots=True)
class LockOutlook:
    """The shard tables at one statement. ``first``: reached it first, and runs it. ``ready``: parked at it.
    ``missing``: have not reached it. ``conflicting``: parked at another statement. ``contradicting``: ready, but only
    an operator can release them."""

    first: Member
    ready: tuple[Member, ...]
    missing: tuple[Member, ...]
    conflicting: tuple[Member, ...]
    contradicting: tuple[Member, ...]

    @property
    def is_complete(self) -> bool:
        """Whether the statement runs."""
        return not (self.missing or self.conflicting or self.contradicting)


@dataclass(frozen=True, slots=True)
class _Sought:
    """See :class:`shardmerge.proto.ddl_lock_rule.LockedStatement`."""

    form: str
    before: str
    after: str
    reuses_names: bool
    generation: str = ""


def lock_outlook(places: Mapping[Member, ShardPosition], mine: Member) -> LockOutlook:
    """``places``: every shard table of the target; ``mine`` is parked."""
    own = places[mine].waits
    assert own is not None  # noqa: S101 - for the type checker: the caller passes a parked one
    same = [
        (each.waits.since, member)
        for member, each in places.items()
        if each.waits is not None and each.waits.form == own.form
    ]
    first = min(same)[1]
    theirs = places[first].waits
    assert theirs is not None  # noqa: S101 - for the type checker: it was picked from parked ones
    sought = _Sought(own.form, places[first].structure, theirs.after, theirs.reuses_names)
    found: dict[ShardState, list[Member]] = {each: [] for each in ShardState}
    for member, each in sorted(places.items()):
        found[shard_state(each.structure, each.waits, sought)].append(member)
    ready = found[ShardState.READY]
    contradicting = tuple(
        member for member in ready if (waits := places[member].waits) is not None and waits.contradicts
    )
    missing, conflicting = found[ShardState.MISSING], found[ShardState.CONFLICTING]
    return LockOutlook(first, tuple(ready), tuple(missing), tuple(conflicting), contradicting)
