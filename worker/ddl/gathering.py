"""For whom a shard table waits that stands before a sharding DDL, as the master's lock would say it. Pure.

The lock itself is the master's (master/ddl_lock.py); this is what a rehearsal says of it, from the records at the
target, by the same rule (proto/ddl_standing.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proto.ddl_standing import Standing, standing
from worker.ddl.dropped import Member


@dataclass(frozen=True, slots=True)
class Before:
    """The statement that a shard table waits before. ``form``: equal for equal statements; ``after``: digest of the
    structure behind it. ``since``: orders who came first. ``contradicts``: only an operator lets it go on."""

    form: str
    after: str
    since: float
    contradicts: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a shard table is: the digest of its ``structure``, and what it ``waits`` before; None: its rows flow."""

    structure: str
    waits: Before | None = None


@dataclass(frozen=True, slots=True)
class Gathering:
    """Of one statement. ``first``: who came to it first, and runs it; ``ready``: who waits before it, ``missing``: who
    has not come to it, ``conflicting``: who waits before another one, ``contradicting``: who is ready and must not go
    on by itself."""

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
    """See :class:`proto.ddl_standing.Sought`."""

    form: str
    before: str
    after: str


def gathering(places: Mapping[Member, Place], mine: Member) -> Gathering:
    """``places``: every shard table of the target; that of ``mine`` waits."""
    own = places[mine].waits
    assert own is not None  # noqa: S101 - for the type checker: it is what is asked about
    same = [
        (each.waits.since, member)
        for member, each in places.items()
        if each.waits is not None and each.waits.form == own.form
    ]
    first = min(same)[1]
    theirs = places[first].waits
    assert theirs is not None  # noqa: S101 - for the type checker: it was picked for it
    sought = _Sought(own.form, places[first].structure, theirs.after)
    found: dict[Standing, list[Member]] = {each: [] for each in Standing}
    for member, each in sorted(places.items()):
        found[standing(each.structure, each.waits, sought)].append(member)
    ready = found[Standing.READY]
    contradicting = tuple(
        member for member in ready if (waits := places[member].waits) is not None and waits.contradicts
    )
    missing, conflicting = found[Standing.MISSING], found[Standing.CONFLICTING]
    return Gathering(first, tuple(ready), tuple(missing), tuple(conflicting), contradicting)
