"""Waits for the DDL jobs of a target whose DDL is asynchronous (TiDB).

There a DDL is a job of the cluster: it goes on when the connection that sent it is lost, and when that server is
killed. Only after its end do the tables' definitions show whether it has run. Source: TiDB's manual, "How TiDB Online
DDL Works", "DDL_JOBS".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardmerge.proto.listed_names import listed
from shardmerge.worker.core.mysql.connection import Session, dialect_of, rows, text_of
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TargetTable

_LOOK_SECONDS = 1
_ENDED = ("synced", "cancelled", "rollback done")
_SHOWN_JOBS = 3


def running_jobs(session: Session, tables: Sequence[TargetTable]) -> tuple[str, ...]:
    """The jobs of these tables that have not ended, as people read them; () at servers without such jobs. Raises
    ``pymysql.MySQLError``."""
    if not dialect_of(session).has_asynchronous_ddl:
        return ()
    # The newest jobs, and all that wait or run. Parts of a job keep the state "done". Names are compared here: they may
    # be in another case.
    wanted = {(table.schema.lower(), table.table.lower()) for table in tables}
    found = rows(
        session,
        "SELECT JOB_ID, DB_NAME, TABLE_NAME, JOB_TYPE, STATE FROM information_schema.DDL_JOBS "
        "WHERE STATE NOT IN %s AND JOB_TYPE NOT LIKE '%%subjob%%'",
        (_ENDED,),
    )
    return tuple(
        f"job {text_of(number)} ({text_of(kind)}, {text_of(state)}) of {text_of(schema)}.{text_of(name)}"
        for number, schema, name, kind, state in found
        if (text_of(schema).lower(), text_of(name).lower()) in wanted
    )


def wait_for_jobs(
    session: Session, tables: Sequence[TargetTable], stop: StopSignal, on_wait: Callable[[str], None]
) -> None:
    """Return when no job of these tables is left, or when ``stop`` is set. Raises ``pymysql.MySQLError``."""
    while not stop.is_set and (jobs := running_jobs(session, tables)):
        on_wait(f"the target's DDL {listed(jobs, _SHOWN_JOBS)}, which an earlier connection has begun")
        stop.wait(_LOOK_SECONDS)
