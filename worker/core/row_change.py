# cython: language_level=3
"""Row changes as the decoder returns them.

Compiled by Cython (types of the class in worker/core/row_change.pxd); plain Python where it is not compiled.
"""

from __future__ import annotations

import enum

import cython

from shardmerge.worker.core.table_plan import TablePlan

Literals = tuple[bytes, ...]
"""One SQL literal per written column of the plan (mapped), in plan order; b"NULL" for NULL.

A literal is bytes ready for use in a statement sent over a utf8mb4 connection: numbers as
digits, temporal values and utf8 text quoted and escaped, other charsets as ``_charset X'..'`` (as
utf8 text for a plan with ``text_as_utf8``), binary as ``X'..'``. The stream's decoder and the chunk
reader make the same bytes of the same value, so that keys can be compared as bytes."""


JoinedLiterals = bytes
"""Literals separated by commas: a whole row as written in VALUES, or a key. As a literal is a number, NULL or
quoted text, different tuples make different bytes."""


class ChangeKind(enum.IntEnum):
    INSERT = 1
    UPDATE = 2
    DELETE = 3


@cython.final
@cython.cclass
class RowChange:
    """One row of a rows event. Do not change it; compiled, because it is made millions of times.

    ``byte``: start of its event inside the block, from which the caller derives the relay offset.
    ``event``: ordinal of its event inside the block (0 = the block's first event).
    ``before`` is () for INSERT, ``after`` is () for DELETE. ``source_key_before/after``: literals
    of the key columns *before* mapping; () unless the decoder was asked for them.
    """

    def __init__(
        self,
        byte: int,
        event: int,
        kind: ChangeKind,
        plan: TablePlan,
        before: Literals,
        after: Literals,
        source_key_before: Literals = (),
        source_key_after: Literals = (),
    ) -> None:
        self.byte = byte
        self.event = event
        self.kind = kind
        self.plan = plan
        self.before = before
        self.after = after
        self.source_key_before = source_key_before
        self.source_key_after = source_key_after

    def only_before(self) -> RowChange:
        """The DELETE in an UPDATE."""
        return RowChange(
            self.byte, self.event, ChangeKind.DELETE, self.plan, self.before, (), self.source_key_before, ()
        )

    def only_after(self) -> RowChange:
        """The INSERT in an UPDATE."""
        return RowChange(self.byte, self.event, ChangeKind.INSERT, self.plan, (), self.after, (), self.source_key_after)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowChange):
            return NotImplemented
        return (
            self.byte == other.byte
            and self.event == other.event
            and self.kind is other.kind
            and self.plan == other.plan
            and self.before == other.before
            and self.after == other.after
            and self.source_key_before == other.source_key_before
            and self.source_key_after == other.source_key_after
        )

    def __hash__(self) -> int:
        return hash((self.byte, self.event, self.kind, self.before, self.after))

    def __repr__(self) -> str:
        return (
            f"RowChange({self.byte}, {self.event}, {self.kind!r}, {self.plan!r}, {self.before!r}, {self.after!r}, "
            f"{self.source_key_before!r}, {self.source_key_after!r})"
        )
