"""Drops what a target table that was just created gets after its load, while it is empty: secondary indexes, and
AUTO_INCREMENT if the task requires it."""

from __future__ import annotations

from collections.abc import Sequence

import pymysql

from shardmerge.proto import failpoints
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session, execute, quote_name
from shardmerge.worker.core.mysql.create_table import column_item
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of, reason_of
from shardmerge.worker.core.sql.table_text import read_create_table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.target.tables import deferred_index_store
from shardmerge.worker.target.tables.deferred_index import DeferredIndex, deferrable, owed_with, worth_deferring

log = get_logger()


def defer_indexes(
    session: Session,
    meta_schema: str,
    plans: Sequence[TablePlan],
    creation: str,
    *,
    indexes: bool,
    numbering: bool,
) -> None:
    """Drop what the table that ``creation`` has just created gets after its load. ``indexes``: its deferrable indexes,
    if its load is large enough; ``numbering``: its AUTO_INCREMENT.

    ``plans``: of the shard tables at this source that are merged into it. The table was created with all indexes
    first, so a target that refuses an index does so now and not after the load. Raises ``pymysql.MySQLError``.
    """
    target = plans[0].target
    owed: tuple[DeferredIndex, ...] = ()
    if indexes and worth_deferring(plan.table.row_estimate for plan in plans):
        generated = frozenset(column.name.lower() for column in plans[0].table.columns if column.generated)
        owed = deferrable(creation, generated)
    numbered = read_create_table(creation).numbered if numbering else ""
    if numbered:
        owed += (DeferredIndex("", numbered),)
    if not owed:
        return
    failpoints.hit("deferred.created")
    with deferred_index_store.table_lock(session, target, deferred_index_store.LOCK_SECONDS) as held:
        if held:
            _drop_locked(session, meta_schema, target, creation, owed)
        else:
            log.warning("indexes are not deferred: another connection adds or drops some", table=target.quoted)


def _drop_locked(
    session: Session, meta_schema: str, target: TargetTable, creation: str, wanted: tuple[DeferredIndex, ...]
) -> None:
    present = deferred_index_store.read_present(session, target) or frozenset()
    owed = tuple(index for index in wanted if index.name.lower() in present)
    if not owed:
        return
    # Another source may have found the empty table meanwhile, and have deferred some. A record of an earlier table of
    # this name ends here.
    names = {index.name.lower() for index in wanted if index not in owed}
    gone = [one for one in deferred_index_store.read_owed(session, meta_schema, target) if one.name.lower() in names]
    deferred_index_store.record(session, meta_schema, target, owed_with(gone, owed))
    failpoints.hit("deferred.recorded")
    drops = ", ".join(
        f"MODIFY COLUMN {column_item(creation, index.definition, numbered=False)}"
        if index.is_auto_increment
        else f"DROP INDEX {quote_name(index.name)}"
        for index in owed
    )
    try:
        execute(session, f"ALTER TABLE {target.quoted} {drops}")
    except pymysql.MySQLError as error:
        if kind_of(errno_of(error)) not in (ErrorKind.STATEMENT, ErrorKind.PRIVILEGE):
            raise
        deferred_index_store.record(session, meta_schema, target, gone)
        log.warning("indexes cannot be deferred", table=target.quoted, reason=reason_of(error))
        return
    log.info("indexes are deferred", table=target.quoted, indexes=[index.shown for index in owed])
