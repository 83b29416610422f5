"""Decides whether a statement must not run because rows of its table were copied after it. Pure.

The chunks of a history are read one after the other, and the stream begins at the lowest high watermark. It may meet a
statement before which some chunks of the table were read, and after which others. The later ones have its effect and
everything that followed it up to their watermarks: if it removed or changed their rows at the target, changes that the
stream leaves out as already copied would be lost (I5).

Chunks that are read after a statement are no longer kept (worker/snapshot/statement_watch.py). This concerns copies
that an earlier version of this program has made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.sql.clause import LEAVES_ROWS, ClauseKind
from shardmerge.worker.ddl.decide.actions import Action, Alter, Create, Drop, ShardTarget, Truncate
from shardmerge.worker.ddl.sql.statement import AlterTable, Ddl

CopiedUntil = Mapping[int, RelayOffset]
"""The highest high watermark of each table whose history was copied, by number: every row change from there on is
applied."""

_KEEPS_VALUES = LEAVES_ROWS | {
    ClauseKind.ADD_FOREIGN_KEY,
    ClauseKind.DROP_FOREIGN_KEY,
    ClauseKind.ADD_CHECK,
    ClauseKind.DROP_CHECK,
    ClauseKind.ALTER_CHECK,
    ClauseKind.OPTION,
    ClauseKind.ORDER_BY,
    ClauseKind.PARTITIONING,
}
"""Clauses that neither remove nor change a value that a row has."""


def copied_later(
    actions: Iterable[Action], ddl: Ddl | None, offset: RelayOffset, copied_until: CopiedUntil
) -> ShardTarget | None:
    """The first table of which the statement removes or changes rows and of which chunks were read after it; None:
    there is none. ``offset``: the statement's."""
    for action in actions:
        shard = _changed_rows(action, ddl)
        if shard is None:
            continue
        until = copied_until.get(shard.number)
        if until is not None and offset < until:
            return shard
    return None


def _changed_rows(action: Action, ddl: Ddl | None) -> ShardTarget | None:
    """The table of which the action removes or changes rows at the target."""
    match action:
        case Alter(shard=shard):
            keeps = not isinstance(ddl, AlterTable) or all(clause.kind in _KEEPS_VALUES for clause in ddl.clauses)
            return None if keeps else shard
        case Drop(shard=shard) | Truncate(shard=shard):
            return shard
        case Create(replaces=replaced):
            return replaced
        case _:
            return None
