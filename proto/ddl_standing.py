"""How a shard table stands towards a sharding DDL: what the master's locks and a worker's rehearsal go by. Pure."""

from __future__ import annotations

import enum
from typing import Protocol


class Standing(enum.Enum):
    """How a shard table stands towards a lock's statement."""

    READY = "ready"
    """It waits before it."""
    PASSED = "passed"
    """It has it behind it."""
    MISSING = "missing"
    """Its rows flow, and it has not come to it."""
    CONFLICTING = "conflicting"
    """It waits before another statement, with this one not behind it."""


class Waiting(Protocol):
    """What a shard table waits before: ``form`` is equal for equal statements, ``after`` the digest behind it."""

    @property
    def form(self) -> str: ...
    @property
    def after(self) -> str: ...


class Sought(Waiting, Protocol):
    """A lock's statement; ``before``: digest of the structure of the table that came first."""

    @property
    def before(self) -> str: ...


def waits_before(structure: str, waits: Waiting | None, sought: Sought) -> bool:
    """Whether a table of ``structure`` (a digest) waits before the lock's statement, so that RELEASED lets it go on.

    The same words once more behind it (``ADD INDEX (c)`` twice) are another statement.
    """
    if waits is None or waits.form != sought.form:
        return False
    return structure != sought.after or waits.after == sought.after


def standing(structure: str, waits: Waiting | None, sought: Sought) -> Standing:
    """A statement that leaves the structure as it is cannot be seen to have been passed: its tables must all come."""
    if waits_before(structure, waits, sought):
        return Standing.READY
    if structure == sought.after != sought.before:
        return Standing.PASSED
    return Standing.MISSING if waits is None else Standing.CONFLICTING
