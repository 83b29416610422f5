"""Finds the refused rows of a refused batch by bisection: it tries halves of a statement, then single rows.

Everything runs in one transaction. Accepted rows stay in it, so that each row is tried together with the rows that it
would be committed with: every delete runs before every insert.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import pymysql
from pymysql.constants import ER

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.batch import Keys, KeyState, RowOperation, collision, diverged, key_text
from shardmerge.worker.core.mysql.connection import Session, errno_of, quote_name, rows, send, text_of
from shardmerge.worker.core.mysql.server_errors import reason_of
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import JoinedLiterals
from shardmerge.worker.core.table_plan import PartitionId, TablePlan
from shardmerge.worker.target.apply.affected_rows import is_row_error
from shardmerge.worker.target.apply.dml import (
    DeleteKeys,
    DeleteRow,
    InsertRows,
    Statement,
    delete_sql,
    keyed_statements,
    unkeyed_statements,
    write_sql,
)
from shardmerge.worker.target.apply.row_lookup import count_existing
from shardmerge.worker.target.apply.upserts import resolve_upserts

Group = tuple[str, Keys]
"""A target table's name and keys of it. Groups of one target table are adjacent."""

_BEFORE_DELETE = "before_the_delete"
_BEFORE_SEARCH = "before_the_search"


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A key of the batch whose change the target refuses. ``errno``: 0 when the row was missing."""

    key: JoinedLiterals
    state: KeyState
    error: ShardmergeError
    errno: int


def statements_of(groups: Iterable[Group], max_bytes: int, *, overwrite: bool) -> Iterator[tuple[Statement, Keys]]:
    """The statements of keyed rows in order, each with its group: per target table, deletes come first."""
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


def find_refused_rows(
    session: Session, groups: Sequence[Group], unkeyed: Sequence[RowOperation], max_bytes: int, *, safe_mode: bool
) -> list[RefusedRow]:
    """The keys whose changes the target refuses; [] for none. Rolls back the transaction that it begins.

    Raises the coded error of a refused row without a key, and ``pymysql.MySQLError`` for errors that are not about
    one row.
    """
    send(session, b"START TRANSACTION")
    try:
        return refused_rows_in(session, resolve_upserts(session, groups), unkeyed, max_bytes, safe_mode=safe_mode)
    finally:
        send(session, b"ROLLBACK")


def refused_rows_in(
    session: Session, groups: Sequence[Group], unkeyed: Sequence[RowOperation], max_bytes: int, *, safe_mode: bool
) -> list[RefusedRow]:
    """As :func:`find_refused_rows`, but inside the caller's transaction, in which all other changes are applied."""
    found: list[RefusedRow] = []
    for statement, keys in statements_of(groups, max_bytes, overwrite=False):
        match statement:
            case DeleteKeys():
                found += _try_delete(session, statement, keys, safe_mode=safe_mode)
            case InsertRows():
                found += _try_insert(session, statement.plan, statement.keys, keys)
            case _:
                pass
    for operation in unkeyed:
        _apply_unkeyed(session, operation)
    return found


def _try_delete(session: Session, statement: DeleteKeys, keys: Keys, *, safe_mode: bool) -> Iterator[RefusedRow]:
    send(session, f"SAVEPOINT {_BEFORE_DELETE}".encode())
    affected = send(session, statement.sql)
    if affected == len(statement.keys) or safe_mode or statement.may_lack_rows:
        return
    send(session, f"ROLLBACK TO {_BEFORE_DELETE}".encode())
    missing = frozenset(_missing(session, statement.plan, statement.keys))
    left = tuple(key for key in statement.keys if key not in missing)
    if left:
        send(session, delete_sql(statement.plan, left))
    for key in sorted(missing):
        state = keys[key]
        yield RefusedRow(key, state, diverged(state.plan, 1, key, state.position), 0)


def _missing(session: Session, plan: TablePlan, keys: tuple[JoinedLiterals, ...]) -> Iterator[JoinedLiterals]:
    """Those of ``keys`` that have no row at the target."""
    count = count_existing(session, plan, keys)
    if count >= len(keys):
        return
    if len(keys) == 1 or count == 0:
        yield from keys
        return
    half = len(keys) // 2
    yield from _missing(session, plan, keys[:half])
    yield from _missing(session, plan, keys[half:])


