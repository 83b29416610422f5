"""An operator's override of a statement: skip it, replace it, or run further statements before it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.sql_lexer import tokens
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from shardmerge.worker.ddl.decide.actions import Action, DdlContext, actions_of, renames_of
from shardmerge.worker.ddl.sql.statement import Ddl
from shardmerge.worker.relay.model import Statement

Ops = Callable[[], tuple[StoredOverride, ...]]
"""Returns the current overrides for statements of the source's binlog."""


@dataclass(frozen=True, slots=True)
class OperatorOverride:
    """``texts``: statements to run at the target. ``runs_original``: then the statement itself runs too."""

    texts: tuple[str, ...]
    runs_original: bool


def override_at(
    ops: tuple[StoredOverride, ...], begin: SourcePosition, end: SourcePosition, sql_mode: int
) -> OperatorOverride | None:
    """The override of the statement whose event group is from ``begin`` to ``end``; None: there is none. Pure."""
    for op in ops:
        if op.is_in(begin) and begin.pos <= op.pos < max(end.pos, begin.pos + 1):
            return OperatorOverride(tuple(split_statements(op.statements, sql_mode)), op.kind is OverrideKind.INJECT)
    return None


def split_statements(text: str, sql_mode: int) -> Iterator[str]:
    """Split a text into its statements, which ";" separates."""
    begin = 0
    for token in tokens(text, sql_mode):
        if token.is_symbol(";"):
            if text[begin : token.start].strip():
                yield text[begin : token.start].strip()
            begin = token.end
    if text[begin:].strip():
        yield text[begin:].strip()


def actions_with_override(
    override: OperatorOverride, ddl: Ddl | None, statement: Statement, scene: DdlContext
) -> tuple[Action, ...]:
    """The statement's actions. Pure. Raises what :func:`actions_of` raises, if the original is to run."""
    if ddl is None:
        return ()
    try:
        return actions_of(ddl, statement, scene)
    except ShardmergeError:
        if override.runs_original:
            raise
        # The operator has decided about a statement that cannot run. A shard table that it renames is no longer the
        # table of its old name, which another table may have now.
        return renames_of(ddl, scene)
