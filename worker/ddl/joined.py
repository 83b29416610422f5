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

from worker.connection import quote_name
from worker.ddl.described import Shape
from worker.ddl.joined_columns import joined_columns
from worker.ddl.joined_indexes import joined_indexes
from worker.ddl.shards import NotJoinable, Question, Refused, Shard, refuse


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
    was no ALTER IGNORE (MySQL Reference Manual, "Server SQL Modes"). ``renamed``: former names by the new ones, in
    lower case, of CHANGE as well as of RENAME COLUMN. ``replaced``: names in lower case of columns that the statement
    both drops and adds: the structure does not tell.
    """
    asked = Question(target, tuple(sorted(others, key=lambda shard: shard.name)), before, after, strict)
    try:
        _check_table(asked, renamed, replaced)
        columns = joined_columns(asked)
        indexes = joined_indexes(asked, columns)
    except Refused as refused:
        return refused.answer
    return Joined(
        (*indexes.removed, *columns.clauses, *indexes.added),
        (before.dropped | columns.dropped) - columns.gone,
        frozenset(columns.gone),
        tuple(indexes.unique_added),
    )


def _check_table(asked: Question, renamed: Mapping[str, str], replaced: Collection[str]) -> None:
    """What is of the whole table, or not to be told from structures. Raises :class:`Refused`."""
    own, was, now = asked.before.name, asked.before.shape, asked.after
    for new, old in sorted(renamed.items()):
        if new != old:  # CHANGE with one name twice is MODIFY
            raise refuse(f"{own} renames column {quote_name(old)} to {quote_name(new)}", old, waits=True)
    for key in sorted(replaced):
        raise refuse(
            f"{own} drops column {quote_name(key)} and adds it again in one statement: its values at the source are "
            "gone, at the target they are not",
            key, waits=True,
        )  # fmt: skip
    for what, former, present in (
        ("primary key", was.primary_key, now.primary_key),
        ("checks", ", ".join(was.checks), ", ".join(now.checks)),
        ("options", was.options, now.options),
    ):
        if former != present:
            raise refuse(
                f"{own} changes the table's {what} from {former or 'none'} to {present or 'none'}", "", waits=True
            )
