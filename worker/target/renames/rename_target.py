"""Renames a target table of a task exactly once, whichever process is killed and whenever.

    record "begun" (fences all runs) ── RENAME TABLE ── records name the new table, "moved" ── the next run goes on

RENAME TABLE cannot be rolled back. A process that finds "begun" holds the server's lock of the task, which the renaming
session keeps as long as its statement runs, and looks which of the two tables exists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager, suppress

import pymysql
from pymysql.constants import ER

from shardmerge.proto import errors, failpoints
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session, execute, rows
from shardmerge.worker.core.mysql.server_errors import errno_of, reason_of
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.target.renames import target_renames
from shardmerge.worker.target.renames.target_renames import RenameState, TargetTableRename
from shardmerge.worker.target.tables import deferred_index_store
from shardmerge.worker.target.tables.target_table import ensure_schema

log = get_logger()

_LOCK_SECONDS = 5
_MDL_WAIT_SECONDS = 20
"""How long the statement waits for transactions that use the table."""


@contextmanager
def rename_lock(session: Session, schema: str, task: str) -> Generator[None]:
    """Hold the server's lock of the task's renames. Raises RENAME_UNDER_WAY and ``pymysql.MySQLError``."""
    name = f"shardmerge.rename.{hashlib.sha256(f'{schema}/{task}'.encode()).hexdigest()[:32]}"
    [(answer,)] = rows(session, "SELECT GET_LOCK(%s, %s)", (name, _LOCK_SECONDS))
    if answer != 1:
        raise errors.replicate.RENAME_UNDER_WAY(task=task)
    try:
        yield
    finally:
        with suppress(pymysql.MySQLError):  # the lock ends with the connection
            rows(session, "SELECT RELEASE_LOCK(%s)", (name,))


def settle(session: Session, schema: str, task: str) -> None:
    """Complete or undo the rename of a process that has ended. Raises RENAME_UNDER_WAY, RENAME_UNCLEAR and
    ``pymysql.MySQLError``."""
    found = target_renames.read(session, schema, task)
    if found is None or found.state is RenameState.MOVED:
        return
    with rename_lock(session, schema, task):
        settle_locked(session, schema, task)


def settle_locked(session: Session, schema: str, task: str) -> TargetTableRename | None:
    """As :func:`settle`, while the caller holds the lock; returns the record that is left."""
    found = target_renames.read(session, schema, task)
    if found is None or found.state is RenameState.MOVED:
        return found
    match exists(session, found.before), exists(session, found.after):
        case True, False:
            target_renames.delete(session, schema, task)
            return None
        case False, True:
            return target_renames.move(session, schema, found)
        case both, _:
            raise errors.replicate.RENAME_UNCLEAR(
                task=task,
                before=found.before.quoted,
                after=found.after.quoted,
                reason="both tables exist" if both else "neither table exists",
            )


def rename_locked(session: Session, schema: str, rename: TargetTableRename, epoch: int) -> None:
    """Rename the table and move the records, while the caller holds the lock. ``epoch``: see
    :func:`target_renames.begin`.

    Raises RENAME_BUSY, RENAME_REFUSED, RENAME_UNCLEAR and ``pymysql.MySQLError``.
    """
    if rename.before.schema != rename.after.schema:
        ensure_schema(session, rename.after.schema)
    # Of an earlier table with the new name: they would be added to this one.
    deferred_index_store.delete(session, schema, rename.after)
    target_renames.begin(session, schema, rename, epoch)
    failpoints.hit("rename_target.begun")
    execute(session, f"SET SESSION lock_wait_timeout = {_MDL_WAIT_SECONDS}")
    try:
        execute(session, rename_statement(rename.before, rename.after))
    except pymysql.MySQLError as error:
        # A lost connection raises here again: the state stays unknown, and the next run settles it. Otherwise the
        # statement has ended.
        if exists(session, rename.before):
            target_renames.delete(session, schema, rename.task)
            raise errors.master.RENAME_REFUSED(
                task=rename.task,
                statement=rename_statement(rename.before, rename.after),
                reason=reason_of(error),
                errno=errno_of(error),
            ) from error
        settle_locked(session, schema, rename.task)
        return
    failpoints.hit("rename_target.renamed")
    target_renames.move(session, schema, rename)
    log.info("a target table is renamed", task=rename.task, before=rename.before.quoted, after=rename.after.quoted)
    failpoints.hit("rename_target.moved")


def rename_statement(before: TargetTable, after: TargetTable) -> str:
    return f"RENAME TABLE {before.quoted} TO {after.quoted}"


def exists(session: Session, target: TargetTable) -> bool:
    """Whether there is a table or view of this name. Raises ``pymysql.MySQLError``."""
    try:
        rows(session, f"SHOW CREATE TABLE {target.quoted}")
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR):
            raise
        return False
    return True
