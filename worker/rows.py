"""Row changes as they leave the decoder."""

from __future__ import annotations

import enum
from typing import NamedTuple

from worker.plan import TablePlan

Literals = tuple[bytes, ...]
"""One SQL literal per written column of the plan (mapped), in plan order; b"NULL" for NULL.

A literal is bytes ready to stand in a statement sent over a utf8mb4 connection: numbers as
digits, temporal values and utf8 text quoted and escaped, other charsets as ``_charset X'..'``,
binary as ``X'..'``. The stream's decoder and the chunk reader make the same bytes of the same
value, so that keys can be compared as bytes."""


Joined = bytes
"""Literals with commas between them: a whole row as it stands in VALUES, or a key. As a literal is a number, NULL or
something quoted, different tuples make different bytes."""


class ChangeKind(enum.IntEnum):
    INSERT = 1
    UPDATE = 2
    DELETE = 3


class RowChange(NamedTuple):
    """One row of a rows event. A NamedTuple: made millions of times, cheaper than a dataclass.

    ``byte``: start of its event inside the block, so that the caller can tell the relay offset.
    ``event``: ordinal of its event inside the block (0 = the block's first event).
    ``before`` is () for INSERT, ``after`` is () for DELETE. ``source_key_before/after``: literals
    of the key columns *before* mapping; () unless the decoder was asked for them.
    """

    byte: int
    event: int
    kind: ChangeKind
    plan: TablePlan
    before: Literals
    after: Literals
    source_key_before: Literals = ()
    source_key_after: Literals = ()
