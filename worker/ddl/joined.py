"""The join of a target table's shard tables, for ``shard-mode: optimistic``: pure.

Every shard table changes at its own time; the target has what all of them together need. A statement of one of them is
answered with the clauses that bring the target to the join behind it, or with the reason why there is none. Data first:
where a value could be another at the target than at its source, there is none.

Only what the statement changes is looked at: what an operator changed at the target by hand stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from worker.ddl.described import Shape


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard table as it is now. ``name``: for people, e.g. "source-1 `d`.`t_03`", unique among the table's shards.
    ``dropped``: lower-case names of columns that it dropped while the target kept them."""

    name: str
    shape: Shape
    dropped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Joined:
    """There is a join.

    ``clauses``: of one ALTER TABLE of the target, in this order; () when it is the join already. To be run under a
    strict sql_mode: what does not fit is then refused, never changed. ``dropped``: that of the shard behind the
    statement. ``gone``: lower-case names of columns that no shard has any more, to be taken from the ``dropped`` of
    every shard. ``unique_added``: names of unique indexes among what is added: whether uniqueness spans the shards is
    for the operator to say, and two shards with one value make the server refuse the clause (error 1062).
    """

    clauses: tuple[str, ...]
    dropped: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    unique_added: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotJoinable:
    """There is none. ``reason``: for people, whole. ``subject``: name of the column or index, "" for the table's;
    ``other``: the shard that it is about, "" for the target or none. ``waits``: whether the statement can go the
    pessimistic way, to wait until every shard has come to it; else shards contradict each other, and one must change
    back at its source."""

    reason: str
    subject: str = ""
    other: str = ""
    waits: bool = False


def join(
    target: Shape,
    others: Collection[Shard],
    before: Shard,
    after: Shape,
    *,
    strict: bool,
    renamed: Mapping[str, str] = MappingProxyType({}),
    replaced: Collection[str] = (),
) -> Joined | NotJoinable:
    """What a statement that made ``after`` of the shard ``before`` makes of the target.

    ``others``: every other shard table of the target, in any order. ``strict``: whether the source refused values that
    do not fit, i.e. the statement ran under STRICT_ALL_TABLES, or STRICT_TRANS_TABLES with a transactional engine, and
    was no ALTER IGNORE (MySQL Reference Manual, "Server SQL Modes"). ``renamed``: lower-case new names by old ones'
    values: {new: old}, CHANGE as well as RENAME COLUMN. ``replaced``: lower-case names of columns that the statement
    both drops and adds: the structure does not tell.
    """
    raise NotImplementedError
