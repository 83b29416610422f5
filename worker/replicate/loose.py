"""Changes of loose tables (see worker/replicate/batch.py), asked of the target within their transaction.

Only an update needs to know whether its row is there: what puts a row in its key's place, and what removes it, do
without. Mostly it is there: then the count of the REPLACE that overwrites it says so, and only a count that
does not makes the commit begin anew with the question. Rows that go are deleted before the question: a key may be equal
to another one in other bytes ('a', 'A').
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from worker.connection import Session, send
from worker.plan import TablePlan
from worker.replicate.batch import Keys, KeyState
from worker.replicate.presence import rows_at
from worker.replicate.statements import delete_sql, parts_of, proved_by_count
from worker.rows import Joined

_STATEMENT_BYTES = 1 << 20


def only_if_there(state: KeyState) -> bool:
    """Whether the change comes to nothing where the target has no such row."""
    return state.loose and state.existed and state.image is not None


def needs_look(groups: Sequence[tuple[str, Keys]], *, overwrite: bool = False) -> bool:
    """Whether the target has to be asked before the groups' statements can be made; ``overwrite``: not about rows that
    may be taken to be there, for that the count of a REPLACE proves."""
    proved: dict[int, bool] = {}
    for _, keys in groups:
        for state in keys.values():
            if only_if_there(state):
                shard = state.plan.shard
                if shard not in proved:
                    proved[shard] = overwrite and proved_by_count(state.plan)
                if not proved[shard]:
                    return True
    return False


def settled(session: Session, groups: Sequence[tuple[str, Keys]]) -> tuple[tuple[str, Keys], ...]:
    """``groups``, of which no change depends on what the target holds any more. Inside the caller's transaction, in
    which the rows that loose tables remove are gone then. Raises ``pymysql.MySQLError``."""
    return settled_by(
        groups,
        lambda plan, keys: send(session, delete_sql(plan, keys)),
        lambda plan, keys: rows_at(session, plan, keys),
    )


def settled_by(
    groups: Sequence[tuple[str, Keys]],
    delete: Callable[[TablePlan, Sequence[Joined]], object],
    find: Callable[[TablePlan, Sequence[Joined]], frozenset[Joined]],
) -> tuple[tuple[str, Keys], ...]:
    """:func:`settled`, with what it does at the target."""
    if not needs_look(groups):
        return tuple(groups)
    left: list[tuple[str, Keys]] = []
    for name, same in groupby(groups, key=lambda group: group[0]):
        of_target = [keys for _, keys in same]
        for keys in of_target:
            gone = [key for key, state in keys.items() if state.loose and state.image is None]
            for part in _parts(keys, gone):
                delete(keys[part[0]].plan, part)
        for keys in of_target:
            asked = [key for key, state in keys.items() if only_if_there(state)]
            there = {key for part in _parts(keys, asked) for key in find(keys[part[0]].plan, part)}
            rest = {
                key: _put(state) if key in there else state
                for key, state in keys.items()
                if key in there or not (state.loose and (state.image is None or only_if_there(state)))
            }
            left.append((name, rest))
    return tuple((name, keys) for name, keys in left if keys)


def as_strict(state: KeyState, *, there: bool) -> KeyState | None:
    """A loose change where it is known whether a row is there; None: it comes to nothing."""
    if not there and state.existed:
        return None
    return KeyState(there, state.plan, state.image, state.file, state.pos)


def _put(state: KeyState) -> KeyState:
    return KeyState(False, state.plan, state.image, state.file, state.pos, loose=True)


def _parts(keys: Keys, some: Sequence[Joined]) -> Iterator[Sequence[Joined]]:
    # In ascending order, as all statements have them.
    return parts_of(sorted(some, key=lambda key: (len(key), key)), keys, _STATEMENT_BYTES)
