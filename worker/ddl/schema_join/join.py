"""The schema join of a target table's shard tables, for ``shard-mode: optimistic``. Pure.

Shard tables change at different times; the target has the structure that all of them together need. For a statement of
one of them, the result is the clauses that change the target to the join after it, or the reason why there is none.
Data comes first: there is no join where a value at the target could differ from the source.

Only what the statement changes is considered: changes that an operator made at the target by hand stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.ddl.schema_join.collations import changed_collations, with_target_collations
from shardmerge.worker.ddl.schema_join.columns import join_columns
from shardmerge.worker.ddl.schema_join.indexes import join_indexes
from shardmerge.worker.ddl.schema_join.model import JoinInput, NotJoinable, NotJoinableError, ShardSchema, not_joinable
from shardmerge.worker.ddl.sql.table_definition import TableDefinition


@dataclass(frozen=True, slots=True)
class SchemaJoin:
    """There is a join.

    ``clauses``: of one ALTER TABLE of the target, in this order; () when the target has the join already. To be run
    under a strict sql_mode: values that do not fit are then refused, never changed. ``dropped``: the dropped columns of
    the shard table after the statement. ``gone``: lower-case names of columns that no shard table has any more, to be
    removed from ``dropped`` of every shard table. ``unique_added``: names of added unique indexes: whether uniqueness
    spans the shard tables is the operator's decision, and two shard tables with one value make the server refuse the
    clause (error 1062).
    """

    clauses: tuple[str, ...]
    dropped: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    unique_added: tuple[str, ...] = ()


def join(
    target: TableDefinition,
    others: Collection[ShardSchema],
    before: ShardSchema,
    after: TableDefinition,
    *,
    strict: bool,
    renamed: Mapping[str, str] = MappingProxyType({}),
    replaced: Collection[str] = (),
    coming: Collection[ShardSchema] = (),
    completed: Collection[str] = (),
) -> SchemaJoin | NotJoinable:
    """The join for a statement that changed the shard table ``before`` to ``after``.

    ``others``: every other shard table of the target, in any order. ``strict``: whether the source refused values that
    do not fit, i.e. the statement ran under STRICT_ALL_TABLES, or STRICT_TRANS_TABLES with a transactional engine, and
    was no ALTER IGNORE (MySQL Reference Manual, "Server SQL Modes"). ``renamed``: former names by the new ones, in
    lower case, of CHANGE as well as of RENAME COLUMN. ``replaced``: names in lower case of columns that the statement
    both drops and adds, which the structure does not show. ``coming``: those of ``others`` that are parked, as they are
    after the statements at which they are parked. A lock may run such a statement at the target at any moment: a join
    is right before and after it. ``completed``: lower-case names of unique indexes that all shard tables have after
    this statement and those at which others are parked.
    """
    changed = changed_collations(before.definition, after)

    def compared(shard: ShardSchema) -> ShardSchema:
        return replace(shard, definition=with_target_collations(shard.definition, target, changed))

    by_name = (tuple(map(compared, sorted(shards, key=lambda shard: shard.name))) for shards in (others, coming))
    now, soon = by_name
    after = with_target_collations(after, target, changed)
    asked = JoinInput(target, now, compared(before), after, strict, soon, frozenset(completed))
    try:
        _check_table(asked, renamed, replaced)
        columns = join_columns(asked)
        indexes = join_indexes(asked, columns)
    except NotJoinableError as refused:
        return refused.answer
    return SchemaJoin(
        (*indexes.removed, *columns.clauses, *indexes.added),
        (before.dropped | columns.dropped) - columns.gone,
        frozenset(columns.gone),
        tuple(indexes.unique_added),
    )


def _check_table(asked: JoinInput, renamed: Mapping[str, str], replaced: Collection[str]) -> None:
    """Check what concerns the whole table or is not visible in structures. Raises :class:`NotJoinableError`."""
    own, was, now = asked.before.name, asked.before.definition, asked.after
    for new, old in sorted(renamed.items()):
        if new != old:  # CHANGE with one name twice is MODIFY
            raise not_joinable(f"{own} renames column {quote_name(old)} to {quote_name(new)}", old, waits=True)
    for key in sorted(replaced):
        raise not_joinable(
            f"{own} drops column {quote_name(key)} and adds it again in one statement: its values are gone at "
            "the source, but not at the target",
            key, waits=True,
        )  # fmt: skip
    for what, former, present in (
        ("primary key", was.primary_key, now.primary_key),
        ("checks", ", ".join(was.checks), ", ".join(now.checks)),
        ("options", was.options, now.options),
    ):
        if former != present:
            raise not_joinable(
                f"{own} changes the table's {what} from {former or 'none'} to {present or 'none'}", "", waits=True
            )
