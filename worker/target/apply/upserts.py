"""Resolves changes of rows that the target may lack (see worker/core/batch.py), inside their transaction.

Only an UPDATE needs to know whether its row exists: a change that puts a row under its key, and one that removes it,
do not. Usually the row exists: then the count of the REPLACE that overwrites it proves so. Only when the count does not
prove it, the commit starts again and first looks the rows up. Rows that are removed are deleted before the lookup,
because a key may equal another key in other bytes ('a', 'A').
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from shardmerge.worker.core.batch import Keys, KeyState
from shardmerge.worker.core.mysql.connection import Session, send
from shardmerge.worker.core.row_change import JoinedLiterals
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.target.apply.dml import delete_sql, proved_by_count, split_keys
from shardmerge.worker.target.apply.row_lookup import find_existing

_STATEMENT_BYTES = 1 << 20


def update_if_exists(state: KeyState) -> bool:
    """Whether the change has no effect where the target lacks the row."""
    return state.existence_unknown and state.existed and state.image is not None


def needs_lookup(groups: Sequence[tuple[str, Keys]], *, overwrite: bool = False) -> bool:
    """Whether rows must be looked up at the target before the groups' statements can be made. ``overwrite``: not those
    rows whose existence the count of a REPLACE proves."""
    proved: dict[int, bool] = {}
    for _, keys in groups:
        for state in keys.values():
            if update_if_exists(state):
                shard = state.plan.shard
                if shard not in proved:
                    proved[shard] = overwrite and proved_by_count(state.plan)
                if not proved[shard]:
                    return True
    return False


def resolve_upserts(session: Session, groups: Sequence[tuple[str, Keys]]) -> tuple[tuple[str, Keys], ...]:
    """``groups`` without changes whose effect depends on the target's rows. Inside the caller's transaction, in which
    the removed rows of tables that may lack rows are deleted now. Raises ``pymysql.MySQLError``."""
    return resolve_upserts_with(
        groups,
        lambda plan, keys: send(session, delete_sql(plan, keys)),
        lambda plan, keys: find_existing(session, plan, keys),
    )


def resolve_upserts_with(
    groups: Sequence[tuple[str, Keys]],
    delete: Callable[[TablePlan, Sequence[JoinedLiterals]], object],
    find: Callable[[TablePlan, Sequence[JoinedLiterals]], frozenset[JoinedLiterals]],
) -> tuple[tuple[str, Keys], ...]:
    """:func:`resolve_upserts` with its two accesses to the target as parameters."""
    if not needs_lookup(groups):
        return tuple(groups)
    left: list[tuple[str, Keys]] = []
    for name, same in groupby(groups, key=lambda group: group[0]):
        of_target = [keys for _, keys in same]
        for keys in of_target:
            gone = [key for key, state in keys.items() if state.existence_unknown and state.image is None]
            for part in _parts(keys, gone):
                delete(keys[part[0]].plan, part)
        for keys in of_target:
            asked = [key for key, state in keys.items() if update_if_exists(state)]
            there = {key for part in _parts(keys, asked) for key in find(keys[part[0]].plan, part)}
            rest = {
                key: _upsert(state) if key in there else state
                for key, state in keys.items()
                if key in there or not (state.existence_unknown and (state.image is None or update_if_exists(state)))
            }
            left.append((name, rest))
    return tuple((name, keys) for name, keys in left if keys)


def as_plain(state: KeyState, *, there: bool) -> KeyState | None:
    """The change as a plain one, when it is known whether the row is ``there``; None: it has no effect."""
    if not there and state.existed:
        return None
    return KeyState(there, state.plan, state.image, state.file, state.pos)


def _upsert(state: KeyState) -> KeyState:
    return KeyState(False, state.plan, state.image, state.file, state.pos, existence_unknown=True)


def _parts(keys: Keys, some: Sequence[JoinedLiterals]) -> Iterator[Sequence[JoinedLiterals]]:
    # In ascending order, as in all statements.
    return split_keys(sorted(some, key=lambda key: (len(key), key)), keys, _STATEMENT_BYTES)
