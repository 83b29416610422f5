"""What a join is made from and why there may be none: values. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from worker.ddl.definition import Definition
from worker.ddl.described import Shape


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard table as it is now. ``name``: for people, e.g. "source-1 `d`.`t_03`", unique among the table's shards.
    ``dropped``: lower-case names of columns that it dropped while the target kept them."""

    name: str
    shape: Shape
    dropped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NotJoinable:
    """There is none. ``reason``: for people, whole. ``subject``: name of the column or index, "" for the table's;
    ``other``: the shard that it is about, "" for the target or none. ``waits``: whether the statement can go the
    pessimistic way, to wait until every shard has come to it; else shards contradict each other or the target, and
    something must change there first."""

    reason: str
    subject: str = ""
    other: str = ""
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """``others``: by name. ``strict``: see :func:`worker.ddl.joined.join`."""

    target: Shape
    others: tuple[Shard, ...]
    before: Shard
    after: Shape
    strict: bool

    def having(self, key: str) -> tuple[tuple[str, Definition], ...]:
        """The other shards that have the column ``key``: name, and how."""
        found = ((shard.name, shard.shape.column(key)) for shard in self.others)
        return tuple((name, each) for name, each in found if each is not None)

    def lacking(self, key: str) -> tuple[str, ...]:
        """Names of the other shards that do not have the column ``key``."""
        return tuple(shard.name for shard in self.others if shard.shape.column(key) is None)


@dataclass(frozen=True, slots=True)
class ColumnsJoined:
    """Filled as found. ``dropped``: of this shard by this statement while others keep it; ``gone``: what no shard
    has any more."""

    clauses: list[str] = field(default_factory=list[str])
    dropped: set[str] = field(default_factory=set[str])
    gone: set[str] = field(default_factory=set[str])


class Refused(Exception):
    """There is no join: an answer on its way to the caller of join()."""

    def __init__(self, answer: NotJoinable) -> None:
        super().__init__(answer.reason)
        self.answer = answer


def refuse(reason: str, subject: str, other: str = "", *, waits: bool = False) -> Refused:
    """To be raised. ``waits``: then the reason says so."""
    if waits:
        reason += "; it needs all shards: waits as in pessimistic mode"
    return Refused(NotJoinable(reason, subject, other, waits))
