"""Which rows of a refused batch it is that the target refuses, by trying: halves of a statement, then single rows.

All in one transaction. What the target takes stays in it, so that a row is judged beside those
that it would be committed with: every delete lies before every insert.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import pymysql
from pymysql.constants import ER

from proto import errors
from proto.errors import ShardmergeError
from worker.connection import Session, errno_of, send
from worker.plan import TablePlan
from worker.position import SourcePosition
from worker.replicate.batch import Keys, KeyState, RowOperation, collision, diverged, key_text
from worker.replicate.loose import settled
from worker.replicate.presence import count_of
from worker.replicate.refusal import is_of_row
from worker.replicate.statements import (
    DeleteKeys,
    DeleteRow,
    InsertRows,
    Statement,
    delete_sql,
    keyed_statements,
    unkeyed_statements,
    write_sql,
)
from worker.rows import Joined
from worker.trouble import reason_of

Group = tuple[str, Keys]
"""A target's name and keys of it. Groups of one target stand side by side."""

_SAVED = "before_the_delete"


@dataclass(frozen=True, slots=True)
class Culprit:
    """A key of the batch whose change the target refuses. ``errno``: 0 where a row was missing."""

    key: Joined
    state: KeyState
    error: ShardmergeError
    errno: int


def statements_of(groups: Iterable[Group], max_bytes: int, *, overwrite: bool) -> Iterator[tuple[Statement, Keys]]:
    """The statements of keyed rows in order, each with its group: per target every delete before every other."""
    for _, same in groupby(groups, key=lambda group: group[0]):
        begun: list[tuple[Keys, Iterator[Statement]]] = []
        for _, keys in same:
            made = keyed_statements(keys, max_bytes, overwrite=overwrite)
            for statement in made:
                if not isinstance(statement, DeleteKeys):
                    begun.append((keys, chain((statement,), made)))
                    break
                yield statement, keys
        for keys, rest in begun:
            for statement in rest:
                yield statement, keys


def find_culprits(
    session: Session, groups: Sequence[Group], unkeyed: Sequence[RowOperation], max_bytes: int, *, safe_mode: bool
) -> list[Culprit]:
    """The keys whose changes are refused; [] when nothing is. Ends the transaction that it begins.

    Raises the coded error of a row without a key, ``pymysql.MySQLError`` for what is no matter of one row.
    """
    send(session, b"START TRANSACTION")
    try:
        return culprits_in(session, settled(session, groups), unkeyed, max_bytes, safe_mode=safe_mode)
    finally:
        send(session, b"ROLLBACK")


def culprits_in(
    session: Session, groups: Sequence[Group], unkeyed: Sequence[RowOperation], max_bytes: int, *, safe_mode: bool
) -> list[Culprit]:
    """As :func:`find_culprits`, inside the caller's transaction: all that is not refused has been applied in it."""
    found: list[Culprit] = []
    for statement, keys in statements_of(groups, max_bytes, overwrite=False):
        match statement:
            case DeleteKeys():
                found += _deleted(session, statement, keys, safe_mode=safe_mode)
            case InsertRows():
                found += _inserted(session, statement.plan, statement.keys, keys)
            case _:
                pass
    for operation in unkeyed:
        _operated(session, operation)
    return found


def _deleted(session: Session, statement: DeleteKeys, keys: Keys, *, safe_mode: bool) -> Iterator[Culprit]:
    send(session, f"SAVEPOINT {_SAVED}".encode())
    affected = send(session, statement.sql)
    if affected == len(statement.keys) or safe_mode or statement.loose:
        return
    send(session, f"ROLLBACK TO {_SAVED}".encode())
    missing = frozenset(_missing(session, statement.plan, statement.keys))
    left = tuple(key for key in statement.keys if key not in missing)
    if left:
        send(session, delete_sql(statement.plan, left))
    for key in sorted(missing):
        state = keys[key]
        yield Culprit(key, state, diverged(state.plan, 1, key, state.position), 0)


def _missing(session: Session, plan: TablePlan, keys: tuple[Joined, ...]) -> Iterator[Joined]:
    """Those of ``keys`` that the target does not hold."""
    count = count_of(session, plan, keys)
    if count >= len(keys):
        return
    if len(keys) == 1 or count == 0:
        yield from keys
        return
    half = len(keys) // 2
    yield from _missing(session, plan, keys[:half])
    yield from _missing(session, plan, keys[half:])


def _inserted(session: Session, plan: TablePlan, wanted: tuple[Joined, ...], keys: Keys) -> Iterator[Culprit]:
    try:
        send(session, write_sql(b"INSERT", plan, [_image(keys[key]) for key in wanted]))
    except pymysql.MySQLError as error:
        if not is_of_row(errno_of(error)):
            raise
        if len(wanted) == 1:
            yield _refused(session, wanted[0], keys[wanted[0]], error)
            return
        half = len(wanted) // 2
        yield from _inserted(session, plan, wanted[:half], keys)
        yield from _inserted(session, plan, wanted[half:], keys)


def _refused(session: Session, key: Joined, state: KeyState, error: pymysql.MySQLError) -> Culprit:
    errno, plan = errno_of(error), state.plan
    if errno != ER.DUP_ENTRY:
        return Culprit(key, state, refused_row(plan, state.position, key_text(plan, key), error), errno)
    if not state.existed and count_of(session, plan, (key,)):
        return Culprit(key, state, collision(plan, key, state.position, None), errno)
    return Culprit(key, state, other_duplicate(plan, state.position, error), errno)


def other_duplicate(plan: TablePlan, position: SourcePosition, error: pymysql.MySQLError) -> ShardmergeError:
    """Another unique key than the one that rows are told by is violated."""
    return errors.replicate.TARGET_DUPLICATE_OTHER_KEY(
        source=plan.source,
        schema=plan.table.schema,
        table=plan.table.name,
        position=position,
        target_schema=plan.target_schema,
        target_table=plan.target_table,
        reason=reason_of(error),
        errno=errno_of(error),
    )


def refused_row(plan: TablePlan, position: SourcePosition, key: str, error: pymysql.MySQLError) -> ShardmergeError:
    """ROW_REFUSED; ``key``: for people, "(no key)"."""
    return errors.replicate.ROW_REFUSED(
        source=plan.source,
        schema=plan.table.schema,
        table=plan.table.name,
        position=position,
        target_schema=plan.target_schema,
        target_table=plan.target_table,
        key=key,
        reason=reason_of(error),
        errno=errno_of(error),
    )


def _operated(session: Session, operation: RowOperation) -> None:
    for statement in unkeyed_statements((operation,)):
        try:
            affected = send(session, statement.sql)
        except pymysql.MySQLError as error:
            if not is_of_row(errno_of(error)):
                raise
            raise refused_row(operation.plan, operation.position, "(no key)", error) from error
        if isinstance(statement, DeleteRow) and affected != 1 and not operation.plan.loose:
            raise diverged(operation.plan, 1, b"", operation.position)


def _image(state: KeyState) -> Joined:
    assert state.image is not None  # noqa: S101 - for the type checker: it is to be inserted
    return state.image