def _try_insert(
    session: Session, plan: TablePlan, wanted: tuple[JoinedLiterals, ...], keys: Keys
) -> Iterator[RefusedRow]:
    try:
        send(session, write_sql(b"INSERT", plan, [_image(keys[key]) for key in wanted]))
    except pymysql.MySQLError as error:
        if not is_row_error(errno_of(error)):
            raise
        if len(wanted) == 1:
            yield _classify(session, wanted[0], keys[wanted[0]], error)
            return
        half = len(wanted) // 2
        yield from _try_insert(session, plan, wanted[:half], keys)
        yield from _try_insert(session, plan, wanted[half:], keys)


def _classify(session: Session, key: JoinedLiterals, state: KeyState, error: pymysql.MySQLError) -> RefusedRow:
    errno, plan = errno_of(error), state.plan
    if errno != ER.DUP_ENTRY:
        return RefusedRow(key, state, row_refused_error(plan, state.position, key_text(plan, key), error), errno)
    if not state.existed and count_existing(session, plan, (key,)):
        return RefusedRow(key, state, collision(plan, key, state.position, None), errno)
    found = conflicting_id(session, plan, write_sql(b"INSERT", plan, [_image(state)]))
    return RefusedRow(key, state, other_duplicate_error(plan, state.position, error, found), errno)


@dataclass(frozen=True, slots=True)
class ConflictingId:
    """``column``: of the target table. ``text``: the id, in decimal digits."""

    column: str
    text: str


def _id_column(plan: TablePlan) -> str | None:
    """The target's column whose `partition id` range only this shard table has."""
    for item in plan.columns:
        if isinstance(item.mapping, PartitionId) and not item.mapping.is_shared:
            return item.target_name
    return None


def conflicting_id(session: Session, plan: TablePlan, insert: bytes) -> ConflictingId | None:
    """The id of a row with which ``insert`` conflicts, of whatever key: the server finds it. None if it is unknown.

    Inside the caller's transaction, in which nothing changes. Raises ``pymysql.MySQLError``, but not for a missing
    privilege.
    """
    column = _id_column(plan)
    if column is None:
        return None
    name = quote_name(column).encode()
    send(session, f"SAVEPOINT {_BEFORE_SEARCH}".encode())
    try:
        rows(session, "SELECT LAST_INSERT_ID(0)")
        send(session, insert + b" ON DUPLICATE KEY UPDATE " + name + b" = LAST_INSERT_ID(" + name + b")")
        found = text_of(rows(session, "SELECT LAST_INSERT_ID()")[0][0])
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR, ER.DUP_ENTRY):
            raise
        found = "0"
    send(session, f"ROLLBACK TO {_BEFORE_SEARCH}".encode())
    return None if found == "0" else ConflictingId(column, found)


def other_duplicate_error(
    plan: TablePlan, position: SourcePosition, error: pymysql.MySQLError, found: ConflictingId | None
) -> ShardmergeError:
    """Another unique key than the one that identifies rows is violated. ``found``: the row that has the value."""
    known = {} if found is None else {"id": found.text}
    row = "" if found is None else f"; the row that has the value there has {found.column} {found.text}"
    return errors.replicate.TARGET_DUPLICATE_OTHER_KEY(
        source=plan.source,
        schema=plan.table.schema,
        table=plan.table.name,
        position=position,
        target_schema=plan.target_schema,
        target_table=plan.target_table,
        reason=f"{reason_of(error)}{row}",
        errno=errno_of(error),
        **known,
    )


def row_refused_error(
    plan: TablePlan, position: SourcePosition, key: str, error: pymysql.MySQLError
) -> ShardmergeError:
    """ROW_REFUSED. ``key``: as text for people, such as "(no key)"."""
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


def _apply_unkeyed(session: Session, operation: RowOperation) -> None:
    for statement in unkeyed_statements((operation,)):
        try:
            affected = send(session, statement.sql)
        except pymysql.MySQLError as error:
            if not is_row_error(errno_of(error)):
                raise
            raise row_refused_error(operation.plan, operation.position, "(no key)", error) from error
        if isinstance(statement, DeleteRow) and affected != 1 and not operation.plan.may_lack_rows:
            raise diverged(operation.plan, 1, b"", operation.position)


def _image(state: KeyState) -> JoinedLiterals:
    assert state.image is not None  # noqa: S101 - for the type checker: the row is inserted
    return state.image
