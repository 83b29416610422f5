"""Taking the secondary indexes off a table that was just made, before anything is in it."""

from __future__ import annotations

from collections.abc import Sequence

import pymysql

from proto import hooks
from proto.log import get_logger
from worker.connection import Session, execute, quote_name
from worker.deferred import store
from worker.deferred.index import deferrable, worth_deferring
from worker.plan import TablePlan
from worker.trouble import Trouble, errno_of, reason_of, trouble

log = get_logger()


def defer_indexes(session: Session, meta_schema: str, plans: Sequence[TablePlan], creation: str) -> None:
    """Take the indexes that may wait off the table that ``creation`` has just made, if its load is long enough.

    ``plans``: of the shard tables at this source that go there. The whole table was made first, so that a target that
    refuses an index says so now and not after the load. Raises ``pymysql.MySQLError``.
    """
    target = plans[0].target
    if not worth_deferring(plan.table.row_estimate for plan in plans):
        return
    generated = frozenset(column.name.lower() for column in plans[0].table.columns if column.generated)
    owed = deferrable(creation, generated)
    if not owed:
        return
    store.record(session, meta_schema, target, owed)
    hooks.reach("deferred.recorded")
    drops = ", ".join(f"DROP INDEX {quote_name(index.name)}" for index in owed)
    try:
        execute(session, f"ALTER TABLE {target.quoted} {drops}")
    except pymysql.MySQLError as error:
        if trouble(errno_of(error)) not in (Trouble.STATEMENT, Trouble.PRIVILEGE):
            raise
        store.forget(session, meta_schema, target)
        log.warning("indexes cannot be deferred", table=target.quoted, reason=reason_of(error))
        return
    log.info("indexes are deferred", table=target.quoted, indexes=[index.name for index in owed])
