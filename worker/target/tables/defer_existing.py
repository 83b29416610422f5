"""Drops the secondary indexes of an existing, empty target table before its load (``load: {defer-indexes: empty}``).

    record what the server printed ── DROP INDEX, one statement each ── load ── the index adder adds them

Several sources and tasks may do this at the same time: each holds the table's server lock, which the index adder holds
too, and all use the table's one record. No row depends on the dropped indexes: a row that is written in between only
makes adding them take longer. The record is there before the first index is dropped, so a process that is killed at any
moment leaves a table whose missing indexes are in the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import pymysql

from shardmerge.proto import failpoints
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session, Side, connect, endpoint_of, execute, quote_name, rows
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of, reason_of
from shardmerge.worker.core.mysql.show_create import read_create_statement
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.target.tables import deferred_index_store
from shardmerge.worker.target.tables.deferred_index import DeferredIndex, deferrable, owed_with, worth_deferring

log = get_logger()

_MDL_WAIT_SECONDS = 10
"""How long a statement waits for transactions that use the table; meanwhile other sessions wait for the statement."""

_REFUSALS = (ErrorKind.STATEMENT, ErrorKind.PRIVILEGE, ErrorKind.CONFLICT)
"""The statement has not run and the connection lives: the index stays, which costs only time."""


def defer_existing(session: Session, meta_schema: str, plans: Sequence[TablePlan], found: Table) -> None:
    """Drop the deferrable indexes of the plans' target ``found`` if it is empty and its load is large enough.

    ``session``: for one query; the rest has its own connection, which ends the lock and the settings. Raises
    ``pymysql.MySQLError`` and coded errors of the connection.
    """
    target = plans[0].target
    if not worth_deferring(plan.table.row_estimate for plan in plans) or not is_empty(session, target):
        return
    with closing(connect(endpoint_of(session), Side.TARGET, name="target")) as own:
        # The server then refuses to drop an index that a foreign key needs, of this table or of one that refers to it.
        execute(own, f"SET SESSION foreign_key_checks = 1, lock_wait_timeout = {_MDL_WAIT_SECONDS}")
        with deferred_index_store.table_lock(own, target, deferred_index_store.LOCK_SECONDS) as held:
            if not held:
                log.warning("indexes are not deferred: another connection adds or drops some", table=target.quoted)
            elif is_empty(own, target):
                _defer_locked(own, meta_schema, target, found)


def is_empty(session: Session, target: TargetTable) -> bool:
    return not rows(session, f"SELECT 1 FROM {target.quoted} LIMIT 1")


def generated_columns(table: Table) -> frozenset[str]:
    """Their names, in lower case."""
    return frozenset(column.name.lower() for column in table.columns if column.generated)


def _defer_locked(session: Session, meta_schema: str, target: TargetTable, found: Table) -> None:
    present = deferrable_now(session, target, found)
    # Each index is dropped and added again in one statement, on the empty table: a definition that the server does not
    # accept any more would be lost.
    accepted = _altered(session, target, present, lambda one: f"{_drop(one)}, {_addition(one)}")
    now = frozenset(deferrable_now(session, target, found))
    same = [index for index in accepted if index in now]
    if len(same) < len(accepted):
        _not_deferred(target, [one for one in accepted if one not in now], "the server prints another definition now")
    if not same:
        return
    owed = deferred_index_store.read_owed(session, meta_schema, target)
    deferred_index_store.record(session, meta_schema, target, owed_with(owed, same))
    failpoints.hit("deferred.existing_recorded")
    dropped = _altered(session, target, same, _drop, "deferred.existing_dropped")
    if len(dropped) < len(same):
        deferred_index_store.record(session, meta_schema, target, owed_with(owed, dropped))
    if dropped:
        log.info("indexes are deferred", table=target.quoted, indexes=[index.shown for index in dropped])


def _altered(
    session: Session,
    target: TargetTable,
    indexes: Sequence[DeferredIndex],
    change: Callable[[DeferredIndex], str],
    moment: str = "",
) -> list[DeferredIndex]:
    """Run one ALTER TABLE per index; return those of which the server has not refused it. ``moment``: the failpoint
    after each."""
    done: list[DeferredIndex] = []
    for index in indexes:
        try:
            execute(session, f"ALTER TABLE {target.quoted} {change(index)}")
        except pymysql.MySQLError as error:
            kind = kind_of(errno_of(error))
            if kind not in _REFUSALS:
                raise
            _not_deferred(target, [index], reason_of(error))
            if kind is not ErrorKind.STATEMENT:
                break  # the next one would wait as long, and lacks the same privilege
            continue
        done.append(index)
        if moment:
            failpoints.hit(moment)
    return done


def deferrable_now(session: Session, target: TargetTable, found: Table) -> tuple[DeferredIndex, ...]:
    """The table's deferrable indexes, as the server prints them now; () if the text cannot be read."""
    try:
        return deferrable(read_create_statement(session, *target.names).text, generated_columns(found))
    except UnreadableCreateTable as error:
        log.warning("indexes are not deferred", table=target.quoted, reason=str(error))
        return ()


def _drop(index: DeferredIndex) -> str:
    return f"DROP INDEX {quote_name(index.name)}"


def _addition(index: DeferredIndex) -> str:
    return f"ADD {index.definition}"


def _not_deferred(target: TargetTable, indexes: Sequence[DeferredIndex], reason: str) -> None:
    names = [index.shown for index in indexes]
    log.warning("indexes stay during the load", table=target.quoted, indexes=names, reason=reason)
